"""Why a package is in a lock: who requires whom, from what the recipe asks for down to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from envbuild.lock.model import CondaPackage, Lock, PythonPackage
from envbuild.names import DIRECT, Texts

MOST = 5


def dependency_paths(lock: Lock, name: str) -> tuple[Texts, ...]:
    """Return the shortest paths from a direct requirement or the base to a package.

    Each begins with what the recipe asks for, or with a package of the base that requires the next
    one.
    """
    return _paths_in({package.name: package.via for package in lock.installed}, name)


def _paths_in(via: Mapping[str, Texts], name: str) -> tuple[Texts, ...]:
    """Return the shortest paths to a name; ``via`` has who requires each."""
    found: list[Texts] = []
    # breadth first, so that the shortest paths come first
    todo: deque[Texts] = deque([(name,)])
    seen = {name}
    while todo and len(found) < MOST:
        path = todo.popleft()
        sources = via.get(path[0])
        # what no package of the lock requires is the base's own
        if sources is None or DIRECT in sources:
            found.append(path)
        for source in sources or ():
            if source not in seen and source != DIRECT:
                seen.add(source)
                todo.append((source, *path))
    return tuple(found)


def locked_package(lock: Lock, name: str) -> PythonPackage | None:
    """Return the entry of a package that is put over the base, None where there is none."""
    return next((p for p in lock.installed if p.name == name), None)


def describe_package(lock: Lock, name: str) -> list[str]:
    """Return what a lock knows of a package, one sentence a line; empty for nothing."""
    return [
        *_describe_conda(lock, name),
        *_describe_wheel(lock, name),
        *_describe_choice(lock, name),
        *_describe_use(lock, name),
        *(f"note: {note}" for note in lock.notes if name in note.split()),
    ]


def conda_package(lock: Lock, name: str) -> CondaPackage | None:
    """Return the entry of a conda package, None where there is none of that name."""
    return next((p for p in lock.conda if p.name == name), None)


def _describe_conda(lock: Lock, name: str) -> Iterator[str]:
    package = conda_package(lock, name)
    if package is None:
        return
    origin = f"conda, {package.channel}"
    if package.license:
        origin += f", {package.license}"
    yield f"{name} {package.version} {package.build} ({origin}): {package.file}"
    versions = {one.name: one.version for one in lock.conda}
    for path in _paths_in({one.name: one.via for one in lock.conda}, name):
        steps = [f"{step} {versions[step]}" for step in path]
        yield " -> ".join(("wanted by: the recipe", *steps))


def _describe_wheel(lock: Lock, name: str) -> Iterator[str]:
    package = locked_package(lock, name)
    if package is None:
        return
    yield f"{name} {package.version} ({package.group}): {package.file}"
    for path in dependency_paths(lock, name):
        yield f"wanted by: {_describe_path(path, lock)}"


def _describe_choice(lock: Lock, name: str) -> Iterator[str]:
    """Yield what the base holds, and why its release or the newest one was not taken."""
    for provided in lock.provided:
        if name in (provided.name, provided.alias_of):
            stand_in = f"; {provided.alias_of} stands for it" if provided.alias_of else ""
            yield f"{provided.name} {provided.version}: the base holds it{stand_in}"
    for move in lock.moved:
        if move.name == name:
            yield f"replaces {move.before} of the base, because {move.reason}"
    for hold in lock.held_back:
        if hold.name == name:
            yield f"held back: {hold.newest} is newer, but {hold.reason}"


def _describe_use(lock: Lock, name: str) -> Iterator[str]:
    """Yield what a package brings along, and what it is needed to build."""
    needs = {one.name for one in lock.installed if name in one.via}
    needs |= {one.name for one in lock.conda if name in one.via}
    if needs:
        yield f"brings: {', '.join(sorted(needs))}"
    for builder in lock.build_only:
        if builder.name == name:
            users = ["the image" if user == DIRECT else user for user in builder.via]
            yield f"{name} {builder.version} (build only): for building {', '.join(users)}"


def _describe_path(path: Texts, lock: Lock) -> str:
    versions: Mapping[str, str] = {p.name: p.version for p in lock.installed}
    first = locked_package(lock, path[0])
    start = "the base"
    if first is not None:
        start = "the recipe's framework" if first.group == "framework" else "the recipe"
    steps = [f"{name} {versions[name]}" if name in versions else name for name in path]
    return " -> ".join((start, *steps))
