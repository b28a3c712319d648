"""``envbuild add``: one package more, in the recipe or in a layer over the image."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.dev_make import LayerContent, LayerResult, add_to_layer, find_place
from envbuild.cli.complete import complete_image
from envbuild.cli.terminal import human_seconds
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.store.units import human_bytes


@click.command("add")
@click.argument("name", shell_complete=complete_image)
@click.argument("packages", metavar="[PKG]…", nargs=-1)
@click.option(
    "--dev", is_flag=True, help="Not into the recipe: into a small layer over the image, to try it."
)
@click.option(
    "-e",
    "editable",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --dev: use a project from its own folder.",
)
@click.option(
    "--over",
    type=click.Path(path_type=Path),
    metavar="IMAGE",
    help="With --dev: an image that lies elsewhere; NAME is a new name for it here.",
)
@click.pass_obj
def command(
    context: Context,
    *,
    name: str,
    packages: tuple[str, ...],
    dev: bool,
    editable: tuple[Path, ...],
    over: Path | None,
) -> None:
    """Add packages to a recipe, its lock and its image; with --dev to a layer over the image.

    \b
    envbuild add --dev keras-bert polars      to try it: seconds, recipe and image stay as they are
    envbuild add --dev keras-bert -e ../lib   your own package, imported from its folder
    """
    if not dev:
        raise UsageError("only --dev is there yet", where="add", hint=f"envbuild add --dev {name}")
    content = LayerContent(packages=packages, editable=editable)
    result = add_to_layer(find_place(name, over, context), content, context)
    _print_layer(name, result)


def _print_layer(name: str, result: LayerResult) -> None:
    record = result.record
    brought = [f"{package.name} {package.version}" for package in record.lock.installed]
    size, seconds = human_bytes(record.size), human_seconds(result.seconds)
    click.echo(f"\n{record.layer}: {size} in {seconds}")
    click.echo(f"  holds    {', '.join(brought) or 'no package'}")
    for one in record.editable:
        click.echo(f"  from     {one.folder}: {one.name}")
    for move in record.lock.moved:
        click.echo(f"  instead  {move.name} {move.after} of {move.before}: {move.reason}")
    click.echo(f"  run      envbuild exec {name} -- python train.py")
    click.echo(f"  keep     envbuild promote {name}")
    click.echo(f"  drop     envbuild dev {name} --clear")
