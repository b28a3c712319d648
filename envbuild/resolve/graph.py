"""Who requires whom in a resolution: for ``via``, for what the base provides or loses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.names import Texts, Variables
from envbuild.records import frozen_record
from envbuild.resolve.stubs import parse_requirements


@frozen_record
class Edge:
    """One requirement that is in force: ``source`` (a package or ``(direct)``) wants ``target``."""

    source: str
    target: str
    requirement: Requirement


def walk_requirements(
    starts: Iterable[tuple[str, str]], requires: Mapping[str, Texts], environment: Variables
) -> tuple[Edge, ...]:
    """Return all requirements in force; extras count where they are asked for.

    ``starts`` are (source, PEP 508 string), the source being ``(direct)`` for what the user wrote.
    ``requires`` maps the canonical names of all packages to the PEP 508 strings of their metadata.
    """
    edges: list[Edge] = []
    seen: set[tuple[str, str]] = set()
    todo: list[tuple[str, Requirement]] = []
    for source, text in starts:
        todo += [(source, requirement) for requirement in parse_requirements((text,))]
    while todo:
        source, requirement = todo.pop()
        target = canonicalize_name(requirement.name)
        edges.append(Edge(source=source, target=target, requirement=requirement))
        # a package is walked once for itself, and once for each extra that anybody asks for
        for extra in ("", *requirement.extras):
            if (target, extra) not in seen and target in requires:
                seen.add((target, extra))
                todo += [
                    (target, wanted) for wanted in _in_force(requires[target], extra, environment)
                ]
    return tuple(edges)


def _in_force(requires: Texts, extra: str, environment: Variables) -> list[Requirement]:
    """Return what holds with an extra and did not without it; with none, what always holds."""
    found = []
    for requirement in parse_requirements(requires):
        marker = requirement.marker
        # a marker that names an extra is in force with that extra only (PEP 508)
        of_extra = marker is not None and "extra" in str(marker)
        if of_extra != bool(extra):
            continue
        # however an extra is spelled here and in old metadata (PEP 685): evaluate() compares
        # canonical names
        if marker is None or marker.evaluate({**environment, "extra": extra}):
            found.append(requirement)
    return found


def requiring_names(edges: Iterable[Edge]) -> dict[str, Texts]:
    """Return by target who requires it, sorted."""
    found: dict[str, set[str]] = {}
    for edge in edges:
        found.setdefault(edge.target, set()).add(edge.source)
    return {target: tuple(sorted(names)) for target, names in found.items()}
