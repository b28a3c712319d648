"""``envbuild why``: the reasons behind one package of a lock."""

from __future__ import annotations

import click
from packaging.utils import canonicalize_name

from envbuild.app.lock import require_lock, resolve_lock
from envbuild.cli.complete import complete_package, complete_recipe
from envbuild.cli.context import host_builds
from envbuild.cli.output import json_option, print_json
from envbuild.context import Context
from envbuild.errors import EnvbuildError, UsageError
from envbuild.lock.decide.decide import LockOptions, asking_for
from envbuild.lock.dependency_paths import describe_package, locked_package
from envbuild.lock.model import Lock
from envbuild.recipe.find import find_recipe
from envbuild.recipe.model import Source
from envbuild.toml import closest


@click.command("why")
@click.argument("package", shell_complete=complete_package)
@click.argument("name", required=False, shell_complete=complete_recipe)
@click.option("--offline", is_flag=True, help="Only say what the lock itself knows; ask no index.")
@json_option
@host_builds
@click.pass_obj
def command(
    context: Context, *, package: str, name: str | None, offline: bool, as_json: bool
) -> None:
    """Say why PACKAGE is in the lock of the recipe NAME: who wants it, what holds it back, what would change it."""
    source = find_recipe(name, context.settings)
    lock = require_lock(source)
    wanted = canonicalize_name(package)
    lines = describe_package(lock, wanted)
    if not lines:
        known = [*(p.name for p in lock.python), *(p.name for p in lock.provided)]
        raise UsageError(
            f'"{package}" is not in the lock{closest(wanted, known)}', where=str(source.lock)
        )
    outlook = None if offline else _find_outlook(source, lock, wanted, context)
    if as_json:
        print_json({"package": wanted, "reasons": lines, "would-change": outlook})
        return
    for line in lines:
        click.echo(line)
    if outlook is not None:
        click.echo(f"would change: {outlook}")


def _find_outlook(source: Source, lock: Lock, package: str, context: Context) -> str:
    """Say what locking again with a free choice of one package would give; a failure is told, not raised."""
    held = locked_package(lock, package)
    if held is None:
        return "never, while the base holds it and what you ask for allows it"
    if held.group == "framework":
        return "only with another release under [base] framework"
    wish = LockOptions(as_of=lock.as_of or "none", upgrade=(package,), old=lock)
    try:
        other = resolve_lock(asking_for(source, package), wish, context)
    except EnvbuildError as error:
        return f"not known: {error}"
    hold = next((row for row in other.held_back if row.name == package), None)
    after = locked_package(other, package)
    as_of = f" as of {lock.as_of}" if lock.as_of else ""
    if after is not None and after.version != held.version:
        return f"to {after.version}, with envbuild lock {source.recipe.name} --upgrade {package}"
    if hold is not None:
        return f"to {hold.newest}, if it were not that {hold.reason}"
    return f"not{as_of}: it is the newest that there is for this base" + (
        "; with a later as-of under [python] perhaps" if lock.as_of else ""
    )
