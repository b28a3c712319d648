"""``envbuild bundle``: everything that an image is made of, in one file."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.bundle import bundle_recipe
from envbuild.cli.options import flag, path_option, recipe_argument
from envbuild.cli.output import json_option, print_result
from envbuild.context import Context
from envbuild.store.units import human_bytes


@click.command("bundle")
@recipe_argument
@path_option("-o --output", "The file (default: ./NAME.bundle.tar).")
@flag("--no-tool", "Leave envbuild itself out of the file.")
@json_option
@click.pass_obj
def command(
    context: Context, *, name: str | None, output: Path | None, no_tool: bool, as_json: bool
) -> None:
    """Write a recipe with base, packages, lock, definition and envbuild itself into one file.

    On a machine without a network, envbuild make --from-bundle FILE makes the same image. Without
    envbuild: unpack the file (tar -xf) and run build.sh, which needs Apptainer only. The file has
    envbuild's own wheels for every Python that it runs on.
    """
    source, target, size = bundle_recipe(name, output, context, with_tool=not no_tool)
    written = {"bundle": str(target), "size": size, "lock": str(source.lock)}
    command = f"envbuild make --from-bundle {target.name}"
    text = f"{target.name}: {human_bytes(size)}; where there is no network: {command}"
    print_result(written, text, as_json=as_json)
