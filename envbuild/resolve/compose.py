"""Put the answer together: files, who requires what, what the base provides, what moved and why."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.version import Version

from envbuild.base.model import BaseFacts
from envbuild.data.lookup import is_framework
from envbuild.errors import NoSolutionError
from envbuild.names import DIRECT, Texts
from envbuild.records import frozen_record
from envbuild.resolve.aliases import caution_about, doubled_modules
from envbuild.resolve.conflict.explain import Problem
from envbuild.resolve.conflict.overlap import second_stack
from envbuild.resolve.dates import read_date
from envbuild.resolve.graph import Edge, requiring_names, walk_requirements
from envbuild.resolve.model import Found, FoundFile, Resolution
from envbuild.resolve.outcome import HeldBack, Moved, Provided
from envbuild.resolve.platform import best_wheel, marker_environment
from envbuild.resolve.pylock import Candidate, Chosen
from envbuild.resolve.sources.artifacts import About
from envbuild.resolve.stubs import Stub, base_distributions, parse_requirements

ANCIENT_DAYS = 730
CUDA_NAMES = ("nvidia-", "cuda-")


@frozen_record
class Parts:
    """What a resolution is made of: ``wanted`` are the direct requirements with extras.

    The mappings are by package name, ``abouts`` by sha256.
    """

    problem: Problem
    wanted: Texts
    facts: BaseFacts
    answer: Mapping[str, Chosen]
    files: Mapping[str, Candidate]
    abouts: Mapping[str, About]
    origins: Mapping[str, str]


def pick_file(chosen: Chosen, order: Mapping[Tag, int]) -> Candidate:
    """Return the best wheel for the base, else the sdist.  Raises NoSolutionError."""
    by_file = {wheel.file: wheel for wheel in chosen.wheels}
    best = best_wheel(by_file, order)
    if best is not None:
        return by_file[best]
    if chosen.sdist is None:
        raise NoSolutionError(
            f"{chosen.name} {chosen.version} has neither a wheel for this base nor a source archive",
            hint="choose another version of it, or a base with a newer glibc",
        )
    return chosen.sdist


def found_file(file: Candidate, about: About, index: str | None = None) -> FoundFile:
    """Return the record of a chosen file."""
    return FoundFile(
        file=file.file,
        sha256=file.sha256,
        size=about.size,
        url=file.url,
        uploaded=file.uploaded,
        index=index,
    )


def compose(
    parts: Parts,
    *,
    build: tuple[Found, ...],
    held: tuple[HeldBack, ...],
    notes: Iterable[str],
) -> Resolution:
    """Return the resolution."""
    # who requires whom is taken from the files themselves, not from what the index says of them
    edges = _find_edges(parts)
    via = requiring_names(edges)
    stubs = parts.problem.stubs.by_name
    # an index may hold the very build of the base, which === asks for: it is not brought twice
    same = {
        name
        for name in parts.files
        if name in stubs and _is_same_build(stubs[name], parts.answer[name].version)
    }
    packages = tuple(
        _found_package(name, parts, via.get(name, ()))
        for name in sorted(parts.files)
        if name not in same
    )
    provided = sorted(
        {edge.target for edge in edges if edge.target in stubs} - {p.name for p in packages}
    )
    moved = tuple(
        _moved_package(stubs[p.name], p.version, edges) for p in packages if p.name in stubs
    )
    ancient = dict(_find_ancient(parts, packages, held))
    return Resolution(
        packages=packages,
        build=build,
        provided=tuple(
            Provided(name=name, version=stubs[name].real, alias_of=stubs[name].alias_of)
            for name in provided
        ),
        moved=moved,
        held_back=held,
        ancient=tuple(ancient),
        notes=tuple(
            dict.fromkeys(
                (
                    *notes,
                    *_package_notes(parts, packages),
                    *_alias_notes(parts, provided),
                    *itertools.starmap(_ancient_note, ancient.items()),
                )
            )
        ),
        as_of=parts.problem.as_of,
    )


def _is_same_build(stub: Stub, version: str) -> bool:
    """Whether the index's file is the version that the base holds (``===`` asks past the stub)."""
    return not stub.hard and Version(stub.real) == Version(version)


def _find_edges(parts: Parts) -> tuple[Edge, ...]:
    """Return the requirements in force over what is new and what the base holds."""
    dists = base_distributions(parts.facts)
    requires = {
        name: (stub.alias_of,) if stub.alias_of else dists[name].requires
        for name, stub in parts.problem.stubs.by_name.items()
    }
    requires |= {name: parts.abouts[file.sha256].requires for name, file in parts.files.items()}
    return walk_requirements(
        [(DIRECT, text) for text in parts.wanted], requires, marker_environment(parts.facts)
    )


def _found_package(name: str, parts: Parts, via: Texts) -> Found:
    file = parts.files[name]
    about = parts.abouts[file.sha256]
    return Found(
        name=name,
        version=parts.answer[name].version,
        file=found_file(file, about, parts.origins.get(name)),
        via=via,
        requires=about.requires,
        requires_python=about.requires_python,
    )


def _moved_package(stub: Stub, after: str, edges: Iterable[Edge]) -> Moved:
    wanting = sorted(
        {
            f"{edge.source} needs {edge.requirement.name}{edge.requirement.specifier}"
            for edge in edges
            if edge.target == stub.name
            and not edge.requirement.specifier.contains(stub.version, prereleases=True)
        }
    )
    reason = "; ".join(wanting) or "no answer was found that keeps it"
    return Moved(
        name=stub.name,
        before=stub.real,
        after=after,
        reason=reason.replace(f"{DIRECT} needs", "you ask for"),
    )


def _find_ancient(
    parts: Parts, packages: Iterable[Found], held: Iterable[HeldBack]
) -> Iterable[tuple[HeldBack, str]]:
    """Yield what is held back to a release of long before the base, with its day.

    Such a release names nothing of the base (accelerate 0.0.1).
    """
    if parts.facts.created is None:
        return
    created = read_date(parts.facts.created, parts.facts.image)
    coupled = {row.package for row in parts.problem.couplings if row.binding}
    days = {package.name: package.file.uploaded for package in packages}
    for row in held:
        day = days.get(row.name)
        if row.name in coupled or day is None:
            continue
        if (created - read_date(day, row.name)).days > ANCIENT_DAYS:
            yield row, day


def _ancient_note(row: HeldBack, day: str) -> str:
    return (
        f"{row.name} {row.version} is of {day}, more than two years before the base: it hardly "
        f"fits; {row.newest} is held back because {row.reason}"
    )


def _alias_notes(parts: Parts, provided: Iterable[str]) -> Iterable[str]:
    """Yield what to know about the distributions that stand for others."""
    for name in provided:
        real = parts.problem.stubs.by_name[name].alias_of
        if real is not None and real in parts.files:
            yield (
                f"{real} stands for {name}: both hold the same modules, and one would overwrite "
                "the other's files"
            )
        elif real is not None and (text := caution_about(name, real)) is not None:
            yield text


def _package_notes(parts: Parts, packages: tuple[Found, ...]) -> Iterable[str]:
    """Yield what a person should know beside the answer."""
    versions = {package.name: package.version for package in packages}
    for row in parts.problem.couplings:
        version = versions.get(row.package)
        if version is None:
            continue
        bounds = Requirement(row.constraint).specifier
        # a row that is known from memory is no constraint: being outside of it is only noted
        if not row.binding and not bounds.contains(version, prereleases=True):
            yield f"{row.package} {version} may not fit: as far as is known {row.sentence}"
        if row.note:
            yield f"{row.package} {version}: {row.note}"
    for package in packages:
        about = parts.abouts[package.file.sha256]
        if about.read_from == "none":
            yield f"{package.name} {package.version} is an sdist that declares no requirements: check its imports"
    stubs = parts.problem.stubs
    doubled = second_stack(packages, stubs, parts.facts)
    if doubled is not None:
        yield doubled
    yield from _without_cuda(parts, packages)
    yield from _compiled_elsewhere(parts, packages)
    of_base = [name for name, stub in stubs.by_name.items() if not stub.alias_of]
    for group, members in doubled_modules({*versions, *of_base}):
        if any(member in versions for member in members):
            yield f"{' and '.join(members)} both hold the module {group}: one overwrites the other's files"


def _without_cuda(parts: Parts, packages: tuple[Found, ...]) -> Iterable[str]:
    """Yield what brings CUDA on x86_64 alone: on another machine it computes on the CPU.

    So it is with the published torch for aarch64 up to 2.10.
    """
    # the same markers (PEP 508) for this machine, and as if it were an x86_64
    here = {**marker_environment(parts.facts), "extra": ""}
    there = {**here, "platform_machine": "x86_64"}
    for package in packages:
        cuda = [
            one for one in parse_requirements(package.requires) if one.name.startswith(CUDA_NAMES)
        ]
        asked = [one.marker for one in cuda if one.marker is not None]
        mine = any(marker.evaluate(here) for marker in asked)
        theirs = any(marker.evaluate(there) for marker in asked)
        if theirs and not mine and not package.is_sdist:
            yield (
                f"{package.name} {package.version} has CUDA on x86_64 only: what is published for "
                f"{parts.facts.machine} computes on the CPU"
            )


def _compiled_elsewhere(parts: Parts, packages: tuple[Found, ...]) -> Iterable[str]:
    """Yield what was compiled for a published framework where the base holds a vendor's build.

    A wheel with machine code that pins the framework links against it: NGC's torch 2.4.0a0 is not
    the published 2.4.0.
    """
    built = {
        name: stub
        for name, stub in parts.problem.stubs.by_name.items()
        if is_framework(name) and not stub.alias_of and Version(stub.real).is_prerelease
    }
    for package in packages:
        # what is pure Python links against nothing
        if not package.file.file.endswith(".whl") or package.file.file.endswith("-any.whl"):
            continue
        for requirement in parse_requirements(package.requires):
            stub = built.get(requirement.name)
            if stub is not None and any(
                specifier.operator == "==" for specifier in requirement.specifier
            ):
                yield (
                    f"{package.name} {package.version} was compiled for {requirement.name}{requirement.specifier} as "
                    f"published, the base holds its vendor's own build {stub.real}: if it fails to import, build it in "
                    "the base from source"
                )
