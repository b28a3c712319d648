"""The plan of one image: what a recipe and its lock give in one mode, under one name."""

from __future__ import annotations

from pathlib import Path

from envbuild.build.image_cache import locked_codec
from envbuild.build.model import BuildSpec
from envbuild.context import Context
from envbuild.formats.block_codec import Codec, gzip_codec
from envbuild.lock.model import Lock
from envbuild.plan.apptainer import render_definition
from envbuild.plan.definition import plan_definition
from envbuild.recipe.model import Recipe, Source


def build_spec(source: Source, lock: Lock, target: Path, mode: str, context: Context) -> BuildSpec:
    """Return the plan of a recipe's image; ``mode`` is one of the ways to build."""
    plan = plan_definition(source.recipe, lock)
    return BuildSpec(
        recipe=source.recipe,
        lock=lock,
        plan=plan,
        definition=render_definition(plan),
        mode=mode,
        codec=_choose_codec(source.recipe, lock, context),
        target=target,
    )


def _choose_codec(recipe: Recipe, lock: Lock, context: Context) -> Codec:
    """Return what packs: gzip for target sites whose runtime reads no zstd, else the lock's."""
    if recipe.target.sites:
        from envbuild.app.site import find_site  # late: few recipes name sites

        sites = [find_site(text, context) for text in recipe.target.sites]
        if any(site.runtime_without_zstd for site in sites):
            return gzip_codec()
    return locked_codec(lock.packer)
