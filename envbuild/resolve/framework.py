"""Add a bootstrap's framework to the base's facts: the project is resolved against it."""

from __future__ import annotations

from msgspec import structs
from packaging.utils import canonicalize_name

from envbuild.base.model import BaseFacts, Dist
from envbuild.data.lookup import is_framework
from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.resolve.couplings import runs_on_gpu
from envbuild.resolve.model import Found, Resolution
from envbuild.resolve.stubs import parse_requirements


def with_framework(facts: BaseFacts, resolution: Resolution) -> BaseFacts:
    """Return the facts of the base once a framework's resolution is installed in it.

    Its distributions are added (one that moved replaces the base's), ``framework`` is the first
    direct requirement of that resolution, ``created`` the upload date of its file: however new the
    system below it is, the packages that fit a framework are those of its time. Raises UsageError
    when the resolution has no direct package: then the base itself holds the framework.
    """
    framework = next((found for found in resolution.packages if found.is_direct), None)
    if framework is None:
        raise UsageError("the framework is already part of the base", where=facts.image)
    new = {canonicalize_name(found.name): _dist_of(found) for found in resolution.packages}
    kept = tuple(dist for dist in facts.dists if canonicalize_name(dist.name) not in new)
    created = framework.file.uploaded or facts.created
    return structs.replace(
        facts,
        dists=(*kept, *new.values()),
        framework=f"{framework.name} {framework.version}",
        created=created,
    )


def bare_framework(facts: BaseFacts, resolution: Resolution) -> tuple[BaseFacts, Texts]:
    """Return the facts with a framework and the CUDA wheels that it pins, and their names.

    What else the framework requires (numpy, fsspec; for jax also CUDA wheels, of which it takes a
    range) is nobody's choice yet: it is resolved together with the project.
    """
    whole = with_framework(facts, resolution)
    kept = {
        found.name for found in resolution.packages if found.is_direct or is_framework(found.name)
    }
    pinned: set[str] = set()
    for found in resolution.packages:
        if found.name in kept:
            pinned |= _pinned_names(found)
    kept |= {
        found.name
        for found in resolution.packages
        if found.name in pinned and runs_on_gpu(found.name)
    }
    new = {canonicalize_name(found.name) for found in resolution.packages}
    base = tuple(dist for dist in facts.dists if canonicalize_name(dist.name) not in kept)
    own = tuple(dist for dist in whole.dists if canonicalize_name(dist.name) in new & kept)
    return structs.replace(whole, dists=(*base, *own)), tuple(sorted(kept))


def _pinned_names(found: Found) -> set[str]:
    """Return the names that a package requires in one exact release."""
    names: set[str] = set()
    for requirement in parse_requirements(found.requires):
        exact = [one for one in requirement.specifier if one.operator == "=="]
        if any("*" not in one.version for one in exact):
            names.add(canonicalize_name(requirement.name))
    return names


def _dist_of(found: Found) -> Dist:
    return Dist(
        name=found.name,
        version=found.version,
        requires=found.requires,
        requires_python=found.requires_python,
    )
