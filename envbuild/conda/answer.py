"""The process that reads a channel: its question comes by standard input (see limited.py)."""

from __future__ import annotations

import resource
import sys

import msgspec

from envbuild import limits
from envbuild.conda import choose
from envbuild.conda.limited import ChannelAnswer, ChannelFailure, ChannelQuestion
from envbuild.context import open_context
from envbuild.errors import EnvbuildError
from envbuild.progress import Silent
from envbuild.run import LocalRunner
from envbuild.settings import load_settings


class KeptNotes(Silent):
    """A reporter that keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        """Keep one line."""
        self.said.append(text)


def answer_question() -> None:
    """Read a question from standard input and write what came of it: the whole program."""
    resource.setrlimit(resource.RLIMIT_DATA, (limits.CHANNEL_MEMORY, limits.CHANNEL_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.CHANNEL_FILE, limits.CHANNEL_FILE))
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=ChannelQuestion)
    notes = KeptNotes()
    context = open_context(load_settings(), LocalRunner(), notes)
    solution, versions, failure = None, None, None
    try:
        if question.names is None:
            solution = choose.choose_conda(question.request, context)
        else:
            versions = dict(choose.newest_versions(question.request, question.names, context))
    except EnvbuildError as error:
        failure = ChannelFailure(
            kind=type(error).__name__, what=error.what, where=error.where, hint=error.hint
        )
    answer = ChannelAnswer(
        said=tuple(notes.said), solution=solution, versions=versions, failure=failure
    )
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    # now: rattler's threads may end the process in Python's own clean-up
    sys.stdout.buffer.flush()
