"""What is kept of submissions, in ``.envbuild/jobs`` of the folder they were made from, and the receipts of jobs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import TypeVar

import msgspec
from msgspec import structs

from envbuild.errors import HostError, IntegrityError, UsageError
from envbuild.job.model import SCHEMA, Receipt, Record
from envbuild.job.track.tail import list_sizes
from envbuild.limits import UNREADABLE, read_whole
from envbuild.names import Paths
from envbuild.settings import Settings
from envbuild.store.atomic import os_errors_as, write_text
from envbuild.store.layout import open_store
from envbuild.store.own_records import OWN_FOLDER, is_own, note_own

T = TypeVar("T")
FOLDER = Path(".envbuild/jobs")
RESULTS = Path(".envbuild/results")
"""What jobs themselves write; in a container the rest of .envbuild cannot be changed."""
MOST_BYTES = 16 << 20
"""Of a record; one of an array of 10,000 tasks with its table has some megabytes."""


def job_folder(project: Path) -> Path:
    """Make the folder of scripts and records, which git ignores, and return it.

    Raises IntegrityError for a link: in a folder that was copied from somebody, it would lead our
    files to any place.
    """
    folder = project / FOLDER
    results = project / RESULTS
    for place in (folder.parent, folder, results):
        if place.is_symlink():
            what = "is a link, and envbuild writes the files of jobs through no link"
            name = place.relative_to(project)
            hint = f"rm {name}    (the folder is made anew)"
            raise IntegrityError(what, where=name, hint=hint)
    with os_errors_as(folder):
        folder.mkdir(parents=True, exist_ok=True)
        results.mkdir(exist_ok=True)
    ignore = folder.parent / ".gitignore"
    if not ignore.exists():
        write_text(ignore, "*\n")
    return folder


def plain_id(job: str) -> str:
    """Return the number of an id, which logs and receipts are named after: "12[].server" and "12_3" give "12"."""
    return re.split(r"[.\[_]", job, maxsplit=1)[0]


def save_record(record: Record, project: Path) -> Path:
    """Write the record of a submission and return its path."""
    job_folder(project)
    path = project / FOLDER / f"{record.site}-{plain_id(record.id)}.json"
    write_text(path, json.dumps(msgspec.to_builtins(record), indent=1) + "\n", mode=0o600)
    return path


def require_record_folder(settings: Settings) -> None:
    """Raise HostError where the record of a job could not be kept, before the job is there."""
    folder = open_store(settings).folder(OWN_FOLDER)
    if not os.access(folder, os.W_OK):
        hint = "let your user write there, or set ENVBUILD_STORE to another folder"
        raise HostError("the store cannot be written", where=folder, hint=hint)


def save_own_record(record: Record, settings: Settings) -> Path:
    """Write the record of a job that was submitted just now, so that it can be acted upon."""
    path = save_record(record, settings.cwd)
    note_own(_lasting_part(path.read_bytes()), open_store(settings))
    return path


def load_records(project: Path) -> tuple[Record, ...]:
    """Return all submissions of a folder, oldest first; files that are no records are left out.

    A folder that was copied from somebody brings records too: these may be shown, but only those of
    ``load_own_records`` may be acted upon.
    """
    return tuple(record for record, _ in _read_folder(project))


def load_own_records(settings: Settings) -> tuple[Record, ...]:
    """Return the submissions that this user's envbuild wrote, which may be acted upon.

    A record names commands to run, folders to bind, and files to remove: a foreign one is a risk.
    """
    store = open_store(settings)
    found = _read_folder(settings.cwd)
    return tuple(record for record, raw in found if is_own(_lasting_part(raw), store))


def _read_folder(project: Path) -> list[tuple[Record, bytes]]:
    found = []
    for path in sorted((project / FOLDER).glob("*.json")):
        raw = read_plain(path)
        record = _decode(raw, Record)
        # keys that no record has are passed over unread
        if record is not None and _decode(raw, dict) is not None:
            found.append((record, raw))
    return sorted(found, key=lambda item: item[0].submitted)


def _lasting_part(raw: bytes) -> bytes:
    """Return what never changes in a record: all of it but whether the job was cancelled."""
    whole = msgspec.json.decode(raw)
    return json.dumps({**whole, "cancelled": False}, sort_keys=True).encode()


def find_record(job: str, project: Path, *, site: str | None = None) -> Record:
    """Return one submission by its id, with or without the server's name, or by SITE:ID where two sites gave one id.

    Raises UsageError when it is not here, or when it is not clear which is meant.
    """
    return _find_among(load_records(project), job, site)


def find_own_record(job: str, settings: Settings) -> Record:
    """Return one submission that was written from here, to act upon; else as ``find_record``.

    Raises IntegrityError for one that came with the folder.
    """
    shown = find_record(job, settings.cwd)
    own = load_own_records(settings)
    if not any((record.id, record.site) == (shown.id, shown.site) for record in own):
        raise IntegrityError(
            "the record of this job is not one that was written from here",
            where=f"job {plain_id(shown.id)}",
            hint="submit it again, by its recipe and command",
        )
    return _find_among(own, job, shown.site)


def _find_among(records: Sequence[Record], job: str, site: str | None) -> Record:
    named, _, number = job.rpartition(":")
    wanted = site or named
    same = [record for record in records if plain_id(record.id) == plain_id(number)]
    found = [record for record in same if wanted in ("", record.site)]
    if not found:
        recent = [f"{plain_id(one.id)} ({one.name})" for one in records[-5:]]
        known = ", ".join(recent) or "none"
        if any(record.name == job for record in records):
            raise UsageError(f"which job of {job}?", hint=f"its number, one of these: {known}")
        raise UsageError(
            f"job {job} was not submitted from this folder",
            hint=f"known here: {known}; go to the folder it came from",
        )
    sites = sorted({record.site for record in found})
    if len(sites) > 1:
        raise UsageError(
            f"several sites have a job {number}",
            hint=" or ".join(f"{name}:{number}" for name in sites),
        )
    return _narrow(found[-1], number)


def task_number(job: str) -> int | None:
    """Return the task that an id names: 3 of "12[3]", "12_3" (Slurm) and "12.3" (Grid Engine)."""
    found = re.fullmatch(r"\d+(?:\[(\d+)\](?:\..*)?|_(\d+)|\.(\d+))", job)
    return next((int(part) for part in found.groups() if part), None) if found else None


def _narrow(record: Record, job: str) -> Record:
    """Return the record with the one task that an id names, if it names one."""
    task = task_number(job)
    if task is None:
        return record
    if task not in record.tasks:
        known = "none: it is no array"
        if record.tasks:
            known = f"{record.tasks[0]} to {record.tasks[-1]}"
        raise UsageError(f"job {plain_id(job)} has no task {task}", hint=f"its tasks: {known}")
    return structs.replace(record, tasks=(task,))


def find_job(job: str | None, project: Path) -> Record:
    """Return a submission to look at: by its id, else the last one of that name, without both the last of all.

    Raises UsageError where there is none.
    """
    records = load_records(project)
    named = [record for record in records if record.name == job]
    if job and not named:
        return _find_among(records, job, None)
    if not records:
        raise UsageError(
            "no job was submitted from this folder",
            where=project,
            hint="go to the project's folder",
        )
    return (named or records)[-1]


def log_files(record: Record, project: Path) -> Paths:
    """Return where the job's logs are, one per task of an array, whether they exist or not."""
    return _paths(record.log, record, project)


def _paths(pattern: str, record: Record, project: Path) -> Paths:
    text = _with_id(pattern, record)
    tasks = [str(task) for task in record.tasks] or [""]
    return tuple(project / text.replace("{task}", task) for task in tasks)


def _with_id(pattern: str, record: Record) -> str:
    return pattern.replace("{id}", plain_id(record.id))


def receipt_files(record: Record, project: Path) -> Paths:
    """Return where the job writes its receipts, one per task."""
    return _paths(record.receipt, record, project)


def read_receipts(record: Record, project: Path) -> tuple[Receipt, ...]:
    """Return the receipts that are there."""
    return tuple(receipt for receipt in list_receipts(record, project) if receipt)


def is_whole(record: Record, receipts: Sequence[Receipt]) -> bool:
    """Tell whether every task of a job has left its receipt."""
    return len(receipts) >= max(1, len(record.tasks))


def is_stopped(receipts: Sequence[Receipt]) -> bool:
    """Tell whether a signal ended a task: then it may have been put back into the queue, as the scheduler knows."""
    return any(receipt.signal for receipt in receipts)


def list_receipts(record: Record, project: Path) -> tuple[Receipt | None, ...]:
    """Return the receipt of each task, None where there is none.

    The folder is listed first, as network file systems remember absence.
    """
    files = receipt_files(record, project)
    there = list_sizes(files)
    return tuple(read_receipt(path) if path in there else None for path in files)


def current_id(record: Record, project: Path) -> str:
    """Return the id that the scheduler knows a job by now: PBS gives one that goes on another."""
    pattern = _with_id(record.receipt, record)
    path = project / f"{pattern.removesuffix('.json')}.id"
    found = re.fullmatch(rb"(\d+\.[\w.-]+)\n", read_plain(path))
    return found[1].decode() if found else record.id


def result_file(record: Record, project: Path, task: int | None) -> Path:
    """Return the file that a task may write values for the table into (ENVBUILD_RESULT)."""
    pattern = _with_id(record.receipt, record)
    return project / result_name(pattern.replace("{task}", str(task)))


def result_name(receipt: str) -> str:
    """Return the name of a file of results.

    A receipt in our own folder has it in the folder that jobs may write; any other has it beside.
    """
    path = PurePosixPath(receipt).with_suffix(".result")
    if path.parent == PurePosixPath(FOLDER):
        return str(RESULTS / path.name)
    return str(path)


def read_receipt(path: Path) -> Receipt | None:
    """Return one receipt; None where it is not there, or not whole."""
    return _decode(read_plain(path), Receipt)


def remove_secrets(settings: Settings) -> None:
    """Remove the handed-on variables of jobs that have ended for good, by their receipts."""
    project = settings.cwd
    if not list((project / FOLDER).glob("*.env")):
        return
    for record in load_own_records(settings):
        path = Path(record.job.secrets) if record.job and record.job.secrets else None
        if path is None or not path.is_file():
            continue
        receipts = read_receipts(record, project)
        # a job that was stopped may be put back into the queue, and needs them again
        if is_whole(record, receipts) and not is_stopped(receipts):
            path.unlink(missing_ok=True)


def read_plain(path: Path) -> bytes:
    """Return the bytes of a plain file of usual size, b"" for anything else."""
    try:
        return read_whole(path, MOST_BYTES)
    except (OSError, UsageError):
        return b""


def _decode(raw: bytes, kind: type[T]) -> T | None:
    """Read a record or receipt; return None for one that is not whole, or of a newer schema."""
    try:
        found = msgspec.json.decode(raw, type=kind)
    except UNREADABLE:
        return None
    return found if getattr(found, "schema", SCHEMA) <= SCHEMA else None


def now() -> str:
    """Return the time in UTC, as in receipts."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime:
    """Read a time as ``now`` writes it; raises ValueError."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
