"""Options of the verbs that write wrappers of an image: ``module`` and ``kernel``."""

from __future__ import annotations

import click

from envbuild.app.wrap.wrapper import WrapperOptions
from envbuild.cli.options import BIND_OPTION, gather_options

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
wrapper_options = gather_options(WrapperOptions, "wrapper", _OPTIONS)
"""Gives a verb these options, as one ``wrapper``."""
