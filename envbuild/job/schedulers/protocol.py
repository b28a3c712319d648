"""What every scheduler offers, and the small things that they share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from envbuild.errors import ToolFailedError, UsageError
from envbuild.job.model import Job, Status
from envbuild.job.site import Site
from envbuild.run import Result

Words = tuple[str, ...]
"""One option of a scheduler with its value: a line of the script, or words of a command line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A command that may know a job's state, and how to read what it says; None means that it does not know."""

    argv: Words
    read: Callable[[Result, str], Status | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shell:
    """What a job's own script takes from its scheduler, as bash.

    ``id`` and ``task`` set those variables, ``folder`` is where it was submitted, ``hosts`` prints one node a line,
    ``passed`` are shell patterns of variables that the container gets to see.
    """

    id: str
    task: str
    folder: str
    hosts: str
    passed: Words


class Scheduler(Protocol):
    """One scheduler; ``prefix`` starts its lines in a script, ``writes_log``: it opens the log file itself."""

    title: str
    prefix: str
    writes_log: bool
    shell: Shell
    clients: Words

    def options(self, job: Job, site: Site) -> tuple[Words, ...]:
        """Return what the script's head asks for; raises UsageError for what cannot be said."""
        ...  # pragma: no cover

    def submit(self, script: str, job: Job, site: Site) -> Words:
        """Return the command that submits a script."""
        ...  # pragma: no cover

    def interactive(self, script: str, job: Job, site: Site) -> Words:
        """Return the command that opens the script on a node, with this terminal."""
        ...  # pragma: no cover

    def attach(self, script: str, job: str, *, terminal: bool) -> Words:
        """Return the command that runs a script beside a running job; raises UsageError where nobody is let in."""
        ...  # pragma: no cover

    def read_id(self, result: Result) -> str:
        """Return the id that the submission printed; raises ToolFailedError when there is none."""
        ...  # pragma: no cover

    def questions(self, job: str) -> tuple[Question, ...]:
        """Return the commands that may know a job's state, in the order to ask them."""
        ...  # pragma: no cover

    def why(self, job: str) -> Question | None:
        """Return the command that says why a job is stuck, None where its state says so already."""
        ...  # pragma: no cover

    def cancel(self, job: str) -> Words:
        """Return the command that ends a job."""
        ...  # pragma: no cover


def nobody_enters(title: str, reason: str) -> UsageError:
    """Return the error about a scheduler that lets nobody into a job that runs."""
    hint = "look at its log (envbuild logs ID -f), or start a job to sit down in: envbuild submit NAME --interactive"
    return UsageError(
        f"{title} lets nobody into a job that runs: {reason}", where="attach", hint=hint
    )


def no_id(result: Result) -> ToolFailedError:
    """Return the error about a submission that worked but printed no id."""
    said = result.last_lines() or "nothing"
    return ToolFailedError(
        f"the job was perhaps submitted, but no id of it was found in: {said}",
        argv=result.argv,
        exit_code=result.code,
        stdout=result.stdout,
        stderr=result.stderr,
        hint="look for it in the scheduler's list of your jobs before submitting again",
    )


def last_match(pattern: str, text: str) -> str | None:
    """Return the last line that is an id; site wrappers print greetings and budgets around it."""
    found = [line.strip() for line in text.splitlines() if re.fullmatch(pattern, line.strip())]
    return found[-1] if found else None


def split(options: Iterable[str]) -> tuple[Words, ...]:
    """Split options that a site file or a user wrote as text into words."""
    return tuple(tuple(shlex.split(text)) for text in options)


def flat(options: Iterable[Words]) -> Words:
    """Return options as the words of a command line."""
    return tuple(word for option in options for word in option)


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


def fill(text: str, **values: str) -> str:
    """Replace @name@ in a piece of bash, where braces and percent signs have meanings of their own."""
    return re.sub(r"@([a-z]+)@", lambda found: values[found[1]], text)
