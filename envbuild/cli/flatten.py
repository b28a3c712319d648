"""``envbuild flatten``: one partition out of a layered image."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.image import find_image
from envbuild.build.image.flatten import flatten_image
from envbuild.cli.complete import complete_image
from envbuild.cli.options import path_option
from envbuild.cli.output import json_option, print_result
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.store.atomic import publish, refuse_special
from envbuild.store.units import human_bytes


@click.command("flatten")
@click.argument("image", metavar="NAME|IMAGE", shell_complete=complete_image)
@path_option("-o --output", "Write it there (default: in its place).")
@json_option
@click.pass_obj
def command(context: Context, *, image: str, output: Path | None, as_json: bool) -> None:
    """Write a layered image as one partition, from the image alone.

    The files stay the same, and no layer can be lost any more. Signatures are lost: sign the image
    again.
    """
    source = find_image(image, context).path
    if source.is_dir():
        raise UsageError("is a folder; only a layered image is flattened", where=source)
    target = context.settings.cwd / output if output else source
    refuse_special(target)
    stage_of_all = context.report.stage(f"flatten {source.name}")
    with context.store.beside(target) as partial, stage_of_all as stage:
        digest = flatten_image(source, partial, stage)
        publish(partial, target)
    size = target.stat().st_size
    text = f"{target}: {human_bytes(size)}, one partition, tree {digest}"
    print_result({"image": str(target), "size": size, "tree": digest}, text, as_json=as_json)
