"""The job script: one bash file that needs nothing but itself, the image and the site's runtime."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

from envbuild import __version__
from envbuild.job.container import enter_function, node_local_function
from envbuild.job.launch import launch, module_names
from envbuild.job.model import Job
from envbuild.job.records import FOLDER
from envbuild.job.schedulers.protocol import Scheduler, fill, log_pattern
from envbuild.job.site import Site
from envbuild.job.stage import NAMING, stage_functions

FAIL = """\
fail() {
  printf 'envbuild: error: %s\\n' "$*" >&2
  exit 125
}
"""
SUPERVISE = """\
# in the background, because bash hears a signal while it waits, but not while a command has the foreground
supervise() {
  local code
  "$@" &
  child=$!
  while :; do
    wait "$child"
    code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  child=
  return "$code"
}
"""
DIRECT = """\
supervise() {
  "$@"
}
"""
FINISH = """\
finish() {
  local code=$?
  trap '' TERM INT
  @watch@printf '{"schema":1,"job":"%s","task":"%s","name":"%s","site":"%s","code":%d,"signal":"%s","node":"%s",' \\
    "$id" "$task" @name@ @site@ "$code" "$signal" "$(hostname)" >"$receipt.part"
  printf '"started":"%s","ended":"%s","image":"%s","lock":"%s","commit":"%s","gpus":[%s],"driver":"%s"}\\n' \\
    "$started" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" @image@ @lock@ @commit@ "$gpus" "$driver" >>"$receipt.part"
  mv -f -- "$receipt.part" "$receipt"
  printf 'envbuild: ended with code %d\\n' "$code"
  exit "$code"
}
trap finish EXIT
"""
TRAPS = """\
stop() {
  signal=$1
  printf 'envbuild: signal %s, handed on to the command\\n' "$signal"
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap 'stop TERM' TERM
trap 'stop INT' INT
trap 'stop USR1' USR1
trap 'stop USR2' USR2
"""
PROVENANCE = """\
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd '0-9.')
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null |
  tr -cd 'A-Za-z0-9 ._\\n-' | sed 's/.*/"&"/' | paste -sd, -)
printf 'envbuild: job %s%s on %s, %s\\n' "$id" "${task:+ task $task}" "$(hostname)" "$started"
printf 'envbuild: %s\\n' @lines@
printf 'envbuild: GPU %s, driver %s\\n' "${gpus:-none seen}" "${driver:-none seen}"
"""


def render(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the whole script; raises UsageError for what the scheduler cannot say."""
    parts = [
        _head(job, site, scheduler),
        _start(job, scheduler),
        FAIL,
        DIRECT if job.interactive else SUPERVISE,
        _finish(job, site),
        "" if job.interactive else TRAPS,
        _provenance(job, site),
        _before(job),
        _prepare(job, site),
        _container(job, site, scheduler) if job.image else "",
        _watch(job, site),
        _command(job),
        launch(job, site, scheduler),
    ]
    return "\n".join(part for part in parts if part)


def _container(job: Job, site: Site, scheduler: Scheduler) -> str:
    stage = stage_functions(job)
    return (
        (NAMING if stage else "")
        + node_local_function(site)
        + stage
        + enter_function(job, site, scheduler)
    )


def _head(job: Job, site: Site, scheduler: Scheduler) -> str:
    options = () if job.interactive else scheduler.options(job, site)
    lines = ["#!/bin/bash", *(f"{scheduler.prefix} {' '.join(words)}" for words in options)]
    lines.append(f"# {job.name} on {site.name}, written by envbuild {__version__} (docs/job.md)")
    # such functions are run by traps, and on other nodes from their text
    lines += ["# shellcheck disable=SC2317", "set -u", ""]
    return "\n".join(lines)


def receipt_pattern(job: Job) -> str:
    """Return the neutral pattern of the receipt: with the submission's other files, else beside the log."""
    if job.key is not None:
        return f"{FOLDER}/{job.key}.receipt{'-{task}' if job.intent.array else ''}.json"
    return str(PurePosixPath(log_pattern(job)).with_suffix(".json"))


def _shell_pattern(pattern: str) -> str:
    """Turn {id} and {task} into the script's variables; what is left of a checked pattern needs no quotes."""
    return '"' + pattern.replace("{id}", "$id").replace("{task}", "$task") + '"'


def _start(job: Job, scheduler: Scheduler) -> str:
    folder = shlex.quote(str(PurePosixPath(log_pattern(job)).parent))
    lines = [
        f'cd "{scheduler.shell.folder}" || exit 125',
        scheduler.shell.id,
        scheduler.shell.task,
        f"mkdir -p -- {folder} || exit 125",
        f"receipt={_shell_pattern(receipt_pattern(job))}",
        'rm -f -- "$receipt"',  # of the same job before it was put back into the queue
    ]
    if not scheduler.writes_log and not job.interactive:
        # a job that PBS starts again goes on in its log; here, an old log belonged to another process of that number
        mode = ">>" if scheduler.prefix else ">"
        lines.append(f"exec {mode}{_shell_pattern(log_pattern(job))} 2>&1")
    lines += ["started=$(date -u +%Y-%m-%dT%H:%M:%SZ)", "signal='' child='' gpus='' driver=''"]
    return "\n".join(lines) + "\n"


def _finish(job: Job, site: Site) -> str:
    local = (
        site.site.scheduler == "local" and job.intent.walltime is not None and not job.interactive
    )
    image = job.image
    return fill(
        FINISH,
        watch='[ -z "$watch" ] || kill "$watch" 2>/dev/null\n  ' if local else "",
        name=shlex.quote(job.name),
        site=shlex.quote(site.name),
        image=shlex.quote(image.digest if image else ""),
        lock=shlex.quote((image.lock or "") if image else ""),
        commit=shlex.quote(job.commit),
    )


def _provenance(job: Job, site: Site) -> str:
    image = job.image
    lines = [f"{job.name} for {site.name}, commit {job.commit}"]
    if image:
        lines.append(f"image {image.path} {image.digest}")
        lines.append(f"lock {image.lock or 'none'}")
    return fill(PROVENANCE, lines=" ".join(f"\\\n  {shlex.quote(line)}" for line in lines))


def _before(job: Job) -> str:
    """Return the test of the jobs that must have succeeded, for a scheduler that only knows that they ended."""
    if not job.checked:
        return ""
    lines = [
        "succeeded() {",
        '  grep -q \'"code":0,\' "$1" 2>/dev/null || fail "a job that this one follows did not succeed: $1"',
        "}",
        *(f"succeeded {shlex.quote(path)}" for path in job.checked),
    ]
    return "\n".join(lines) + "\n"


def _prepare(job: Job, site: Site) -> str:
    """Return the function that loads modules; their scripts use variables that are not set."""
    names = module_names(job, site)
    if not names and not site.modules.init:
        return ""
    lines = ["prepare() {", "  set +u"]
    if site.modules.init:
        lines += ["  # shellcheck disable=SC1090,SC1091", f"  {site.modules.init}"]
    if names:
        words = " ".join(names)
        lines.append(f'  module load {words} || fail "module load {words} failed"')
    return "\n".join((*lines, "  set -u", "}", "prepare", ""))


def _watch(job: Job, site: Site) -> str:
    if site.site.scheduler != "local" or job.intent.walltime is None or job.interactive:
        return ""
    return (
        "# nobody else keeps the walltime here\n"
        f"{{ sleep {job.intent.walltime} && kill -TERM $$; }} >/dev/null 2>&1 &\nwatch=$!\n"
    )


def _command(job: Job) -> str:
    if not job.rows:
        return f"command=({shlex.join(job.argv)})\n"
    numbers = job.intent.array.numbers if job.intent.array else range(1, len(job.rows) + 1)
    rows = (
        f"{number}) command=({shlex.join(row)}) ;;"
        for number, row in zip(numbers, job.rows, strict=True)
    )
    return "\n".join(("case $task in", *rows, '*) fail "there is no row $task" ;;', "esac", ""))
