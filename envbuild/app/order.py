"""What verbs that make images need: the machine's means, and an order for a recipe's image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envbuild.build.model import BuildSpec
    from envbuild.lock.model import Lock
    from envbuild.recipe.model import Source


def order_of(source: Source, lock: Lock, target: Path, mode: str) -> BuildSpec:
    """Return the order for an image of a recipe; ``mode`` is one of the ways to build."""
    from envbuild.build.image_cache import locked_codec
    from envbuild.build.model import BuildSpec
    from envbuild.plan.apptainer import render_definition
    from envbuild.plan.definition import plan_definition

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
