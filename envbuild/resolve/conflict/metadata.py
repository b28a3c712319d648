"""Read the metadata of the packages in a conflict: uv names one clash, there may be more."""

from __future__ import annotations

from collections.abc import Collection

from envbuild.data.lookup import is_framework
from envbuild.errors import EnvbuildError
from envbuild.resolve.compose import pick_file
from envbuild.resolve.conflict.explain import (
    MISSING,
    NO_WHEELS,
    PINNED,
    Clash,
    ConflictError,
    Problem,
    is_satisfied,
    name_of,
)
from envbuild.resolve.platform import marker_environment, tag_order
from envbuild.resolve.sources.artifacts import describe_files
from envbuild.resolve.stubs import is_stub, parse_requirements
from envbuild.resolve.uv.session import Session

MOST_SUBJECTS = 4


def gather_clashes(
    session: Session, conflict: ConflictError, problem: Problem
) -> tuple[Clash, ...]:
    """Return all clashes of a derivation's exact versions with protected ones, frameworks first.

    What cannot be read is left out: the derivation itself is told in any case.
    """
    found: list[Clash] = []
    pins = dict.fromkeys(
        (name, version.rstrip(".,")) for name, version in PINNED.findall(conflict.text)
    )
    subjects = [
        (n, v)
        for n, v in pins
        if not is_stub(v) and not v.endswith("*") and n not in problem.stubs.by_name
    ]
    for name, version in subjects[:MOST_SUBJECTS]:
        extras: set[str] = set()
        for direct in problem.directs:
            if direct.name == name_of(name):
                extras |= {*direct.extras, *filter(None, (direct.added,))}
        found += _clashes_of_release(session, name, version, problem, extras)
    return tuple(sorted(found, key=lambda clash: not is_framework(clash.stub.name)))


def with_others(session: Session, conflict: ConflictError, problem: Problem) -> ConflictError:
    """Return a conflict about a requirement without files, joined with those about others.

    uv tells of the first one alone.
    """
    directs = {d.name: d for d in problem.directs if d.name not in problem.stubs.by_name}
    gone = _missing_names(conflict) & set(directs)
    for _ in range(MOST_SUBJECTS if gone else 0):
        rest = tuple(d.text for d in directs.values() if d.name not in gone)
        try:
            if rest:
                session.newest(*rest, as_of=problem.as_of)
        except ConflictError as other:
            if not _missing_names(other) & set(directs) - gone:
                break
            gone |= _missing_names(other)
            conflict = conflict.joined(other)
        else:
            break
    return conflict


def _missing_names(conflict: ConflictError) -> set[str]:
    """Return the names of which a derivation says that there is nothing for the base."""
    return {name_of(term) for term, _ in NO_WHEELS.findall(conflict.text)} | set(
        MISSING.findall(conflict.text)
    )


def _clashes_of_release(
    session: Session, name: str, version: str, problem: Problem, extras: Collection[str]
) -> list[Clash]:
    try:
        chosen = session.newest(f"{name}=={version}", as_of=problem.as_of)[name]
        file = pick_file(chosen, tag_order(session.facts))
        about = describe_files([file], session.context)[file.sha256]
    except (ConflictError, EnvbuildError, KeyError):
        return []
    environments = [
        marker_environment(session.facts) | {"extra": extra} for extra in ("", *sorted(extras))
    ]
    clashes = []
    for requirement in parse_requirements(about.requires):
        stub = problem.stubs.by_name.get(name_of(requirement.name))
        if stub is None or not stub.hard:
            continue
        if requirement.marker and not any(map(requirement.marker.evaluate, environments)):
            continue
        wanted = f"{requirement.name}{requirement.specifier}"
        if not is_satisfied(wanted, stub):
            clashes.append(Clash(subject=f"{name}=={version}", wanted=wanted, stub=stub))
    return clashes
