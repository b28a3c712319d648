"""Choose conda packages in a process of its own, whose memory, files and time are limited.

rattler unpacks whatever a channel sends as its list, into memory or a file: 100 kB may become gigabytes.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from envbuild import errors, limits
from envbuild.conda.model import CondaRequest, CondaSolution
from envbuild.context import Context, open_context
from envbuild.errors import EnvbuildError, IntegrityError
from envbuild.progress import Silent
from envbuild.run import OWN_PATH, Command, LocalRunner
from envbuild.settings import load_settings

START = f"{OWN_PATH}; from envbuild.conda.limited import answer_question; answer_question()"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """``names`` asks for the newest version of each, None for the packages of the request."""

    request: CondaRequest
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An error of ours, by the name of its class."""

    kind: str
    what: str
    where: str | None
    hint: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came of a question; ``said`` is for the user."""

    said: tuple[str, ...] = ()
    solution: CondaSolution | None = None
    versions: dict[str, str] | None = None
    failure: Failure | None = None


class Notes(Silent):
    """A reporter that keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        """Keep one line."""
        self.said.append(text)


def choose_limited(request: CondaRequest, context: Context) -> CondaSolution:
    """Return the packages of an environment.

    Raises as ``choose_conda``, and IntegrityError where the lists of the channels are too large.
    """
    answer = _ask(Question(request=request), context)
    assert answer.solution is not None  # noqa: S101  (it was asked for)
    return answer.solution


def newest_limited(
    request: CondaRequest, names: Sequence[str], context: Context
) -> Mapping[str, str]:
    """Return the newest version of each name that the channel which has it first offers."""
    answer = _ask(Question(request=request, names=tuple(names)), context)
    return answer.versions or {}


def _ask(question: Question, context: Context) -> Answer:
    settings = context.settings
    command = Command(
        argv=(sys.executable, "-c", START),
        env=settings.environment,
        cwd=settings.cwd,
        stdin=msgspec.json.encode(question).decode(),
        timeout=limits.CHANNEL_SECONDS,
    )
    result = context.runner(command, check=False)
    try:
        answer = msgspec.json.decode(result.stdout.encode(), type=Answer)
    except limits.UNREADABLE as error:
        raise IntegrityError(
            f"the lists of these channels take more than {limits.CHANNEL_MEMORY // limits.GIB} GiB or "
            f"{limits.CHANNEL_SECONDS:.0f} s to read",
            where=", ".join(question.request.channels),
            hint=f"the reader said: {result.last_lines(1) or 'nothing'}",
        ) from error
    for line in answer.said:
        context.report.say(line)
    if answer.failure is not None:
        told = answer.failure
        kind: type[EnvbuildError] = getattr(errors, told.kind)
        raise kind(told.what, where=told.where, hint=told.hint)
    return answer


def answer_question() -> None:
    """Read a question from standard input and write what came of it: the whole program."""
    resource.setrlimit(resource.RLIMIT_DATA, (limits.CHANNEL_MEMORY, limits.CHANNEL_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.CHANNEL_FILE, limits.CHANNEL_FILE))
    from envbuild.conda import choose  # late: what it loads is held to the limits

    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    notes = Notes()
    context = open_context(load_settings(os.environ, Path.cwd()), LocalRunner(), notes)
    solution, versions, failure = None, None, None
    try:
        if question.names is None:
            solution = choose.choose_conda(question.request, context)
        else:
            versions = dict(choose.newest_versions(question.request, question.names, context))
    except EnvbuildError as error:
        failure = Failure(
            kind=type(error).__name__, what=error.what, where=error.where, hint=error.hint
        )
    answer = Answer(said=tuple(notes.said), solution=solution, versions=versions, failure=failure)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
