"""What verbs that make images need: the machine's means, and an order for a recipe's image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envbuild.build.model import Order
    from envbuild.lock.model import Lock
    from envbuild.recipe.model import Source


def order_of(source: Source, lock: Lock, target: Path, mode: str) -> Order:
    """Return the order for an image of a recipe; ``mode`` is one of the ways to build."""
    from envbuild.build.image_cache import locked_codec
    from envbuild.build.model import Order
    from envbuild.plan.apptainer import render
    from envbuild.plan.definition import plan_definition

    plan = plan_definition(source.recipe, lock)
    return Order(
        recipe=source.recipe,
        lock=lock,
        plan=plan,
        definition=render(plan),
        mode=mode,
        codec=locked_codec(lock.packer),
        target=target,
    )
