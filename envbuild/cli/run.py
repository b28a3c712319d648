"""``envbuild run``: the recipe's own command, or another one, inside the image."""

from __future__ import annotations

from collections.abc import Sequence

import click

from envbuild.app.image import is_image_path
from envbuild.cli.complete import complete_image
from envbuild.cli.exec_ import enter_image
from envbuild.cli.options import CommandAfterDashes, EntryOptions, entry_options
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.recipe.find import find_recipe


@click.command("run", cls=CommandAfterDashes)
@click.argument("image", metavar="[NAME|IMAGE]", shell_complete=complete_image, required=False)
@click.argument("argv", metavar="[-- CMD…]", nargs=-1, type=click.UNPROCESSED)
@entry_options
@click.pass_obj
def command(
    context: Context, *, image: str | None, argv: Sequence[str], entry: EntryOptions
) -> None:
    """Run the recipe's [run] command inside the image, or the command after --."""
    argv = argv or _recipe_command(image, context)
    enter_image(context, image, argv, entry)


def _recipe_command(name: str | None, context: Context) -> Texts:
    if name is not None and is_image_path(name):
        what = "an image has no [run] command of its own"
        raise UsageError(what, where=name, hint="name the command: -- CMD …")
    source = find_recipe(name, context.settings)
    command = source.recipe.run.command
    if not command:
        what, hint = "the recipe has no [run] command", "add one, or name it here: -- CMD …"
        raise UsageError(what, where=source.path, hint=hint)
    return command
