"""The context of a command line: the user's settings, real processes, and a reporter for this terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from envbuild.cli.terminal import Lines, Pretty
from envbuild.context import Context, open_context
from envbuild.progress import Reporter, Silent
from envbuild.records import replace
from envbuild.run import LocalRunner
from envbuild.settings import load_settings

F = TypeVar("F", bound=Callable[..., Any])


def make_context(*, verbose: int, quiet: bool, color: str) -> Context:
    """Read the settings and choose how progress looks: a live line on a terminal, else plain lines."""
    return open_context(load_settings(), LocalRunner(), _make_reporter(verbose, quiet, color))


def _make_reporter(verbose: int, quiet: bool, color: str) -> Reporter:
    if quiet:
        return Silent()
    on_terminal = sys.stderr.isatty() and color != "never"
    return Pretty(verbose=verbose) if on_terminal or color == "always" else Lines(verbose=verbose)


def _allow_host_builds(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.obj = replace(ctx.obj, settings=replace(ctx.obj.settings, host_builds=True))


def host_builds(command: F) -> F:
    """Give a command ``--allow-host-builds``, which changes the settings that it gets."""
    option = click.option(
        "--allow-host-builds",
        is_flag=True,
        expose_value=False,
        callback=_allow_host_builds,
        help="Let source archives run code on this machine, which tells what they require.",
    )
    return option(command)
