"""Watch a job: its receipt says how it ended, the scheduler only whether it waits, runs or is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from envbuild.errors import HostError
from envbuild.job.model import Receipt, Record, Status
from envbuild.job.records import log_files, plain_id, read_receipts
from envbuild.job.schedulers import scheduler_of
from envbuild.job.schedulers.protocol import Question
from envbuild.job.site import Site
from envbuild.job.submit import ask
from envbuild.run import Runner
from envbuild.settings import Settings

GRACE = 60.0
"""Seconds in which a job that the scheduler does not know, or that has ended, may still hand in its receipt."""
FIRST, LAST = 0.5, 30.0
"""Seconds between two questions to the scheduler: the first, and the longest as it backs off."""
SETTLED = 2.0
"""Seconds for which a stopped job must be gone: one that is put back into the queue is unknown for a moment."""
LOOK = 0.3
"""Seconds between two looks at log and receipts, which cost the scheduler nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Time, as a parameter for tests."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def status_of(record: Record, site: Site, settings: Settings, runner: Runner) -> Status:
    """Ask the scheduler about a job; "unknown" is what it is, and never means that the job has ended."""
    scheduler = scheduler_of(site)
    for question in scheduler.questions(record.id):
        found = _answer(question, record, settings, runner)
        if found is None:
            continue
        why = scheduler.why(record.id) if found.phase == "queued" else None
        told = _answer(why, record, settings, runner) if why else None
        return replace(found, reason=told.reason) if told else found
    return Status(phase="unknown", reason="the scheduler does not know it")


def _answer(
    question: Question, record: Record, settings: Settings, runner: Runner
) -> Status | None:
    """Ask one question; a client that is missing or hangs answers nothing."""
    try:
        result = ask(question.argv, settings, runner, patience=30)
    except HostError:
        return None
    return None if result.timed_out else question.read(result, record.id)


class Tail:
    """Hand on what is new in log files; names each where there are several.

    ``before`` are the sizes of files that were there already: another site may have used the same number.
    """

    def __init__(
        self,
        files: tuple[Path, ...],
        write: Callable[[str], None],
        *,
        before: Mapping[Path, int] | None = None,
    ) -> None:
        self.places = {path: (before or {}).get(path, 0) for path in files}
        self.write = write
        self.last: Path | None = None

    def move(self) -> None:
        """Write what was added since the last call."""
        for path, place in self.places.items():
            try:
                with path.open("rb") as file:
                    start = place if file.seek(0, os.SEEK_END) >= place else 0  # begun anew
                    file.seek(start)
                    data = file.read()
            except OSError:
                continue
            if data:
                if len(self.places) > 1 and self.last != path:
                    self.write(f"==> {path.name} <==\n")
                self.places[path], self.last = start + len(data), path
                self.write(data.decode("utf-8", "replace"))


def wait(
    record: Record,
    site: Site,
    settings: Settings,
    runner: Runner,
    *,
    tail: Tail,
    say: Callable[[str], None],
    clock: Clock | None = None,
) -> tuple[Receipt, ...]:
    """Follow the log until every task has written its receipt, and return these.

    Raises HostError for a job that can never start, that ended without a receipt (killed, cancelled, node lost), or
    that the scheduler has lost; the job itself is left alone whatever happens here.
    """
    hand = clock or Clock()
    told, pause, due, gone_since, halted = "", FIRST, hand.now(), None, False
    while True:
        receipts = read_receipts(record, settings.cwd)
        tail.move()
        whole = len(receipts) >= max(1, len(record.tasks))
        if whole and not stopped(receipts):
            tail.move()
            return receipts
        if whole and not halted:
            halted, pause, due = True, FIRST, hand.now()
        if hand.now() < due:
            hand.sleep(LOOK)
            continue
        status = status_of(record, site, settings, runner)
        due, pause = hand.now() + pause, min(LAST, pause * 1.5)
        settled = gone_since is not None and hand.now() - gone_since >= SETTLED
        if (
            whole
            and settled
            and status.phase in ("ended", "unknown")
            and (last := _receipts_of_all(record, settings))
        ):
            tail.move()
            return last
        if (line := _told(status)) != told:
            told = line
            say(f"job {plain_id(record.id)} {line}")
        if status.stuck:
            raise HostError(
                f"job {record.id} will never start: {status.reason}",
                where=f"site {site.name}",
                hint=f"envbuild cancel {plain_id(record.id)}, and ask for something else",
            )
        if status.phase in ("ended", "unknown"):
            gone_since = hand.now() if gone_since is None else gone_since
            if hand.now() - gone_since > _grace(status):
                raise _lost(record, site, status)
        else:
            gone_since = None


def _receipts_of_all(record: Record, settings: Settings) -> tuple[Receipt, ...]:
    """Read the receipts again: a second run may have ended since the first look; empty where one is missing."""
    receipts = read_receipts(record, settings.cwd)
    return receipts if len(receipts) >= max(1, len(record.tasks)) else ()


def stopped(receipts: tuple[Receipt, ...]) -> bool:
    """Tell whether a signal ended a task: then it may have been put back into the queue, as the scheduler knows."""
    return any(receipt.signal for receipt in receipts)


def _grace(status: Status) -> float:
    return 5.0 if status.phase == "ended" and status.reason else GRACE


def _told(status: Status) -> str:
    if status.phase == "queued":
        return f"waits{f' ({status.reason})' if status.reason else ''}"
    if status.phase == "running":
        return f"runs{f' on {status.node}' if status.node else ''}"
    return "has ended" if status.phase == "ended" else "is not known to the scheduler (yet)"


def _lost(record: Record, site: Site, status: Status) -> HostError:
    logs = ", ".join(str(path) for path in log_files(record, Path())[:3])
    if status.phase == "ended":
        code = f" (exit code {status.code})" if status.code is not None else ""
        what = f"job {record.id} ended without a receipt: {status.reason or 'it was ended from outside'}{code}"
    else:
        what = f"job {record.id} is gone: the scheduler does not know it, and it left no receipt"
    return HostError(what, where=f"site {site.name}", hint=f"what it had written: {logs}")


def exit_code(receipts: tuple[Receipt, ...]) -> int:
    """Return the exit code of a job: the highest of its tasks."""
    return max((receipt.code for receipt in receipts), default=0)
