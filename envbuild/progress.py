"""What a stage may tell the person who waits; the command line decides how it looks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol


class Stage(Protocol):
    """One running stage."""

    def expect(self, count: int) -> None:
        """Add to the stage's total."""

    def advance(self, count: int = 1) -> None:
        """Count what is done of the stage's total."""


class Transfer(Protocol):
    """One running download of known size."""

    def advance(self, count: int) -> None:
        """Count bytes that arrived (negative: bytes that have to be fetched again)."""


class Reporter(Protocol):
    """Where stages say what they do; every method may be called from any thread."""

    def say(self, text: str) -> None:
        """Show one line."""

    def detail(self, text: str) -> None:
        """Show one line only to those who asked for more (-v)."""

    def stage(
        self, title: str, *, total: int | None = None, unit: str = ""
    ) -> AbstractContextManager[Stage]:
        """Show that a stage runs, how much of it is done and, at its end, how long it took.

        ``total`` is what there is to count, and becomes a percentage.  Where nobody knows it,
        ``unit`` names what is counted: "page".
        """

    def transfer(self, title: str, *, files: int, size: int) -> AbstractContextManager[Transfer]:
        """Show a download of ``files`` files and ``size`` bytes with its rate."""


class SilentStage:
    """A stage or download that shows nothing."""

    def expect(self, count: int) -> None:
        """Show nothing."""

    def advance(self, count: int = 1) -> None:
        """Show nothing."""


class Silent:
    """A reporter that shows nothing: for libraries, ``--quiet`` and tests."""

    def say(self, text: str) -> None:
        """Show nothing."""

    def detail(self, text: str) -> None:
        """Show nothing."""

    @contextlib.contextmanager
    def stage(
        self,
        title: str,  # noqa: ARG002
        *,
        total: int | None = None,  # noqa: ARG002
        unit: str = "",  # noqa: ARG002
    ) -> Iterator[Stage]:
        """Show nothing."""
        yield SilentStage()

    @contextlib.contextmanager
    def transfer(self, title: str, *, files: int, size: int) -> Iterator[Transfer]:  # noqa: ARG002
        """Show nothing."""
        yield SilentStage()
