"""Options of the verbs that write wrappers of an image: ``module`` and ``kernel``."""

from __future__ import annotations

from envbuild.app.wrap.wrapper import WrapperOptions
from envbuild.cli.options import BIND_OPTION, gather_options, value_option, values_option

_OPTIONS = (
    value_option(
        "--for site", "SITE", "Take the container runtime, its modules and the folders of a site."
    ),
    BIND_OPTION,
    values_option(
        "--env variables",
        "KEY[=VALUE]",
        "Set a variable inside, or hand in the caller's; KEY may end with *.",
    ),
    values_option("--with packages", "PKG", "Add a package, in a file beside the image."),
)
wrapper_options = gather_options(WrapperOptions, "wrapper", _OPTIONS)
"""Gives a verb these options, as one ``wrapper``."""
