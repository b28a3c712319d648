"""What every scheduler offers, and the small things that they share."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal, Protocol

from envbuild.errors import ToolFailedError, UsageError
from envbuild.job.model import Intent, Job, Status
from envbuild.job.schedulers.dialect import Dialect
from envbuild.job.sites.site import Site
from envbuild.names import Texts
from envbuild.run import Result
from envbuild.script_files import read_script

Words = Texts
"""One option of a scheduler with its value: a line of the script, or words of a command line."""
Ask = Callable[..., str]
"""Run a client with these words and return what it says on both streams."""
Cause = Literal["account", "limit", "queue-limit", "array", "queue", "node", "resource", "silent"]
"""Why a job is refused; submit.py has the words for each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateQuestion:
    """A command that may know a job's state, and how to read what it says; None means that it does not know."""

    argv: Words
    read: Callable[[Result, str], Status | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shell:
    """What a job's own script takes from its scheduler, as bash.

    ``id`` and ``task`` set those variables, ``folder`` is where it was submitted, ``hosts`` prints
    one node a line, ``passed`` are shell patterns of variables that the container gets to see.
    ``setup`` are lines at the start. ``tell_ranks`` gives a signal to the ranks that the
    scheduler's own starter has started; ``ignored`` are signals that the scheduler sends to every
    process of a job, and that must not end the command.  ``gpus`` are lines that turn the
    scheduler's choice of GPUs into CUDA_VISIBLE_DEVICES, with @name@ for the resource; ``number``
    is the variable with the number of an array's task; ``put_back`` is a function that puts the job
    back into the queue, with @script@ for its script; ``preempted`` is a function that tells
    whether another job takes this one's place, or it is started again for another reason, and
    ``await_preemption`` one that waits for it where the script is not told; ``kill_later`` is one
    that ends a command which goes on after TERM, where the scheduler itself does not.
    """

    id: str
    task: str
    folder: str
    hosts: str
    passed: Words
    setup: str = ""
    tell_ranks: str = ""
    ignored: Words = ()
    gpus: str = ""
    number: str = ""
    put_back: str = ""
    preempted: str = ""
    await_preemption: str = ""
    kill_later: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Banner:
    """What a client says of itself: whom it belongs to, what to ask it, and the pattern of the answer."""

    title: str
    argv: Words
    pattern: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Features:
    """What a scheduler can do and how its clients speak; everything that differs between them and is no text of a job.

    ``name`` is what site files call it, ``title`` what people do; ``prefix`` starts its lines in a
    script. ``queues`` is False for this machine, where nothing waits and nothing is handed out.
    ``gpu_dialects`` are the values of ``[resources] gpu`` that it knows.  ``tests_success``: it can
    hold a job until another has succeeded, ``tests_arrays``: also until each task of an array has.
    ``requeues_tasks``: a task of an array may go back into the queue.  ``trusts_unknown``: it takes
    a job that it does not know for one that succeeded.  ``types_only``: several nodes, and GPUs by
    type, go with [[type]] alone.  ``starts_ranks``: it has a starter of its own for ranks, which tells each its number.
    ``lightning_counts_tasks``: Lightning takes the tasks of a job for all of its processes.
    ``reads_logins``: a job begins with a login shell, which reads the user's login files.
    ``array_from`` and ``array_least`` are the first number and the fewest tasks of an array.
    ``unknown`` is how a client says that there is no such job: whatever else it says when it fails,
    is no answer. ``owned`` are options that envbuild writes, with the flag that gives them;
    ``joins_options``: the value of one of a single letter may follow without a blank.  ``accounts``
    are variables that name the account; ``client_variables`` is a pattern of those that its clients need.
    ``refusals`` are patterns of what they say when they refuse a job, by cause.  ``dialect`` is how
    its scripts are written, None where they have no lines for it.  ``banner`` is its own client's word, ``strangers`` those
    of others that have clients of the same name.
    """

    name: str
    title: str
    prefix: str
    shell: Shell
    by_hand: str
    gpu_dialects: Words
    banner: Banner | None
    writes_log: bool = True
    queues: bool = True
    tests_success: bool = True
    tests_arrays: bool = True
    requeues_tasks: bool = True
    trusts_unknown: bool = False
    types_only: bool = False
    starts_ranks: bool = False
    lightning_counts_tasks: bool = False
    reads_logins: bool = False
    appends_log: bool = False
    joins_options: bool = True
    array_from: int = 0
    array_least: int = 1
    array_source: str = ""
    unknown: str = "$^"
    owned: dict[str, str] = field(default_factory=dict)
    accounts: Words = ()
    client_variables: str = ""
    refusals: Mapping[Cause, str] = field(default_factory=dict)
    dialect: Dialect | None = None
    strangers: tuple[Banner, ...] = ()


class Scheduler(Protocol):
    """One scheduler: its features, the commands that it takes and what their output means."""

    features: Features

    def options(self, job: Job, site: Site) -> tuple[Words, ...]:
        """Return what the script's head asks for; raises UsageError for what cannot be said."""

    def submit(self, script: str, job: Job, site: Site) -> Words:
        """Return the command that submits a script."""

    def interactive(self, script: str, job: Job, site: Site, *, terminal: bool = True) -> Words:
        """Return the command that opens the script on a node, with this terminal.

        Without ``terminal`` its streams carry any bytes; raises UsageError where they cannot.
        """

    def attach(self, script: str, job: str, *, terminal: bool) -> Words:
        """Return the command that runs a script beside a running job; raises UsageError where nobody is let in."""

    def read_id(self, result: Result) -> str:
        """Return the id that the submission printed; raises ToolFailedError when there is none."""

    def questions(self, job: str) -> tuple[StateQuestion, ...]:
        """Return the commands that may know a job's state, in the order to ask them.

        The first is the queue's: where it gives no answer, nobody knows.
        """

    def why(self, job: str) -> StateQuestion | None:
        """Return the command that says why a job is stuck, None where its state says so already."""

    def cancel(self, job: str, task: int | None = None) -> Words:
        """Return the command that ends a job, or one task of an array."""

    def site_sections(self, ask: Ask) -> list[str]:
        """Return what the scheduler says of itself as lines of a site file."""


def nobody_enters(title: str, reason: str) -> UsageError:
    """Return the error about a scheduler that lets nobody into a job that runs."""
    hint = "look at its log (envbuild logs ID -f), or start a job to sit down in: envbuild submit NAME --interactive"
    return UsageError(
        f"{title} lets nobody into a job that runs: {reason}", where="attach", hint=hint
    )


def no_id(result: Result) -> ToolFailedError:
    """Return the error about a submission that worked but printed no id."""
    output = result.last_lines() or "nothing"
    return ToolFailedError.of(
        result,
        f"the job was perhaps submitted, but no id of it was found in: {output}",
        hint="look for it in the scheduler's list of your jobs before submitting again",
    )


def last_match(pattern: str, text: str) -> str | None:
    """Return the last line that is an id; site wrappers print greetings and budgets around it."""
    found = [line.strip() for line in text.splitlines() if re.fullmatch(pattern, line.strip())]
    return found[-1] if found else None


def user_options(job: Job, site: Site) -> Words:
    """Return the options that the site file and the user wrote, as they are: the scheduler reads their quotes."""
    return (*site.fields.options, *job.intent.options)


def split_options(options: Iterable[str]) -> Words:
    """Return options that a site file or a user wrote as the words of a command line."""
    return tuple(itertools.chain.from_iterable(map(shlex.split, options)))


def check_quotes(text: str, where: str) -> None:
    """Raise UsageError for an option whose quotes do not close."""
    try:
        shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{text!r} has a quote that does not close", where=where) from error


def check_owned(features: Features, options: Words, where: str = "--option") -> None:
    """Raise UsageError for an option that envbuild writes itself: the job would get it twice, or lose its log."""
    for text in options:
        for option, flag in features.owned.items():
            if _is_option(shlex.split(text), option, joined=features.joins_options):
                hint = f"the flag for it: {flag}" if flag else "jobs of envbuild cannot have it"
                raise UsageError(
                    f"{text!r} is an option that envbuild itself gives to {features.title}",
                    where=where,
                    hint=hint,
                )


def _is_option(words: list[str], option: str, *, joined: bool) -> bool:
    """Tell whether words are this option: "--array=1-3", "-t 1-3", "-lselect=2", "-l select=2"."""
    name = words[0].partition("=")[0]
    if option.startswith("--") or not joined:
        return name == option
    # options of one letter, whose value may follow at once (getopt(3));
    # "-lselect" is a resource of -l
    return not name.startswith("--") and "".join(words[:2]).startswith(option)


def command_words(options: Iterable[Words]) -> Words:
    """Return options as the words of a command line."""
    return tuple(itertools.chain.from_iterable(options))


def array_text(job: Job, *, limit: str = "%") -> str:
    """Return FIRST-LAST[:STEP][%LIMIT] of a job's array."""
    array = job.intent.array
    assert array is not None  # noqa: S101
    step = f":{array.step}" if array.step > 1 else ""
    at_once = f"{limit}{array.limit}" if limit and array.limit else ""
    return f"{array.first}-{array.last}{step}{at_once}"


def dependency_text(intent: Intent) -> str:
    """Return which jobs are waited for, in the words that Slurm and PBS share; "" for none."""
    kinds = (("afterok", intent.after), ("afterany", intent.after_any))
    return ",".join(f"{kind}:{':'.join(ids)}" for kind, ids in kinds if ids)


def log_pattern(job: Job) -> str:
    """Return the neutral pattern of the job's log, the task in it for an array."""
    default = "logs/{name}-{id}-{task}.log" if job.intent.array else "logs/{name}-{id}.log"
    text = job.intent.output or default
    if job.intent.array and "{task}" not in text:
        path = PurePosixPath(text)
        text = str(path.with_name(f"{path.stem}-{{task}}{path.suffix}"))
    return text.replace("{name}", job.name)


def job_name(name: str) -> str:
    """Return a name that starts with a letter, as Grid Engine and PBS want it."""
    return name if name[0].isalpha() else f"j{name}"


def script_text(name: str) -> str:
    """Return a file of job/scripts without its first comment, which speaks to shellcheck."""
    return read_script("envbuild.job", f"scripts/{name}")


def quote_word(word: str) -> str:
    r"""Quote a word for bash on one line: Grid Engine takes each line that begins with its prefix for an option."""
    if not re.search(r"[\x00-\x1f\x7f]", word):
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\{ord(c[0]):03o}", escaped) + "'"


def join_words(words: Iterable[str]) -> str:
    """Quote words for bash, all on one line."""
    return " ".join(quote_word(word) for word in words)
