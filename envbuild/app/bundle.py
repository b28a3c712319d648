"""Bundles: write everything that an image is made of into one file, and make an image from that file."""

from __future__ import annotations

from pathlib import Path

from envbuild.app.make import MakeRequest, MakeResult, make
from envbuild.app.ready_lock import require_whole_lock
from envbuild.app.source import find_named_source, require_place
from envbuild.app.spec import build_spec
from envbuild.bundle.own import own_wheels
from envbuild.bundle.pack import write_bundle
from envbuild.bundle.unpack import opened_bundle, unpack
from envbuild.context import Context
from envbuild.recipe.model import Source
from envbuild.records import replace


def bundle_recipe(
    name: str | None, output: Path | None, context: Context, *, with_tool: bool
) -> tuple[Source, Path, int]:
    """Write a recipe with all that its image is made of.

    Return the recipe, the file and its bytes.
    """
    source = find_named_source(name, context)
    lock = require_whole_lock(source, context)
    target = context.settings.cwd / (output or f"{source.recipe.name}.bundle.tar")
    require_place(target)
    spec = build_spec(source, lock, target, "fakeroot", context)
    with context.store.work("own") as folder:
        own = own_wheels(folder, context) if with_tool else None
        size = write_bundle(source, spec, context, own, target)
    return source, target, size


def make_from_bundle(path: Path, request: MakeRequest, context: Context) -> MakeResult:
    """Make the image of a bundle, without a network: its packages go to the store first."""
    bundle = context.settings.cwd / path
    with opened_bundle(bundle) as (_, table):
        size = sum(member.size for member in table.members)
    with context.store.work("project") as folder:
        files = len(table.members)
        with context.report.transfer(f"read {bundle.name}", files=files, size=size) as progress:
            unpack(bundle, context.store, folder, progress)
        recipe = folder / "recipes" / f"{table.name}.toml"
        target = context.settings.cwd / (request.output or f"{recipe.stem}.sif")
        request = replace(request, output=target, proof_seconds=None, from_bundle=True)
        inside = replace(context, settings=replace(context.settings, cwd=folder))
        return make(str(recipe), request, inside)
