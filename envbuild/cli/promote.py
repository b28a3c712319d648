"""``envbuild promote``: from the development layer into recipe, lock and image."""

from __future__ import annotations

import click

from envbuild.app.dev.add import RecipeChange, promote_layer
from envbuild.cli.add import print_change
from envbuild.cli.complete import complete_image
from envbuild.cli.options import flag
from envbuild.context import Context
from envbuild.recipe.find import find_recipe


@click.command("promote")
@click.argument("name", required=False, shell_complete=complete_image)
@flag("--no-make", "Change recipe and lock only; the layer stays.")
@flag("--json as_json", "Print what was changed as JSON.")
@click.pass_obj
def command(context: Context, *, name: str | None, no_make: bool, as_json: bool) -> None:
    """Write the development layer into recipe and lock, make the image, remove the layer.

    The image has the same bytes as one that never had the layer.
    """
    name = name or find_recipe(None, context.settings).recipe.name
    result = promote_layer(name, RecipeChange(make=not no_make), context)
    print_change(result, as_json=as_json)
