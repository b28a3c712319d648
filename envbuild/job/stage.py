"""Data on the node's own disk: copied or unpacked before the command, once per node, and shown at its own path."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from envbuild.errors import UsageError
from envbuild.job.model import Job
from envbuild.job.schedulers.protocol import fill

ARCHIVE = re.compile(r"\.(tar|tar\.(gz|bz2|xz|zst)|tgz)$")
STAGE = """\
# data goes to the disk of a node once: its first process copies, the others wait, and the last one out removes it
stage() {
  local began=$SECONDS tries=0
  staged=$(node_local)/envbuild-stage-$token
  # a process that was quick may remove the folder while this one waits for its lock
  while [ $((tries += 1)) -lt 50 ] || fail "no file can be written in $staged"; do
    mkdir -m 700 -- "$staged" 2>/dev/null || [ -d "$staged" ] || fail "no node-local folder can be written"
    { exec 9>"$staged/lock"; } 2>/dev/null || continue
    flock 9
    [ ! "$staged/lock" -ef /dev/fd/9 ] || break
  done
  if [ ! -e "$staged/done" ]; then
    if ! { @copies@; }; then
      unstage
      fail "the data was not brought to the disk of $(hostname), $staged: see above"
    fi
    : >"$staged/done"
    printf 'envbuild: data is on %s after %d s\\n' "$(hostname)" $((SECONDS - began))
  fi
  flock -s 9
}
unstage() {
  flock -n -x 9 && rm -rf -- "$staged"
  exec 9>&-
}
"""
NAMING = "token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ') staged=\n"
"""A name for the folder that nobody who shares the node's disk can make first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Staged:
    """One thing to stage: as it is named, the path where the command sees it, and whether it is unpacked."""

    source: str
    target: str
    packed: bool


def staged(job: Job) -> tuple[Staged, ...]:
    """Return what a job stages; an archive becomes the folder that is called like it without the ending."""
    found = []
    for name in job.intent.stage:
        packed = ARCHIVE.search(name)
        found.append(
            Staged(
                source=name, target=name[: packed.start()] if packed else name, packed=bool(packed)
            )
        )
    return tuple(found)


def check_stage(names: tuple[str, ...], folder: Path) -> None:
    """Raise UsageError for data that is not there, or that cannot be shown at its own path."""
    for name in names:
        if not (folder / name).exists():
            raise UsageError("the data to stage is not there", where=name)
        if not re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9._+@=/ -]*", name) or ".." in Path(name).parts:
            raise UsageError(
                "cannot be staged: it needs a path of letters, digits, blanks and . _ + @ = - /, without ..",
                where=name,
            )
        if folder.resolve().is_relative_to((folder / name).resolve()):
            raise UsageError(
                "the project itself cannot be staged",
                where=name,
                hint="name the folder of its data",
            )


def stage_functions(job: Job) -> str:
    """Return the functions that bring data to the node and remove it; "" where nothing is staged."""
    lines = []
    for number, item in enumerate(staged(job)):
        source, place = shlex.quote(item.source), f'"$staged/{number}"'
        if item.packed:
            lines += [
                f"mkdir -p -- {shlex.quote(item.target)} {place}",
                f"supervise tar -xf {source} -C {place}",
            ]
        else:
            lines.append(f"supervise cp -rL --preserve=timestamps -- {source} {place}")
    return fill(STAGE, copies=" &&\n      ".join(lines)) if lines else ""


def stage_binds(job: Job) -> tuple[str, ...]:
    """Return the runtime's words that show what is staged, for an array of bash."""
    words: list[str] = []
    for number, item in enumerate(staged(job)):
        target = item.target if item.target.startswith("/") else f"$PWD/{item.target}"
        words += ["--bind", f'"$staged/{number}:{target}:ro"']
    return tuple(words)
