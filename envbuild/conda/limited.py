"""Choose conda packages in a process of its own, whose memory, files and time are limited.

rattler unpacks whatever a channel sends as its list, into memory or a file: 100 kB may become
gigabytes.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from envbuild import errors, limits
from envbuild.conda.model import CondaFound, CondaRequest, CondaSolution, PixiQuestion
from envbuild.context import Context
from envbuild.errors import EnvbuildError, IntegrityError, NetworkError
from envbuild.names import Texts
from envbuild.net.web import NETWORK_HINT
from envbuild.records import frozen_record
from envbuild.run import OWN_PATH, Command, Result

START = f"{OWN_PATH}; from envbuild.conda.answer import answer_question; answer_question()"
TOO_MUCH = "the lists of these channels take more memory or time than their size allows"


@frozen_record
class ChannelQuestion:
    """One question: by itself for the packages of the request.

    ``names`` asks for the newest version of each, ``sums`` (sha256 by file name) for the records of
    locked archives, ``pixi`` for the pixi.lock of these.
    """

    request: CondaRequest
    names: Texts | None = None
    sums: dict[str, str] | None = None
    pixi: PixiQuestion | None = None


@frozen_record
class ChannelFailure:
    """An error of ours, by the name of its class."""

    kind: str
    what: str
    where: str | None
    hint: str | None


@frozen_record
class ChannelAnswer:
    """What came of a question; ``messages`` are for the user."""

    messages: Texts = ()
    solution: CondaSolution | None = None
    versions: dict[str, str] | None = None
    found: tuple[CondaFound, ...] = ()
    text: str | None = None
    failure: ChannelFailure | None = None


def choose_limited(request: CondaRequest, context: Context) -> CondaSolution:
    """Return the packages of an environment.

    Raises as ``choose_conda``, and IntegrityError where the lists of the channels are too large.
    """
    answer = _ask(ChannelQuestion(request=request), context)
    assert answer.solution is not None  # noqa: S101  (it was asked for)
    return answer.solution


def newest_limited(
    request: CondaRequest, names: Sequence[str], context: Context
) -> Mapping[str, str]:
    """Return the newest version of each name that the channel which has it first offers."""
    answer = _ask(ChannelQuestion(request=request, names=tuple(names)), context)
    return answer.versions or {}


def find_locked(
    request: CondaRequest, sums: Mapping[str, str], context: Context
) -> tuple[CondaFound, ...]:
    """Return what the channels say of locked archives; ``sums`` has sha256 by file name.

    Raises NetworkError for what the channels no longer have.
    """
    return _ask(ChannelQuestion(request=request, sums=dict(sums)), context).found


def find_pixi_lock(
    request: CondaRequest, sums: Mapping[str, str], pixi: PixiQuestion, context: Context
) -> str:
    """Return the pixi.lock of locked archives.  Raises as ``find_locked``."""
    answer = _ask(ChannelQuestion(request=request, sums=dict(sums), pixi=pixi), context)
    assert answer.text is not None  # noqa: S101  (it was asked for)
    return answer.text


def _ask(question: ChannelQuestion, context: Context) -> ChannelAnswer:
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
        answer = msgspec.json.decode(result.stdout.encode(), type=ChannelAnswer)
    except limits.UNREADABLE as error:
        _remove_broken_lists(context.store.folder("repodata"))
        raise _no_answer(result, question.request.channels) from error
    for line in answer.messages:
        context.report.say(line)
    if failure := answer.failure:
        kind: type[EnvbuildError] = getattr(errors, failure.kind)
        if issubclass(kind, (NetworkError, IntegrityError)):
            _remove_broken_lists(context.store.folder("repodata"))
        raise kind(failure.what, where=failure.where, hint=failure.hint)
    return answer


def _no_answer(result: Result, channels: Sequence[str]) -> EnvbuildError:
    where = ", ".join(channels)
    if result.timed_out:
        what = f"the lists of these channels take more than {limits.CHANNEL_SECONDS:.0f} s to read"
        return NetworkError(what, where=where, hint=NETWORK_HINT)
    ended = f"the process that reads them ended with {result.code}"
    hint = f"{ended}: {result.last_lines(1) or 'it wrote nothing'}"
    return IntegrityError(TOO_MUCH, where=where, hint=hint)


def _remove_broken_lists(folder: Path) -> None:
    """Remove the lists that are no whole JSON.

    rattler keeps a list before it reads it, and takes it again when the channel says that nothing
    has changed.
    """
    for path in folder.glob("*.json"):
        if not _is_json(path):
            path.unlink(missing_ok=True)


def _is_json(path: Path) -> bool:
    try:
        # mapped, for a list may have gigabytes
        with (
            path.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, *limits.UNREADABLE):  # an empty file cannot be mapped
        return False
    return True
