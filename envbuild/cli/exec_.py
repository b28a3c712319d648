"""``envbuild exec``: a command inside the image, sealed, with the project folder bound."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from envbuild.app.enter import plan_entry
from envbuild.app.image import find_image, warn_of_old_image
from envbuild.cli.complete import complete_image
from envbuild.cli.options import CommandAfterDashes, EntryOptions, entry_options
from envbuild.cli.output import print_text
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.run import hand_over


@click.command("exec", cls=CommandAfterDashes)
@click.argument("image", metavar="[NAME|IMAGE]", shell_complete=complete_image)
@click.argument("argv", metavar="-- CMD…", nargs=-1, required=True, type=click.UNPROCESSED)
@entry_options
@click.pass_obj
def command(context: Context, *, image: str, argv: Sequence[str], entry: EntryOptions) -> None:
    """Run a command inside the image.

    The command sees the current folder (at the same path, writable), the folders of --bind, the
    GPUs and the network; of this machine nothing else. Its HOME is a new folder, which is removed at
    the end. Downloads of models and data sets and compiled code are kept (docs/howto-data.md). The
    exit code is the command's; 125 when envbuild itself failed.
    """
    enter_image(context, image, argv, entry)


def enter_image(
    context: Context, name: str | None, argv: Sequence[str], entry: EntryOptions
) -> None:
    """Replace this process by the runtime; an empty ``argv`` opens a shell."""
    found = find_image(name, context)
    warn_of_old_image(found, context)
    if entry.packages:
        # the image with packages for this run alone
        if entry.dry_run:
            hint = "leave one of them out"
            raise UsageError(
                "--with makes a layer, which a dry run does not", where="--with", hint=hint
            )
        from envbuild.app.dev.make import with_packages  # late: most runs resolve nothing

        found = with_packages(found, entry.packages, context)
    command = plan_entry(
        found, argv, context, binds=entry.binds, variables=entry.variables, dry_run=entry.dry_run
    )
    child = dict(command.env or {})
    if not entry.dry_run:
        hand_over(command.argv, child)
    own = context.runtime.environment
    added = [f"{key}={value}" for key, value in child.items() if own.get(key) != value]
    print_text(shlex.join(("env", *added, *command.argv)))
