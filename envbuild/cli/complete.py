"""What the shell completes: names of recipes, images, sites, shelves and locked packages.

Each function is called by click with what was typed so far.  A broken settings file or recipe
completes to nothing: an error message would destroy the line that the user types.  Each function
imports what it reads when it is called, because a key press should be answered at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

from envbuild.errors import EnvbuildError
from envbuild.settings import Settings, load_settings

PLAIN = re.compile(r"[\w.@+:,/=-]+")
"""Names without what a shell acts on: it takes a completion as if it had been typed."""
Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _make_completer(names: Callable[[Settings, click.Context], Iterable[str]]) -> Completer:
    """Turn a function that lists all names into one that completes what was typed."""

    def complete(ctx: click.Context, _: click.Parameter, typed: str) -> list[str]:
        try:
            found = sorted(name for name in names(load_settings(), ctx) if PLAIN.fullmatch(name))
            return [name for name in found if name.startswith(typed)]
        except (EnvbuildError, OSError):
            return []

    return complete


def _recipe_names(settings: Settings, _: click.Context) -> Iterable[str]:
    from envbuild.recipe.find import recipe_files  # late: only for recipes

    return recipe_files(settings)


def _image_names(settings: Settings, ctx: click.Context) -> Iterable[str]:
    files = (path.name for path in settings.cwd.glob("*.sif"))
    return {*_recipe_names(settings, ctx), *files}


def _site_names(settings: Settings, _: click.Context) -> Iterable[str]:
    from envbuild.job.sites.find import site_files  # late: only for sites

    return site_files(settings)


def _shelf_names(settings: Settings, _: click.Context) -> Iterable[str]:
    from envbuild.shelf.config import read_shelves  # late: only for shelves

    return read_shelves(settings)


def _package_names(settings: Settings, ctx: click.Context) -> Iterable[str]:
    from envbuild.lock.read import read_lock  # late: only for packages
    from envbuild.recipe.find import find_recipe  # late: only for packages

    lock = read_lock(find_recipe(ctx.params.get("name"), settings).lock)
    locked = {package.name for package in lock.python} | {package.name for package in lock.conda}
    return locked | {package.name for package in lock.provided}


def _asked_names(settings: Settings, ctx: click.Context) -> Iterable[str]:
    """List what the recipe itself asks for: only that can be removed."""
    from envbuild.recipe.find import find_recipe  # late: only for packages

    recipe = find_recipe(ctx.params.get("name"), settings).recipe
    section = recipe.conda if ctx.params.get("conda") else recipe.python
    starts = (
        re.match(r"(?:[\w.-]+::)?([A-Za-z0-9][\w.-]*)", line) for line in section.dependencies
    )
    return {start[1] for start in starts if start}


def _job_ids(settings: Settings, _: click.Context) -> Iterable[str]:
    from envbuild.job.track.records import load_records, plain_id  # late: only for jobs

    return (plain_id(record.id) for record in load_records(settings.cwd))


complete_recipe = _make_completer(_recipe_names)
_complete_image_name = _make_completer(_image_names)
complete_site = _make_completer(_site_names)
complete_shelf = _make_completer(_shelf_names)
complete_package = _make_completer(_package_names)
complete_asked_package = _make_completer(_asked_names)
complete_job = _make_completer(_job_ids)


def complete_image(
    ctx: click.Context, param: click.Parameter, typed: str
) -> list[str] | list[CompletionItem]:
    """Complete the name of a recipe or image; a path is completed as the shell completes files."""
    if "/" in typed:
        return [CompletionItem(typed, type="file")]
    return _complete_image_name(ctx, param, typed)
