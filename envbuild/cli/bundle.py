"""``envbuild bundle``: everything that an image is made of, in one file."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.cli.complete import complete_recipe
from envbuild.cli.output import json_option, print_json
from envbuild.context import Context
from envbuild.errors import UsageError


@click.command("bundle")
@click.argument("name", required=False, shell_complete=complete_recipe)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file (default ./NAME.bundle.tar)."
)
@click.option("--no-tool", is_flag=True, help="Leave out envbuild itself.")
@json_option
@click.pass_obj
def command(
    context: Context, *, name: str | None, output: Path | None, no_tool: bool, as_json: bool
) -> None:
    """Write a recipe with base, packages, lock, definition and envbuild itself into one file.

    On a machine without a network: envbuild make --from-bundle FILE gives the same image, and the file unpacked
    (tar -xf) builds with Apptainer alone, by build.sh. envbuild's own wheels are for every Python that it runs on.
    """
    from envbuild.app.lock import require_whole_lock
    from envbuild.app.order import order_of
    from envbuild.app.shelf import source_named
    from envbuild.bundle.own import own_wheels
    from envbuild.bundle.pack import write_bundle
    from envbuild.store.units import human_bytes

    source = source_named(name, context)
    lock = require_whole_lock(source, context)
    target = context.settings.cwd / (output or f"{source.recipe.name}.bundle.tar")
    if not target.parent.is_dir():
        raise UsageError("there is no such folder", where=str(target.parent))
    order = order_of(source, lock, target, "fakeroot")
    with context.store.work("own") as folder:
        own = (
            None
            if no_tool
            else own_wheels(folder, context.settings, context.store, context.runner, context.report)
        )
        size = write_bundle(source, order, context, own, target)
    if as_json:
        print_json({"bundle": str(target), "size": size, "lock": str(source.lock)})
        return
    click.echo(
        f"{target.name}: {human_bytes(size)}; where there is no network: envbuild make --from-bundle {target.name}"
    )
