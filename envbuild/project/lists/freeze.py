"""Reduce a dump of a whole environment (pip freeze) to the packages at its roots."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from itertools import chain

from packaging.requirements import Requirement as Pep508
from packaging.utils import canonicalize_name

from envbuild.context import Context
from envbuild.data.package_tables import load_names
from envbuild.errors import EnvbuildError
from envbuild.net.index import index_url, read_links
from envbuild.net.parallel import for_each_parallel
from envbuild.net.web import make_client
from envbuild.project.model import Requirement
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.sources.artifacts import About, describe_files

Requires = Mapping[str, frozenset[str]]
PIN = re.compile(r"={2,3}\s*([^\s;,]+)")
NAME_ALONE = re.compile(r"[\w.-]+")


def find_roots(
    requirements: tuple[Requirement, ...], requires: Requires, imported: frozenset[str]
) -> tuple[Requirement, ...]:
    """Return the needs that no other one requires, and those that the code imports itself.

    ``requires`` maps canonical names to the names that they require; of names that require each
    other in a ring the first one stays.  What has no version there (conda had built it) counts
    only if the code imports it.
    """
    requirements = _told_ones(requirements, imported)
    listed = {requirement.name for requirement in requirements}
    brought: set[str] = set()
    for by in listed:
        brought |= requires.get(by, frozenset()) - {by}
    kept = {name for name in listed if name not in brought or name in imported}
    reached = _reached_names(kept, requires)
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


def requirements_of(requirements: tuple[Requirement, ...], context: Context) -> Requires:
    """Ask the index what the pinned packages require; nothing is built or run.

    A package that is not on the index requires nothing that is known.  Raises NetworkError.
    """
    files = _pinned_files(requirements, context)
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


def _needs_of(texts: Iterable[str], extras: frozenset[str]) -> list[Pep508]:
    """Return what a package requires, with those of its extras that are asked for."""
    found = []
    for text in texts:
        try:
            requirement = Pep508(text)
        except NO_REQUIREMENT:
            continue
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
    listed = filter(None, (_parsed(one.text) for one in requirements))
    for one in chain(listed, *needs.values()):
        found.get(canonicalize_name(one.name), set()).update(one.extras)
    return {name: frozenset(extras) for name, extras in found.items()}


def _parsed(text: str) -> Pep508 | None:
    try:
        return Pep508(text)
    except NO_REQUIREMENT:
        return None


def _pinned_files(requirements: tuple[Requirement, ...], context: Context) -> dict[str, Candidate]:
    """Find one file of each pinned version: a wheel, whichever, else the sdist."""
    index = index_url(context.settings, context.runner)
    found: dict[str, Candidate] = {}
    with make_client(context.settings) as client:

        def one(requirement: Requirement, stop: threading.Event) -> None:
            pin = PIN.search(requirement.text)
            if pin is None:
                return
            try:
                links = read_links(index, requirement.name, client, stop=stop)
            except EnvbuildError:
                return
            version = re.escape(pin[1])
            fitting = [
                link
                for link in links
                if re.search(rf"-{version}(-|\.(tar|zip))", link.file) and link.sha256
            ]
            chosen = min(
                fitting,
                key=lambda link: (not link.file.endswith(".whl"), link.size or 0),
                default=None,
            )
            if chosen is not None:
                found[requirement.name] = Candidate(
                    file=chosen.file, url=chosen.url, sha256=chosen.sha256 or "", size=chosen.size
                )

        for_each_parallel(list(requirements), one, workers=context.settings.downloads + 4)
    return found
