"""``envbuild why``: the reasons behind one package of a lock."""

from __future__ import annotations

import click
from packaging.utils import canonicalize_name

from envbuild.app.query.why import find_outlook
from envbuild.app.ready_lock import require_lock
from envbuild.cli.complete import complete_package
from envbuild.cli.context import host_builds
from envbuild.cli.options import flag, recipe_argument
from envbuild.cli.output import json_option, print_json, print_text
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.lock.dependency_paths import conda_package, describe_package
from envbuild.recipe.find import find_recipe, recipe_files
from envbuild.toml import closest


@click.command("why")
@click.argument("package", shell_complete=complete_package)
@recipe_argument
@flag("--offline", "Use only the lock; do not ask the index.")
@json_option
@host_builds
@click.pass_obj
def command(
    context: Context, *, package: str, name: str | None, offline: bool, as_json: bool
) -> None:
    """Show why PACKAGE is in the lock of NAME: what requires it, what keeps its version, what would change it."""
    recipes = recipe_files(context.settings)
    if name and name not in recipes and package in recipes:  # the recipe first, as with other verbs
        package, name = name, package
    source = find_recipe(name, context.settings)
    lock = require_lock(source)
    wanted: str = canonicalize_name(package)
    if conda_package(lock, package.lower()) is not None:
        wanted = package.lower()  # conda keeps "_" and "." apart
    lines = describe_package(lock, wanted)
    if not lines:
        known = [p.name for p in lock.python] + [p.name for p in lock.conda]
        known += [p.name for p in lock.provided]
        what = f'"{package}" is not in the lock{closest(wanted, known)}'
        raise UsageError(what, where=source.lock)
    if not as_json:
        # the lock alone gives these; what would change it may take minutes
        for line in lines:
            print_text(line)
    outlook = None if offline else find_outlook(source, lock, wanted, context)
    if as_json:
        print_json({"package": wanted, "reasons": lines, "would-change": outlook})
    elif outlook is not None:
        print_text(f"would change: {outlook}")
