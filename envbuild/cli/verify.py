"""``envbuild verify``: compare an image with its lock, file by file."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.image import find_image, refuse_old_image
from envbuild.app.spec import build_spec
from envbuild.build.image.verify import Verification, read_embedded_info, verify_image
from envbuild.build.model import BuildSpec
from envbuild.cli.complete import complete_image
from envbuild.cli.output import json_option, print_json
from envbuild.context import Context
from envbuild.errors import EnvbuildError, UsageError
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.recipe.find import find_recipe

SHOWN = 20
HOLDS = {
    "bytes": "the very bytes that the lock and its packer give",
    "tree": "the same files as the lock gives, not the same bytes",
    "differs": "not what the lock gives",
}


@click.command("verify")
@click.argument("image", metavar="NAME|IMAGE", shell_complete=complete_image)
@json_option
@click.pass_obj
def command(context: Context, *, image: str, as_json: bool) -> int:
    """Compare an image with its lock, file by file; say what is missing, changed or extra.

    NAME is compared with the recipe's lock: exit code 4 where the image is of another one. IMAGE, a
    path, is compared with the lock inside it. What the store lacks of it is downloaded and packed
    first. Exit code 1 when they differ.
    """
    found_image = find_image(image, context)
    path = found_image.path
    way_out = f"to compare it with the lock inside it: envbuild verify ./{path.name}"
    refuse_old_image(found_image, way_out)
    lock, order = _lock_of(path, image, context)
    found = verify_image(path, lock, order, context)
    if as_json:
        print_json(found)
    else:
        _print_verification(found)
    return 1 if found.holds == "differs" else 0


def _lock_of(path: Path, image: str, context: Context) -> tuple[Lock, BuildSpec | None]:
    """Return the lock to compare with and, where its recipe is at hand, the order that makes the image."""
    carried = read_embedded_info(path)
    name = carried.note.recipe if carried.note else Path(image).stem
    try:
        source = find_recipe(name, context.settings)
        lock = read_lock(source.lock)
    except EnvbuildError as error:
        if carried.lock is None:
            raise UsageError(
                "carries no lock, and there is no recipe of its name",
                where=str(path),
                hint=error.hint,
            ) from error
        return carried.lock, None
    if carried.lock is not None and lock_digest(lock) != lock_digest(carried.lock):
        context.report.say(
            f"{source.lock} is another lock; comparing with the one inside the image"
        )
        return carried.lock, None
    mode = carried.note.mode if carried.note else "fakeroot"
    return lock, build_spec(source, lock, path, mode)


def _print_verification(found: Verification) -> None:
    click.echo(f"{found.image}: {HOLDS[found.holds]}")
    click.echo(f"  compared  {found.compared}")
    click.echo(f"  lock      {found.lock}")
    click.echo(f"  tree      {found.tree}")
    if found.why:
        click.echo(f"  bytes     {found.why}")
    rows = [("missing", f"/{path}") for path in found.missing]
    rows += [("changed", f"/{path}: {what}") for path, what in found.changed]
    rows += [("extra", f"/{path}") for path in found.extra]
    rows += [("outside", text) for text in found.outside]
    for what, text in rows[:SHOWN]:
        click.echo(f"  {what:<8}  {text}")
    if len(rows) > SHOWN:
        click.echo(f"  and {len(rows) - SHOWN} more (--json has all)")
