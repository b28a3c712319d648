"""A base that is conda itself: what of it stays, and what it is with conda packages over it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import structs
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.base.facts import is_version
from envbuild.base.gpu import conda_cuda, framework_of_dists
from envbuild.base.model import BaseFacts, Dist, InstalledConda
from envbuild.conda.model import CondaSolution
from envbuild.data.package_tables import load_conda, load_conda_names
from envbuild.errors import NoSolutionError
from envbuild.names import Texts

KEPT = re.compile(r"(python|python_abi|pytorch-mutex|libcud.*|cud.*)\Z")
"""What all else was built for: a base has it in one version."""


def movable_packages(facts: BaseFacts) -> frozenset[str]:
    """Return the names of a base's conda packages that others may replace.

    Its frameworks, its CUDA and its Python are none of them.
    """
    table = load_conda()
    kept = table.frameworks | table.libraries | table.depends
    names = {package.name for package in facts.conda}
    return frozenset(name for name in names - kept if not KEPT.match(name))


def bounds_of_wheels(facts: BaseFacts) -> Texts:
    """Return match specs that keep conda's packages at the versions of wheels in the base.

    What pip brought was made for these versions; conda knows nothing of them.
    """
    own = conda_names(facts.conda)
    named = _conda_by_distribution()
    bounds = []
    for dist in facts.dists:
        name = canonicalize_name(dist.name)
        if name not in own and is_version(dist.version):
            bounds.append(f"{named.get(name, name)} =={Version(dist.version).public}")
    return tuple(bounds)


def _conda_by_distribution() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for conda, distributions in load_conda_names().distributions.items():
        for name in distributions:
            found.setdefault(canonicalize_name(name), conda)
    return found


def conda_names(packages: tuple[InstalledConda, ...]) -> frozenset[str]:
    """Return the names on Python's index of what conda packages bring, and their own."""
    named = load_conda_names().distributions
    found = {canonicalize_name(package.name) for package in packages}
    for package in packages:
        found |= {canonicalize_name(name) for name in named.get(package.name, ())}
    return frozenset(found)


def extended_facts(
    facts: BaseFacts, solution: CondaSolution, brought: tuple[Dist, ...]
) -> BaseFacts:
    """Return the facts of a base with conda packages over it; ``brought`` is what they bring.

    Raises NoSolutionError where they would lie over a framework of the base.
    """
    names = {dist.name for dist in brought}
    covered = [dist for dist in facts.dists if canonicalize_name(dist.name) in names]
    gone = {package.name for package in solution.replaced}
    framework = framework_of_dists([dist for dist in covered if dist.installer != "conda"])
    if framework is not None:
        raise NoSolutionError(
            f"conda would install {framework.split()[0]} over the base's {framework}",
            where="[conda] dependencies",
            hint="take the package that asks for it from [python] dependencies",
        )
    kept = [dist for dist in facts.dists if canonicalize_name(dist.name) not in names]
    versions = {p.name: p.version for p in facts.conda if p.name not in gone}
    versions |= {package.name: package.version for package in solution.packages}
    dists = sorted((*kept, *brought), key=lambda dist: canonicalize_name(dist.name))
    return structs.replace(
        facts,
        dists=tuple(dists),
        cuda=facts.cuda or conda_cuda(versions),
        framework=facts.framework,
    )


def protected_names(facts: BaseFacts, brought: tuple[Dist, ...]) -> Texts:
    """Return the distributions that no wheel may replace: conda's own and new ones."""
    own = conda_names(facts.conda)
    there = {canonicalize_name(dist.name) for dist in facts.dists} & own
    return tuple(sorted(there | {dist.name for dist in brought}))
