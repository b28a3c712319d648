"""Reduce a dump of a whole environment (pip freeze) to the packages at its roots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain

from packaging.requirements import Requirement as Pep508
from packaging.utils import canonicalize_name

from envbuild.context import Context
from envbuild.data.package_tables import load_names
from envbuild.names import Texts
from envbuild.project.model import Requirement
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.sources.artifacts import About, describe_files
from envbuild.resolve.stubs import parse_requirements

Requires = Mapping[str, frozenset[str]]
NAME_ALONE = re.compile(r"[\w.-]+")


def find_roots(
    requirements: tuple[Requirement, ...], requires: Requires, imported: frozenset[str]
) -> tuple[Requirement, ...]:
    """Return the needs that no other one requires, and those that the code imports itself.

    ``requires`` maps canonical names to the names that they require; of names that require each
    other in a ring the first one stays.  What has no version there (conda had built it) counts
    only if the code imports it.
    """
    every = {requirement.name for requirement in requirements}
    brought: set[str] = set()
    for by in every:
        brought |= requires.get(by, frozenset()) - {by}
    requirements = _told_ones(requirements, imported)
    listed = {requirement.name for requirement in requirements}
    kept = {name for name in listed if name not in brought or name in imported}
    reached = _reached_names(kept | (every - listed), requires)
    for requirement in requirements:
        if requirement.name not in reached:
            kept.add(requirement.name)
            reached |= _reached_names({requirement.name}, requires)
    return tuple(requirement for requirement in requirements if requirement.name in kept)


def _told_ones(
    requirements: tuple[Requirement, ...], imported: frozenset[str]
) -> tuple[Requirement, ...]:
    return tuple(
        one
        for one in requirements
        if NAME_ALONE.fullmatch(one.text) is None or one.name in imported
    )


def _reached_names(names: set[str], requires: Requires) -> set[str]:
    """Return the names and all that they require, directly or not."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += requires.get(name, ())
    return found


def guess_roots(
    requirements: tuple[Requirement, ...], imported: frozenset[str]
) -> tuple[Requirement, ...]:
    """Return the needs without those that others usually bring, for where no index can be asked."""
    brought = set(load_names().transitive.names)
    return tuple(
        requirement
        for requirement in _told_ones(requirements, imported)
        if requirement.name in imported or requirement.name not in brought
    )


def requirements_of(
    requirements: tuple[Requirement, ...], files: Mapping[str, Candidate], context: Context
) -> Requires:
    """Read what the packages of a dump require from one file of each; nothing is built or run.

    A package without a file requires nothing that is known.  Raises NetworkError.
    """
    about = describe_files(files.values(), context)
    texts = {
        name: about.get(candidate.sha256, About(size=0)).requires
        for name, candidate in files.items()
    }
    asked = dict.fromkeys(texts, frozenset[str]())
    needs: dict[str, list[Pep508]] = {}
    while True:
        needs = {name: _needs_of(texts[name], extras) for name, extras in asked.items()}
        more = _asked_extras(needs, requirements, asked)
        if more == asked:
            break
        asked = more
    return {
        name: frozenset(canonicalize_name(one.name) for one in found)
        for name, found in needs.items()
    }


def _needs_of(texts: Texts, extras: frozenset[str]) -> list[Pep508]:
    """Return what a package requires, with those of its extras that are asked for."""
    found = []
    for requirement in parse_requirements(texts):
        marker = requirement.marker
        plain = marker is None or "extra" not in str(marker)
        asked = marker is not None and any(marker.evaluate({"extra": one}) for one in extras)
        if plain or asked:
            found.append(requirement)
    return found


def _asked_extras(
    needs: Mapping[str, Iterable[Pep508]],
    requirements: tuple[Requirement, ...],
    asked: Mapping[str, frozenset[str]],
) -> dict[str, frozenset[str]]:
    """Return the extras that the list and its packages ask of each other."""
    found = {name: set(extras) for name, extras in asked.items()}
    listed = parse_requirements(tuple(one.text for one in requirements))
    for one in chain(listed, *needs.values()):
        found.get(canonicalize_name(one.name), set()).update(one.extras)
    return {name: frozenset(extras) for name, extras in found.items()}
