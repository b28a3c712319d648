"""``envbuild remove``: packages out of recipe, lock and image."""

from __future__ import annotations

import click

from envbuild.app.dev.add import RecipeChange, change_recipe
from envbuild.cli.add import print_change
from envbuild.cli.complete import complete_recipe
from envbuild.context import Context


@click.command("remove")
@click.argument("name", shell_complete=complete_recipe)
@click.argument("packages", metavar="PKG…", nargs=-1, required=True)
@click.option("--no-make", is_flag=True, help="Change recipe and lock only.")
@click.option("--json", "as_json", is_flag=True, help="Print what was changed as JSON.")
@click.pass_obj
def command(
    context: Context, *, name: str, packages: tuple[str, ...], no_make: bool, as_json: bool
) -> None:
    """Remove packages from a recipe, its lock and its image, all of them or none."""
    change = RecipeChange(remove=packages, make=not no_make)
    print_change(change_recipe(name, change, context), as_json=as_json)
