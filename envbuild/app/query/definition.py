"""The definition of a recipe's lock, as text that stands alone."""

from __future__ import annotations

from envbuild.lock.model import Lock
from envbuild.plan.apptainer import render_definition
from envbuild.plan.definition import plan_definition, plan_dockerfile
from envbuild.plan.dockerfile import render_dockerfile
from envbuild.recipe.model import Recipe


def dockerfile_text(recipe: Recipe, lock: Lock) -> str:
    """Return the Dockerfile of a recipe's lock as text.  Raises UsageError for a base that no engine knows."""
    return render_dockerfile(plan_dockerfile(recipe, lock))


def definition_text(recipe: Recipe, lock: Lock) -> str:
    """Return the definition of a recipe's lock as text."""
    return render_definition(plan_definition(recipe, lock))
