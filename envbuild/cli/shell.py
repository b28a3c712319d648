"""``envbuild shell``: a shell inside the image."""

from __future__ import annotations

import click

from envbuild.cli.complete import complete_image
from envbuild.cli.exec_ import enter_image
from envbuild.cli.options import EntryOptions, entry_options
from envbuild.context import Context


@click.command("shell")
@click.argument("image", metavar="[NAME|IMAGE]", shell_complete=complete_image, required=False)
@entry_options
@click.pass_obj
def command(context: Context, *, image: str | None, entry: EntryOptions) -> None:
    """Open a shell inside the image, in the current folder."""
    enter_image(context, image, (), entry)
