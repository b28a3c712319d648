"""The process that reads a channel: its question comes by standard input (see limited.py)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from rattler import LockChannel, LockFile, LockPlatform, RepoDataRecord

from envbuild.conda import choose
from envbuild.conda.growing_limits import set_limits, start_limits
from envbuild.conda.limited import ChannelAnswer, ChannelFailure, ChannelQuestion
from envbuild.conda.model import PixiQuestion
from envbuild.context import Context, open_context
from envbuild.errors import EnvbuildError
from envbuild.net.channels import channel_urls
from envbuild.net.redact import without_token
from envbuild.progress import Silent
from envbuild.records import replace
from envbuild.run import LocalRunner
from envbuild.settings import load_settings


class KeptNotes(Silent):
    """A reporter that keeps its messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, text: str) -> None:
        """Keep one line."""
        self.messages.append(text)


def answer_question() -> None:
    """Read a question from standard input and write what came of it: the whole program."""
    set_limits(0)
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=ChannelQuestion)
    notes = KeptNotes()
    context = open_context(load_settings(), LocalRunner(), notes)
    try:
        start_limits(context.store.folder("repodata"), _local_channels(question, context))
        answer = _find_answer(question, context)
    except EnvbuildError as error:
        failure = ChannelFailure(
            kind=type(error).__name__, what=error.what, where=error.where, hint=error.hint
        )
        answer = ChannelAnswer(failure=failure)
    answer = replace(answer, messages=tuple(notes.messages))
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    # now: rattler's threads may end the process in Python's own clean-up
    sys.stdout.buffer.flush()


def _find_answer(question: ChannelQuestion, context: Context) -> ChannelAnswer:
    request = question.request
    if question.names is not None:
        newest = choose.newest_versions(request, question.names, context)
        return ChannelAnswer(versions=dict(newest))
    if question.sums is None:
        return ChannelAnswer(solution=choose.choose_conda(request, context))
    solver, records = choose.locked_records(request, question.sums, context)
    if question.pixi is None:
        return ChannelAnswer(found=tuple(solver.found(record) for record in records))
    with context.store.work("pixi") as work:
        return ChannelAnswer(text=pixi_text(question.pixi, records, work))


def _local_channels(question: ChannelQuestion, context: Context) -> list[Path]:
    """Return the channels that are folders of this machine."""
    named = [channel_urls(context.settings, name) for name in question.request.channels]
    parts = [urlsplit(url) for url in chain.from_iterable(named)]
    return [Path(unquote(part.path)) for part in parts if part.scheme == "file"]


def pixi_text(question: PixiQuestion, records: Sequence[RepoDataRecord], work: Path) -> str:
    """Return the pixi.lock of one environment; ``work`` is a folder for rattler to write it in."""
    for record in records:
        record.url, record.channel = without_token(record.url), without_token(record.channel)
    node = LockPlatform(question.platform, virtual_packages=list(question.virtual))
    lock = LockFile([node])
    lock.set_channels("default", [LockChannel(url) for url in question.channels])
    for record in records:
        lock.add_conda_package("default", node, record)
    for wheel in question.wheels:
        lock.add_pypi_package("default", node, wheel.name, wheel.version, wheel.url)
    lock.to_path(work / "pixi.lock")
    text = (work / "pixi.lock").read_text("utf-8")
    for wheel in question.wheels:
        # py-rattler takes no hash of a wheel; the format and pixi have one
        first = f"\n- pypi: {wheel.url}\n"
        text = text.replace(first, f"{first}  sha256: {wheel.sha256}\n")
    return text
