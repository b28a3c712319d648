"""``envbuild rebuild``: make an image again from its lock and compare."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.ready_lock import require_whole_lock
from envbuild.app.source import find_named_source
from envbuild.app.spec import build_spec
from envbuild.build.image.embedded import read_embedded_info
from envbuild.build.image.rebuild import Comparison, compare_images, made_again
from envbuild.cli.options import flag, path_option, recipe_argument
from envbuild.cli.output import json_option, print_first, print_json, print_text
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.store.atomic import copy_out, refuse_special
from envbuild.store.hashing import short_digest

SAME = {
    "bytes": "the same bytes",
    "tree": "the same files, but not the same bytes: another packer or other times",
    "nothing": "other files",
}


@click.command("rebuild")
@recipe_argument
@flag("--verify", "Compare it with the existing image; exit code 1 where files differ.")
@path_option("--image", "The image to compare with (default ./NAME.sif).")
@path_option("-o --output", "Keep the new image under this name.")
@json_option
@click.pass_obj
def command(
    context: Context,
    *,
    name: str | None,
    verify: bool,
    image: Path | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Make an image again from its lock, with nothing but the locked files.

    The store's Debian roots, layers, built wheels and bytecode are not used again. With --verify it
    says whether the bytes are equal, or only the files, or which file of which layer differs.
    """
    if not verify and output is None:
        raise UsageError(
            "nothing would be left of what it makes",
            hint="add --verify to compare, or -o FILE to keep it",
        )
    if output is not None:
        refuse_special(context.settings.cwd / output)
    source = find_named_source(name, context)
    lock = require_whole_lock(source, context)
    first = context.settings.cwd / (image or f"{source.recipe.name}.sif")
    if not first.is_file():
        raise UsageError(
            "there is no such image", where=first, hint=f"envbuild make {source.recipe.name}"
        )
    carried = read_embedded_info(first)
    order = build_spec(
        source, lock, first, carried.note.mode if carried.note else "fakeroot", context
    )
    with made_again(order, context) as (second, clean):
        if output is not None:
            copy_out(second, context.settings.cwd / output, mode=0o755)
        if not verify:
            return 0
        found = compare_images(first, order, second, clean)
    if as_json:
        print_json(found)
    else:
        _print_comparison(found)
    return 1 if found.same == "nothing" else 0


def _print_comparison(found: Comparison) -> None:
    print_text(f"{found.name}: made again from lock {short_digest(found.lock)}: {SAME[found.same]}")
    print_text(f"  before  {found.before}")
    print_text(f"  again   {found.after}")
    print_first([f"{layer:<9}  /{path}: {what}" for layer, path, what in found.differs])
