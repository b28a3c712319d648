"""Resolve the framework that a recipe puts into its base."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import date

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.errors import NoSolutionError
from envbuild.recipe.model import Recipe
from envbuild.resolve.dates import default_as_of
from envbuild.resolve.framework import with_framework
from envbuild.resolve.model import Request, Resolution, Resolver


def resolve_framework(
    request: Request, recipe: Recipe, chosen: str | None, resolver: Resolver, today: date
) -> Resolution:
    """Resolve the framework; an old one again, with the packages of its own time.

    ``chosen`` is the date that the user names, "none", or None.  What the framework brings along keeps to the bounds of
    the direct requirements where that is possible: CuPy takes NumPy 1.23 or 2.4, and the recipe's numpy<1.24 decides.
    """
    resolve = _bounded(resolver, bounds(recipe))
    if chosen is not None and chosen != "none":
        return resolve(replace(request, as_of=chosen))
    framework = resolve(request)
    as_of = None if chosen == "none" else default_as_of(with_framework(request.facts, framework), today)
    return framework if as_of is None else resolve(replace(request, as_of=as_of))


def bounds(recipe: Recipe) -> tuple[str, ...]:
    """Return the direct requirements that bound something other than the framework itself, without their extras."""
    named = canonicalize_name(Requirement(recipe.base.framework or "").name)
    found = []
    for line in recipe.python.dependencies:
        requirement = Requirement(line)
        if requirement.specifier and canonicalize_name(requirement.name) != named:
            marker = f" ; {requirement.marker}" if requirement.marker else ""
            found.append(f"{requirement.name}{requirement.specifier}{marker}")
    return tuple(found)


def _bounded(resolver: Resolver, kept: tuple[str, ...]) -> Resolver:
    """Return a resolver that keeps to bounds, and drops them where they leave no solution."""

    def resolve(request: Request) -> Resolution:
        if kept:
            with suppress(NoSolutionError):
                return resolver(replace(request, bounds=kept))
        return resolver(request)

    return resolve
