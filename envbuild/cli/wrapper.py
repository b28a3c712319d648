"""Options of the verbs that write wrappers of an image: ``module`` and ``kernel``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from envbuild.app.wrap.wrapper import WrapperOptions
from envbuild.cli.options import BIND_OPTION

_OPTIONS = (
    click.option(
        "--for",
        "site",
        metavar="SITE",
        help="Take the container runtime, its modules and the folders of a site.",
    ),
    BIND_OPTION,
    click.option(
        "--env",
        "variables",
        multiple=True,
        metavar="KEY[=VALUE]",
        help="Set a variable inside, or hand in the caller's; KEY may end with *.",
    ),
    click.option(
        "--with",
        "packages",
        multiple=True,
        metavar="PKG",
        help="Lay a package over the image, in a file of its own.",
    ),
)


def wrapper_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb these options, as one ``wrapper``."""

    @functools.wraps(function)
    def with_options(*arguments: Any, **given: Any) -> Any:
        names = WrapperOptions.__dataclass_fields__
        options = WrapperOptions(**{name: given.pop(name) for name in names})
        return function(*arguments, wrapper=options, **given)

    wrapped: Callable[..., Any] = with_options
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
