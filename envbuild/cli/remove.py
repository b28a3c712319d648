"""``envbuild remove``: packages out of recipe, lock and image."""

from __future__ import annotations

import click

from envbuild.app.dev.add import RecipeChange, change_recipe
from envbuild.cli.add import print_change, recipe_and_packages, require_packages
from envbuild.cli.complete import complete_asked_package, complete_recipe
from envbuild.cli.options import flag
from envbuild.context import Context
from envbuild.names import Texts
from envbuild.recipe.edit import ListSection


@click.command("remove")
@click.argument("name", metavar="NAME|PKG", shell_complete=complete_recipe)
@click.argument("packages", metavar="[PKG]…", nargs=-1, shell_complete=complete_asked_package)
@flag("--conda", "The packages come from the recipe's conda channels.")
@flag("--no-make", "Change recipe and lock only.")
@flag("--json as_json", "Print what was changed as JSON.")
@click.pass_obj
def command(context: Context, /, *, name: str, packages: Texts, **options: bool) -> None:
    """Remove packages from a recipe, its lock and its image, all of them or none."""
    name, packages = recipe_and_packages(name, packages, "remove", context)
    require_packages(name, packages, more=f"\nto remove the image, remove its file: rm {name}.sif")
    section: ListSection = "conda" if options["conda"] else "python"
    change = RecipeChange(section=section, remove=packages, make=not options["no_make"])
    print_change(change_recipe(name, change, context), as_json=options["as_json"])
