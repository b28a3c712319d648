"""The plan of one image: what a recipe and its lock give in one mode, under one name."""

from __future__ import annotations

from pathlib import Path

from envbuild.build.image_cache import locked_codec
from envbuild.build.model import BuildSpec
from envbuild.lock.model import Lock
from envbuild.plan.apptainer import render_definition
from envbuild.plan.definition import plan_definition
from envbuild.recipe.model import Source


def build_spec(source: Source, lock: Lock, target: Path, mode: str) -> BuildSpec:
    """Return the plan of a recipe's image; ``mode`` is one of the ways to build."""
    plan = plan_definition(source.recipe, lock)
    return BuildSpec(
        recipe=source.recipe,
        lock=lock,
        plan=plan,
        definition=render_definition(plan),
        mode=mode,
        codec=locked_codec(lock.packer),
        target=target,
    )
