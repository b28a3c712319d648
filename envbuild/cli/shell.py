"""``envbuild shell``: a shell inside the image."""

from __future__ import annotations

import click

from envbuild.cli.complete import complete_image
from envbuild.cli.exec_ import enter_image
from envbuild.cli.options import entry_options
from envbuild.context import Context


@click.command("shell")
@click.argument("image", metavar="[NAME|IMAGE]", shell_complete=complete_image, required=False)
@entry_options
@click.pass_obj
def command(
    context: Context,
    *,
    image: str | None,
    binds: tuple[str, ...],
    variables: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Open a shell inside the image, in the current folder."""
    enter_image(context, image, (), binds, variables, dry_run=dry_run)
