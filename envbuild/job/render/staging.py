"""Data on the node's own disk: copied or unpacked before the command, once per node, and shown at its own path."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from envbuild.errors import UsageError
from envbuild.job.model import Job
from envbuild.job.schedulers.protocol import script_text
from envbuild.names import Texts
from envbuild.records import frozen_record

ARCHIVE = re.compile(r"\.(tar|tar\.(gz|bz2|xz|zst)|tgz)$")
NAMING = "token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ') staged=\n"
"""A name for the folder that nobody who shares the node's disk can make first."""


@frozen_record
class StagedData:
    """One thing to stage: as it is named, the path where the command sees it, and whether it is unpacked."""

    source: str
    target: str
    packed: bool


def staged_data(job: Job) -> tuple[StagedData, ...]:
    """Return what a job stages.

    An archive becomes the folder that is called like it without the ending.
    """
    found = []
    for name in job.intent.stage:
        packed = ARCHIVE.search(name)
        found.append(
            StagedData(
                source=name, target=name[: packed.start()] if packed else name, packed=bool(packed)
            )
        )
    return tuple(found)


def check_stage(names: Texts, folder: Path) -> None:
    """Raise UsageError for data that is not there, or that cannot be shown at its own path."""
    for name in names:
        if not (folder / name).exists():
            raise UsageError("the data to stage is not there", where=name)
        # a colon would end the source of a bind, a comma the bind (apptainer exec --bind)
        if not re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9._+@=/ -]*", name) or ".." in Path(name).parts:
            raise UsageError(
                "cannot be staged: it needs a path of letters, digits, blanks and . _ + @ = - /, without .., that begins with a letter or digit",
                where=name,
            )
        if folder.resolve().is_relative_to((folder / name).resolve()):
            raise UsageError(
                "the project itself cannot be staged",
                where=name,
                hint="name the folder of its data",
            )


def stage_functions(job: Job) -> str:
    """Return the functions that bring data to the node and remove it.

    "" where nothing is staged.
    """
    steps = []
    for number, item in enumerate(staged_data(job)):
        source, place = shlex.quote(item.source), f'"$staged/{number}"'
        if item.packed:
            steps += [
                f"mkdir -p -- {shlex.quote(item.target)} {place}",
                f"supervise tar -xf {source} -C {place}",
            ]
        else:
            steps.append(f"supervise cp -rL --preserve=timestamps -- {source} {place}")
    if not steps:
        return ""
    copy = " &&\n    ".join(steps)
    return f"copy_data() {{\n  {copy}\n}}\n" + script_text("staging.sh")


def stage_binds(job: Job) -> Texts:
    """Return the runtime's words that show what is staged, for an array of bash."""
    words: list[str] = []
    for number, item in enumerate(staged_data(job)):
        target = item.target if item.target.startswith("/") else f"$PWD/{item.target}"
        words += ["--bind", f'"$staged/{number}:{target}:ro"']
    return tuple(words)
