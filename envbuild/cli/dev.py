"""``envbuild dev``: the development layer of an image, shown or removed."""

from __future__ import annotations

import click

from envbuild.app.dev.layer import clear_layer, read_record, record_path, require_name
from envbuild.cli.complete import complete_image
from envbuild.cli.options import flag
from envbuild.cli.output import print_json, print_result, print_text
from envbuild.context import Context
from envbuild.recipe.find import find_recipe
from envbuild.store.hashing import short_digest
from envbuild.store.units import human_bytes


@click.command("dev")
@click.argument("name", required=False, shell_complete=complete_image)
@flag("--clear", "Remove the layer; the image stays as it is.")
@flag("--json as_json", "Print the layer as JSON.")
@click.pass_obj
def command(context: Context, *, name: str | None, clear: bool, as_json: bool) -> None:
    """Show what the development layer of an image holds, or remove it.

    With the recipe's name, exec, shell, run, submit and check use the image and the layer. With the
    image's path (./NAME.sif), they use the image alone.
    """
    folder = context.settings.cwd
    name = name or find_recipe(None, context.settings).recipe.name
    require_name(name)
    if clear:
        removed = clear_layer(folder, name, context.store)
        words = ", ".join(path.name for path in removed)
        text = f"removed: {words}" if words else f"{name} has no development layer"
        print_result({"removed": [str(path) for path in removed]}, text, as_json=as_json)
        return
    record = read_record(record_path(folder, name))
    if as_json:
        print_json(record)
        return
    if record is None:
        print_text(f"{name} has no development layer: envbuild add --dev {name} PKG")
        return
    print_text(f"{record.layer}: {human_bytes(record.size)}, over {short_digest(record.image)}")
    for line in record.packages:
        print_text(f"  asked for  {line}")
    for package in record.lock.installed:
        print_text(f"  holds      {package.name} {package.version}")
    for one in record.editable:
        print_text(f"  from       {one.folder}: {one.name}")
