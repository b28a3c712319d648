"""What every verb gets: the settings, the door to processes, and where to say things."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import click

from envbuild.cli.show import Lines, Pretty
from envbuild.progress import Reporter
from envbuild.run import LocalRunner, Runner
from envbuild.settings import Settings, load_settings
from envbuild.store.layout import Store

F = TypeVar("F", bound=Callable[..., Any])


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
    return Context(
        settings=settings,
        runner=LocalRunner(),
        report=_reporter(verbose, quiet, color),
        verbose=verbose,
    )


def _reporter(verbose: int, quiet: bool, color: str) -> Reporter:
    import sys

    from envbuild.progress import Silent

    if quiet:
        return Silent()
    on_terminal = sys.stderr.isatty() and color != "never"
    return Pretty(verbose=verbose) if on_terminal or color == "always" else Lines(verbose=verbose)


def _allow(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.obj = replace(ctx.obj, settings=replace(ctx.obj.settings, host_builds=True))


def host_builds(command: F) -> F:
    """Give a command ``--allow-host-builds``, which changes the settings that it gets."""
    option = click.option(
        "--allow-host-builds",
        is_flag=True,
        expose_value=False,
        callback=_allow,
        help="Let the builds of source archives run on this machine, to know what they require.",
    )
    return option(command)
