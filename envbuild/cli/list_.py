"""``envbuild list``: recipes, their locks and images, and the last verdict about each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import structs

from envbuild.app.dev.layer import read_record, record_path
from envbuild.app.image import FoundImage
from envbuild.base.digests import known_digest
from envbuild.check.reports.report import find_last_report
from envbuild.cli.output import json_option, print_json, print_table, print_text
from envbuild.cli.terminal import short_path
from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.lock.read import read_lock
from envbuild.lock.staleness import stale_reasons
from envbuild.names import Texts
from envbuild.recipe.find import find_recipe, recipe_files
from envbuild.recipe.model import Source
from envbuild.store.layout import DEV_RECORD
from envbuild.store.units import human_bytes

COLUMNS = ("recipe", "lock", "image", "layer", "last verdict", "summary")


class RecipeRow(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a recipe is at.

    ``lock`` is fits, stale, none or broken; ``image`` is current, old, unknown, none or "no image file";
    ``image_size`` is the size of ./NAME.sif; ``layer`` are the packages and projects of its
    development layer, as they were asked for; ``verdict`` and ``checked`` (UTC, ISO 8601) are those
    of its last check.
    """

    recipe: str
    lock: str = "-"
    image: str = "none"
    image_size: int | None = None
    layer: Texts = ()
    verdict: str | None = None
    checked: str | None = None
    summary: str = ""

    @property
    def image_text(self) -> str:
        """Size and state of the image, for people."""
        if self.image_size is None:
            return self.image
        return f"{human_bytes(self.image_size)}, {self.image}"

    @property
    def verdict_text(self) -> str:
        """The last verdict and its day, for people."""
        if self.verdict is not None:
            return f"{self.verdict} {(self.checked or '')[:10]}"
        return "-" if self.image_size is None else "not checked"


@click.command("list")
@json_option
@click.pass_obj
def command(context: Context, *, as_json: bool) -> None:
    """List the recipes that can be made here, with their locks, images and last verdicts."""
    recipes = recipe_files(context.settings)
    rows = [recipe_row(path, context) for path in recipes.values()]
    records = sorted(context.settings.cwd.glob(f"[!.]*{DEV_RECORD}"))
    names = {path.name.removesuffix(DEV_RECORD) for path in records}
    names |= {path.stem for path in context.settings.cwd.glob("[!.]*.sif")}
    rows += [_row_without_recipe(name, context) for name in sorted(names - recipes.keys())]
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_text("no recipes: write recipes/NAME.toml (docs/recipe.md shows how)")
        return
    print_table(COLUMNS, [_cells_of(row) for row in rows])


def _cells_of(row: RecipeRow) -> Texts:
    layer = ", ".join(row.layer) or "-"
    return (row.recipe, row.lock, row.image_text, layer, row.verdict_text, row.summary)


def recipe_row(path: Path, context: Context) -> RecipeRow:
    """Return what a recipe file is at; a broken one says so in its summary."""
    try:
        source = find_recipe(str(path), context.settings)
    except EnvbuildError as error:
        return RecipeRow(recipe=path.stem, image="-", summary=f"broken: {short_path(str(error))}")
    recipe = source.recipe
    row = RecipeRow(
        recipe=recipe.name,
        lock=_lock_state(source.lock, recipe),
        layer=_layer_of(recipe.name, context),
        summary=recipe.recipe.summary,
    )
    image = context.settings.cwd / f"{recipe.name}.sif"
    return _with_image(row, image, source, context) if image.is_file() else row


def _layer_of(name: str, context: Context) -> Texts:
    """Return what the development layer of a name holds; it need not fit the image any more."""
    try:
        record = read_record(record_path(context.settings.cwd, name))
    except EnvbuildError:
        return ("broken",)
    if record is None:
        return ()
    return (*record.packages, *(f"-e {one.folder}" for one in record.editable))


def _row_without_recipe(name: str, context: Context) -> RecipeRow:
    """Return the row of an image, or of a layer over one, that has no recipe here."""
    try:
        record = read_record(record_path(context.settings.cwd, name))
    except EnvbuildError:
        record = None
    over = record.over if record else ""
    image = context.settings.cwd / f"{name}.sif"
    row = RecipeRow(recipe=name, image=over or image.name, layer=_layer_of(name, context))
    if not image.is_file():
        return row
    return structs.replace(_with_image(row, image, None, context), summary="no recipe here")


def _with_image(row: RecipeRow, image: Path, source: Source | None, context: Context) -> RecipeRow:
    size = image.stat().st_size
    state = FoundImage(path=image, source=source).state
    try:
        report = find_last_report(known_digest(image, context.store), context.store)
    except EnvbuildError:
        return structs.replace(row, image="no image file", image_size=size)
    row = structs.replace(row, image=state, image_size=size)
    if report is None:
        return row
    return structs.replace(row, verdict=report.verdict, checked=report.when)


def _lock_state(path: Path, recipe: Any) -> str:
    if not path.is_file():
        return "none"
    try:
        return "stale" if stale_reasons(recipe, read_lock(path)) else "fits"
    except EnvbuildError:
        return "broken"
