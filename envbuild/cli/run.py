"""``envbuild run``: the recipe's own command, or another one, inside the image."""

from __future__ import annotations

from collections.abc import Sequence

import click

from envbuild.app.image import find_recipe_of_image
from envbuild.cli.complete import complete_image
from envbuild.cli.exec_ import enter_image
from envbuild.cli.options import CommandAfterDashes, EntryOptions, entry_options
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.names import Texts

RUNSCRIPT = "/.singularity.d/runscript"


@click.command("run", cls=CommandAfterDashes)
@click.argument("image", metavar="[NAME|IMAGE]", shell_complete=complete_image, required=False)
@click.argument("argv", metavar="[-- CMD…]", nargs=-1, type=click.UNPROCESSED)
@entry_options
@click.pass_obj
def command(
    context: Context, *, image: str | None, argv: Sequence[str], entry: EntryOptions
) -> None:
    """Run the recipe's [run] command inside the image, or the command after --.

    An image without a recipe here runs the command that it was made with.
    """
    argv = argv or _own_command(image, context)
    enter_image(context, image, argv, entry)


def _own_command(name: str | None, context: Context) -> Texts:
    """Return the command of the recipe; of an image without a recipe here, its own."""
    source = find_recipe_of_image(name, context)
    if source is None:
        return (RUNSCRIPT,)
    command = source.recipe.run.command
    if not command:
        what, hint = "the recipe has no [run] command", "add one, or name it here: -- CMD …"
        raise UsageError(what, where=source.path, hint=hint)
    return command
