"""``envbuild list``: recipes, their locks and images, and the last verdict about each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envbuild.cli.context import Context
from envbuild.cli.output import print_table
from envbuild.errors import EnvbuildError

if TYPE_CHECKING:
    from envbuild.recipe.model import Source

COLUMNS = ("recipe", "lock", "image", "last verdict", "summary")


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def command(context: Context, *, as_json: bool) -> None:
    """List the recipes that can be made here, with their locks, images and last verdicts."""
    from envbuild.recipe.find import recipe_files

    rows = [recipe_row(path, context) for path in recipe_files(context.settings).values()]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    if not rows:
        click.echo("no recipes: write recipes/NAME.toml (docs/recipe.md shows how)")
        return
    print_table(COLUMNS, [tuple(row.values()) for row in rows])


def recipe_row(path: Path, context: Context) -> dict[str, Any]:
    """Return what a recipe file is at: its lock, image and last verdict; a broken one says so."""
    from envbuild.recipe.find import find_recipe

    try:
        source = find_recipe(str(path), context.settings)
    except EnvbuildError as error:
        return dict(zip(COLUMNS, (path.stem, "-", "-", "-", f"broken: {error}"), strict=True))
    image = context.settings.cwd / f"{source.recipe.name}.sif"
    lock = _lock_state(source.lock, source.recipe)
    return dict(
        zip(
            COLUMNS,
            (source.recipe.name, lock, _image(image, source), _verdict(image, context), source.recipe.recipe.summary),
            strict=True,
        )
    )


def _lock_state(path: Path, recipe: Any) -> str:
    from envbuild.lock.compare import staleness
    from envbuild.lock.read import read_lock

    if not path.is_file():
        return "none"
    try:
        return "stale" if staleness(recipe, read_lock(path)) else "fits"
    except EnvbuildError:
        return "broken"


def _image(image: Path, source: Source) -> str:
    from envbuild.cli.current import find_old
    from envbuild.store.units import human_bytes

    if not image.is_file():
        return "none"
    state = "old" if find_old(image, source) else "current"
    return f"{human_bytes(image.stat().st_size)}, {state}"


def _verdict(image: Path, context: Context) -> str:
    """Return the last verdict about the image that lies here."""
    from envbuild.base.digests import known_digest
    from envbuild.check.report import last

    if not image.is_file():
        return "-"
    try:
        report = last(known_digest(image, context.store), context.store)
    except EnvbuildError:
        return "no image file"
    return f"{report.verdict} {report.when[:10]}" if report else "not checked"
