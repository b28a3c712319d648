"""``envbuild verify``: compare an image with its lock, file by file."""

from __future__ import annotations

import click

from envbuild.app.image import find_image, refuse_old_image
from envbuild.app.verify import find_lock_of_image
from envbuild.build.image.verify import Verification, verify_image
from envbuild.cli.complete import complete_image
from envbuild.cli.output import json_option, print_first, print_json, print_text
from envbuild.cli.terminal import short_path
from envbuild.context import Context

HOLDS = {
    "bytes": "the very bytes that the lock and its packer give",
    "tree": "the same files as the lock gives; the same bytes are not proved",
    "differs": "not what the lock gives",
}


@click.command("verify")
@click.argument("image", metavar="NAME|IMAGE", shell_complete=complete_image)
@json_option
@click.pass_obj
def command(context: Context, *, image: str, as_json: bool) -> int:
    """Compare an image with its lock, file by file; say what is missing, changed or extra.

    NAME is compared with the recipe's lock: exit code 4 where the image is of another one. IMAGE, a
    path, is compared with the lock inside it. Files that the store lacks are downloaded and
    packed first. Exit code 1 when they differ.
    """
    found_image = find_image(image, context)
    path = found_image.path
    way_out = f"to compare it with the lock inside it: envbuild verify ./{path.name}"
    refuse_old_image(found_image, way_out)
    lock, order = find_lock_of_image(path, image, context)
    found = verify_image(path, lock, order, context)
    if as_json:
        print_json(found)
    else:
        _print_verification(found)
    return 1 if found.holds == "differs" else 0


def _print_verification(found: Verification) -> None:
    print_text(f"{short_path(found.image)}: {HOLDS[found.holds]}")
    print_text(f"  compared  {found.compared}")
    print_text(f"  lock      {found.lock}")
    print_text(f"  tree      {found.tree}")
    if found.why:
        print_text(f"  bytes     {found.why}")
    rows = [("missing", f"/{path}") for path in found.missing]
    rows += [("changed", f"/{path}: {what}") for path, what in found.changed]
    rows += [("extra", f"/{path}") for path in found.extra]
    rows += [("outside", text) for text in found.outside]
    print_first([f"{what:<8}  {text}" for what, text in rows])
