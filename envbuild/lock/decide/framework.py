"""Resolve the framework that a recipe puts into its base."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import date

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.base.gpu import framework_of_dists
from envbuild.base.model import BaseFacts
from envbuild.errors import NoSolutionError
from envbuild.lock.decide.base_description import BaseDescription
from envbuild.names import Texts
from envbuild.recipe.model import Recipe
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.recipe.trees import read_tree_line
from envbuild.records import replace
from envbuild.resolve.aliases import stand_ins
from envbuild.resolve.conflict.explain import put_reason_first, reasons_of
from envbuild.resolve.conflict.overlap import CUDA_WHEEL
from envbuild.resolve.dates import default_as_of
from envbuild.resolve.framework import with_framework
from envbuild.resolve.model import Request, Resolution, Resolver


def resolve_framework(
    request: Request, recipe: Recipe, chosen: str | None, resolver: Resolver, today: date
) -> Resolution:
    """Resolve the framework; an old one again, with the packages of its own time.

    ``chosen`` is the date that the user names, "none", or None.  What the framework brings along
    keeps to the bounds of the direct requirements where that is possible: CuPy takes NumPy 1.23 or
    2.4, and the recipe's numpy<1.24 decides.
    """
    resolve = _bounded_resolver(resolver, _direct_bounds(recipe))
    if chosen is not None and chosen != "none":
        return resolve(replace(request, as_of=chosen))

    def date_of(found: Resolution) -> str | None:
        return (
            None if chosen == "none" else default_as_of(with_framework(request.facts, found), today)
        )

    # the release itself tells of which time it is: the newest by itself is mostly the one
    with suppress(NoSolutionError):
        as_of = date_of(resolve(replace(request, alone=True)))
        found = resolve(replace(request, as_of=as_of))
        if date_of(found) == as_of:
            return found
    return resolve(replace(request, as_of=date_of(resolve(request))))


def is_pinned(framework: str) -> bool:
    """Whether a framework's requirement leaves no other release to look for."""
    bounds = Requirement(framework).specifier
    return any(one.operator in ("==", "===") and "*" not in one.version for one in bounds)


def other_release(request: Request, base: BaseDescription, resolver: Resolver) -> str | None:
    """Return another release of the framework that may suit the project, or None.

    The recipe's line of the framework and the project are one question for once, so that
    torch==2.4.* becomes the 2.4.0 that vllm pins.  Raises NoSolutionError where no release of
    that line suits it.
    """
    if request.framework is None or base.under is None or base.framework is None:
        return None
    requirements = (request.framework, *request.requirements)
    free = replace(
        request,
        requirements=requirements,
        facts=base.under,
        protect=(),
        framework=None,
        hints=False,
    )
    found = resolver(free)
    name = canonicalize_name(Requirement(request.framework).name)
    held = {one.name: one.version for one in base.framework.packages}
    version = next((one.version for one in found.packages if one.name == name), held.get(name))
    return None if version == held.get(name) else f"{name}=={version}"


def refuse_line(
    first: NoSolutionError, every: NoSolutionError | None, line: str
) -> NoSolutionError:
    """Return the refusal of a project that no release of the framework's line suits.

    ``first`` speaks of the release that was chosen.  What ``every`` names beside the framework
    stands in the way of each release, so it comes before that.
    """
    about = f"needs {canonicalize_name(Requirement(line).name)}"
    reasons = [reason for reason in reasons_of(every) if about not in reason] if every else []
    if not reasons or reasons[0] in first.what or _names_the_same_cuda(reasons[0], first.what):
        return first
    reason = f"with any release of {line}: {reasons[0]}"
    return NoSolutionError(put_reason_first(first, reason), hint=first.hint)


def _names_the_same_cuda(reason: str, said: str) -> bool:
    """Whether a reason is about CUDA wheels that a refusal names already, the other way round."""
    wheels = set(CUDA_WHEEL.findall(reason))
    return bool(wheels) and wheels <= set(CUDA_WHEEL.findall(said))


def require_framework(recipe: Recipe, facts: BaseFacts, brought: Collection[str]) -> None:
    """Raise NoSolutionError where an image lacks the framework of [check].

    ``brought`` are the packages that are put over it.  Found out now, not after gigabytes and an
    hour.
    """
    if recipe.check.framework is None or recipe.base.image is None:
        return
    try:
        wanted = Requirement(recipe.check.framework)
    except NO_REQUIREMENT:
        return  # a name of a family, which the check itself knows
    name = str(canonicalize_name(wanted.name))
    # images spell names as their wheels do
    held = {str(canonicalize_name(dist.name)): dist.version for dist in facts.dists}
    found = next((other for other in (name, *stand_ins().get(name, ())) if other in held), None)
    # NGC's 2.4.0a0+nv24.06 is what becomes 2.4.0
    if name in brought or (
        found is not None and (found != name or _fits_bounds(held[found], wanted))
    ):
        return
    has = (
        f"{name} {held[name]}"
        if name in held
        else framework_of_dists(facts.dists) or "no framework that envbuild knows"
    )
    raise NoSolutionError(
        f'[check] framework names "{recipe.check.framework}", and the base {recipe.base.image} '
        f"holds {has}",
        hint=(
            f"take another base (envbuild base suggest --framework {name}), or correct [check] "
            "framework"
        ),
    )


def _fits_bounds(version: str, wanted: Requirement) -> bool:
    try:
        return wanted.specifier.contains(Version(version).base_version)
    except ValueError:
        return not wanted.specifier


def _direct_bounds(recipe: Recipe) -> Texts:
    """Return the direct requirements that bound something, without their extras."""
    found = []
    for line in recipe.python.dependencies:
        if read_tree_line(line) is not None:
            continue
        requirement = Requirement(line)
        if requirement.specifier:
            marker = f" ; {requirement.marker}" if requirement.marker else ""
            found.append(f"{requirement.name}{requirement.specifier}{marker}")
    return tuple(found)


def _bounded_resolver(resolver: Resolver, kept: Texts) -> Resolver:
    """Return a resolver that keeps to bounds, and drops them where they leave no solution."""

    def resolve(request: Request) -> Resolution:
        if kept:
            bounded = replace(request, bounds=(*request.bounds, *kept), hints=False)
            with suppress(NoSolutionError):
                return resolver(bounded)
        return resolver(request)

    return resolve
