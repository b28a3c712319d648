"""What every verb gets: the settings, the door to processes, and where to say things."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from envbuild.cli.show import Lines, Pretty
from envbuild.progress import Reporter
from envbuild.run import LocalRunner, Runner
from envbuild.settings import Settings, load_settings
from envbuild.store.layout import Store


@dataclass(frozen=True, kw_only=True)
class Context:
    """The hands of a verb."""

    settings: Settings
    runner: Runner
    report: Reporter
    verbose: int = 0

    @cached_property
    def store(self) -> Store:
        """The store that the settings name, with those that it looks into."""
        return Store(self.settings.store, self.settings.stores_below)


def make_context(*, verbose: int, quiet: bool, color: str) -> Context:
    """Read the settings and choose how progress looks: a live line on a terminal, plain lines elsewhere."""
    settings = load_settings()
    return Context(settings=settings, runner=LocalRunner(), report=_reporter(verbose, quiet, color), verbose=verbose)


def _reporter(verbose: int, quiet: bool, color: str) -> Reporter:
    import sys

    from envbuild.progress import Silent

    if quiet:
        return Silent()
    on_terminal = sys.stderr.isatty() and color != "never"
    return Pretty(verbose=verbose) if on_terminal or color == "always" else Lines(verbose=verbose)
