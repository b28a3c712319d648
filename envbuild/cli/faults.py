"""What an error of the command line tells: the verb, the recipe, the sites that are meant."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from envbuild.app.site import no_site_error
from envbuild.errors import EnvbuildError, UsageError
from envbuild.recipe.find import RECIPES, recipe_files
from envbuild.settings import load_settings


def explain_usage(error: Exception, arguments: Sequence[str]) -> EnvbuildError | None:
    """Return what is told of an option without its value, which click raises without its verb."""
    if not isinstance(error, click.BadOptionUsage) or error.ctx is not None:
        return None
    if error.option_name == "--on":
        return no_site_error(load_settings())
    verb = next((word for word in arguments if not word.startswith("-")), "")
    return UsageError(f"{error.option_name} needs a value", hint=f"envbuild {verb} --help")


def recipe_named(arguments: Sequence[str]) -> str:
    """Return the recipe of a command line, or the only one in ./recipes; "NAME" without any."""
    try:
        settings = load_settings()
        known = recipe_files(settings)
    except EnvbuildError:
        return "NAME"
    named = [argument for argument in arguments[1:] if argument in known]
    own = [path.stem for path in (settings.cwd / RECIPES).glob("*.toml")]
    if not named and len(own) == 1:
        named = own
    return shlex.quote(named[0]) if named else "NAME"
