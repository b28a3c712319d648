"""Pages of HTML from templates."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape


def make_environment(package: str) -> Environment:
    """Return what renders the templates of a package; every value is escaped."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=select_autoescape(("html",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
