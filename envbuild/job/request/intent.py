"""A recipe's [job] and the flags become an Intent: amounts with units, arrays, parameter tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import TypeVar, get_args

from envbuild.errors import UsageError
from envbuild.job.model import Array, Intent
from envbuild.job.request.units import parse_memory, parse_walltime
from envbuild.job.schedulers.protocol import check_quotes
from envbuild.names import Texts
from envbuild.recipe.model import JobSection, Launcher
from envbuild.records import frozen_record, replace
from envbuild.toml import closest

T = TypeVar("T")


USUAL_WARNING, SHORTEST_WARNING = 120, 5
"""Seconds before the end at which a job that goes back into the queue is warned: a tenth of its time,
between these."""
CHANGING = ("gpus", "nodes", "tasks", "cpus", "memory", "walltime", "partition", "account")
MAY_CHANGE = "what may change: " + ", ".join(f"--{name}" for name in CHANGING)
"""Of a job that is submitted again."""


@frozen_record
class Flags:
    """What the command line says; None leaves the recipe's word."""

    gpus: str | None = None
    nodes: int | None = None
    tasks: int | None = None
    cpus: int | None = None
    memory: str | None = None
    walltime: str | None = None
    partition: str | None = None
    account: str | None = None
    array: str | None = None
    after: Texts = ()
    after_any: Texts = ()
    launcher: str | None = None
    environment: Texts = ()
    output: str | None = None
    inputs: Texts = ()
    stage: Texts = ()
    trial: bool = False
    options: Texts = ()
    warn: str | None = None
    requeue: int | None = None
    checkpoint: str | None = None
    notify: str | None = None


def make_intent(wanted: JobSection, flags: Flags) -> Intent:
    """Join a recipe's [job] with the flags, which win.

    Raises UsageError naming the flag or the key at fault.
    """
    gpus, kind = (
        _gpus(flags.gpus) if flags.gpus is not None else (wanted.gpus or 0, wanted.gpu_type)
    )
    launcher = flags.launcher or wanted.launcher
    if launcher not in get_args(Launcher):
        raise UsageError(
            f"there is no launcher {launcher!r}{closest(launcher, get_args(Launcher))}",
            where="--launcher",
        )

    def pick(name: str) -> tuple[str | None, str]:
        given = getattr(flags, name)
        if given is not None:
            return given, f"--{name}"
        return getattr(wanted, name), f"[job] {name}"

    def pick_parsed(name: str, parse: Callable[[str, str], T]) -> T | None:
        text, place = pick(name)
        return None if text is None else parse(text, place)

    walltime = pick_parsed("walltime", parse_walltime)
    # a folder is shown at its own path: "./data/" is "data"
    stage = [str(PurePosixPath(path)) for path in (*wanted.stage, *flags.stage)]
    return Intent(
        gpus=gpus,
        gpu_type=kind,
        nodes=_first(flags.nodes, wanted.nodes),
        tasks=_first(flags.tasks, wanted.tasks),
        cpus=_first(flags.cpus, wanted.cpus),
        memory=pick_parsed("memory", parse_memory),
        walltime=walltime,
        partition=_word(*pick("partition")),
        account=_word(*pick("account")),
        array=pick_parsed("array", parse_array),
        after=_ids(flags.after, "--after"),
        after_any=_ids(flags.after_any, "--after-any"),
        launcher=launcher,  # type: ignore[arg-type]
        environment=tuple(dict.fromkeys((*wanted.environment, *flags.environment))),
        output=pick_parsed("output", _output),
        inputs=(*wanted.inputs, *flags.inputs),
        stage=tuple(dict.fromkeys(stage)),
        trial=flags.trial,
        options=tuple(_option(text) for text in flags.options),
        warning=_warning(pick("warn"), pick("requeue"), walltime),
        requeue=_first(flags.requeue, wanted.requeue) or 0,
        checkpoint=_folder(flags.checkpoint),
        notify=_command(flags.notify),
    )


def check_flags(flags: Flags) -> None:
    """Raise UsageError for a flag whose value is wrong whatever the recipe says."""
    # these two are right or wrong by the walltime, which the recipe may give
    make_intent(JobSection(), replace(flags, warn=None, requeue=None))


def _warning(
    warn: tuple[str | None, str], requeue: tuple[object, str], walltime: int | None
) -> int | None:
    """Return how long before the end of its time a job is warned; a value stands with its place."""
    text, place = warn if warn[0] is not None else (None, requeue[1])
    if text is None and not requeue[0]:
        return None
    if walltime is None:
        raise UsageError("is about the end of the job's time", where=place, hint="--walltime 24h")
    if text is None:
        if walltime <= 2 * SHORTEST_WARNING:
            what = f"{walltime} s leave no time between the start and the warning before the end"
            raise UsageError(what, where="--walltime", hint="--walltime 1m")
        return min(USUAL_WARNING, max(SHORTEST_WARNING, walltime // 10))
    warning = parse_walltime(text, place)
    if warning >= walltime:
        raise UsageError(f"{text} is as long as the job itself", where=place)
    return warning


def _command(text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise UsageError("which command?", where="--notify", hint="--notify 'mail -s done me'")
    return text


def _folder(text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        hint = "letters, digits, dot, underscore and hyphen; it is a folder of ./checkpoints"
        raise UsageError(f"{text!r} is not a valid folder name", where="--checkpoint", hint=hint)
    return text


def change_intent(intent: Intent, flags: Flags) -> Intent:
    """Return the intent with the resources of the flags; raises UsageError for other flags."""
    for item in fields(Flags):
        if item.name not in CHANGING and getattr(flags, item.name) != item.default:
            raise UsageError(
                "--again runs the same job",
                where=f"--{item.name}",
                hint=MAY_CHANGE,
            )
    given = make_intent(JobSection(), flags)
    changed = {name: getattr(given, name) for name in CHANGING if getattr(flags, name) is not None}
    if flags.gpus is not None:
        changed["gpu_type"] = given.gpu_type
    return replace(intent, **changed)


def _first(given: int | None, wanted: int | None) -> int | None:
    return wanted if given is None else given


def _gpus(text: str) -> tuple[int, str | None]:
    """Read "4" or "tesla:4"."""
    found = re.fullmatch(r"(?:([A-Za-z0-9][\w.+-]*):)?(\d{1,6})", text)
    if found is None:
        raise UsageError("--gpus takes a number, or TYPE:NUMBER", where=text)
    return int(found[2]), found[1]


def _word(text: str | None, place: str) -> str | None:
    if text is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+:@/-]{0,99}", text):
        raise UsageError(f"{text!r} is not a valid name of a queue or an account", where=place)
    return text


def _ids(texts: Texts, place: str) -> Texts:
    ids = tuple(part for part in ",".join(texts).split(",") if part)
    for job in ids:
        if not re.fullmatch(r"\d+(\[\])?(\.[\w.-]+)?", job):
            raise UsageError(f"{job!r} is not a job ID", where=place)
    return ids


def _option(text: str) -> str:
    if not re.fullmatch(r"-[^\x00-\x1f\x7f]+", text):
        raise UsageError(f"{text!r} is not a scheduler option", where="--option")
    check_quotes(text, "--option")
    return text


def _output(text: str, place: str) -> str:
    """Check a pattern of log files: it goes into a directive, which no shell quotes."""
    plain = re.sub(r"\{(name|id|task)\}", "", text)
    if not re.fullmatch(r"[A-Za-z0-9._+@/=-]*", plain):
        hint = "letters, digits, . _ + @ = - / and {name}, {id}, {task}; no variables, a scheduler would not expand them"
        raise UsageError(f"{text!r} is not a valid pattern for a log file", where=place, hint=hint)
    if "{id}" not in text:
        raise UsageError(
            "two jobs would write the same log",
            where=place,
            hint=f"put {{id}} into it: {text}-{{id}}",
        )
    if text.endswith("/") or ".." in Path(text).parts:
        raise UsageError(
            f"{text!r} is neither a file below the project nor an absolute path", where=place
        )
    return text


def parse_array(text: str, place: str) -> Array:
    """Read "1-10%2", "0-9:3", "5"; raises UsageError."""
    found = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,5}))?)?(?:%(\d{1,6}))?", text)
    if found is None:
        raise UsageError(
            f"{text!r} is no array", where=place, hint="write FIRST-LAST[:STEP][%AT-ONCE]: 1-10%2"
        )
    begin, end, by, most = found.groups()
    first, last = int(begin), int(end or begin)
    step, limit = int(by or 1), int(most) if most else None
    if last < first or step == 0 or limit == 0:
        raise UsageError(f"the array {text!r} has no tasks", where=place)
    return Array(first=first, last=last, step=step, limit=limit)
