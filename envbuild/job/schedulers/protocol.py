"""What every scheduler offers, and the small things that they share."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import Protocol

from envbuild.errors import ToolFailedError, UsageError
from envbuild.job.model import Intent, Job, Status
from envbuild.job.request.units import clock_seconds, time_text
from envbuild.job.schedulers.features import Features
from envbuild.job.sites.site import Site
from envbuild.names import Texts
from envbuild.records import frozen_record
from envbuild.run import Result
from envbuild.script_files import read_script
from envbuild.toml import quote

Words = Texts
"""One option of a scheduler with its value: a line of the script, or words of a command line."""
Ask = Callable[..., str]
"""Run a client with these words and return what it says on both streams."""


@frozen_record
class StateQuestion:
    """A command that may know a job's state, and how to read what it says; None means that it does not know.

    ``why`` is to be asked why a job waits, where the state does not say so already.
    """

    argv: Words
    read: Callable[[Result, str], Status | None]
    why: StateQuestion | None = None


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


def last_id(pattern: str, result: Result) -> str:
    """Return the last line that is an id; site wrappers print greetings and budgets around it.

    Raises ToolFailedError where there is none: the submission worked, but printed no id.
    """
    lines = [line.strip() for line in result.stdout.splitlines()]
    found = [line for line in lines if re.fullmatch(pattern, line)]
    if found:
        return found[-1]
    output = result.last_lines() or "nothing"
    raise ToolFailedError.of(
        result,
        f"the job was perhaps submitted, but no id of it was found in: {output}",
        hint="look for it in the scheduler's list of your jobs before submitting again",
    )


def user_options(job: Job, site: Site) -> Words:
    """Return the options that the site file and the user wrote, as they are: the scheduler reads their quotes."""
    return (*site.fields.options, *job.intent.options)


def interactive_options(job: Job, site: Site) -> Words:
    """Return the words of a user's and a site file's options for a job that has the terminal."""
    options = (*user_options(job, site), *site.fields.interactive)
    return tuple(itertools.chain.from_iterable(map(shlex.split, options)))


def worst_status(tasks: Iterable[Status]) -> Status:
    """Return the state of a job whose tasks have ended: a task without a code before the highest one."""
    return max(tasks, key=lambda status: (status.code is None, status.code or 0))


def longest_walltime(pattern: str, text: str) -> str | None:
    """Return the walltime whose hours, minutes and seconds a pattern finds, None for none."""
    found = re.search(pattern, text, re.MULTILINE)
    return time_text(clock_seconds(*found.groups())) if found else None


def partition_section(name: str, walltime: str | None) -> list[str]:
    """Return the lines of a site file about a queue, with the longest time of its jobs if it is known."""
    lines = ["", "[[partition]]", f"name = {quote(name)}"]
    return [*lines, f"walltime = {quote(walltime)}"] if walltime else lines


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


def script_text(name: str, **values: str | Texts) -> str:
    """Return a file of job/scripts with values in it, without its first comment."""
    return read_script("envbuild.job", f"scripts/{name}", **values)


def quote_word(word: str) -> str:
    r"""Quote a word for bash on one line: Grid Engine takes each line that begins with its prefix for an option."""
    if not re.search(r"[\x00-\x1f\x7f]", word):
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + re.sub(r"[\x00-\x1f\x7f]", lambda c: f"\\{ord(c[0]):03o}", escaped) + "'"


def join_words(words: Iterable[str]) -> str:
    """Quote words for bash, all on one line."""
    return " ".join(quote_word(word) for word in words)
