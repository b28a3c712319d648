"""Why a package is in a lock: who requires whom, from what the recipe asks for down to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

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
    package = locked_package(lock, name)
    lines = _describe_conda(lock, name)
    if package is not None:
        lines.append(f"{package.name} {package.version} ({package.group}): {package.file}")
        paths = dependency_paths(lock, name)
        lines += [f"wanted by: {_describe_path(path, lock)}" for path in paths]
    for provided in lock.provided:
        if name in (provided.name, provided.alias_of):
            stand_in = f"; {provided.alias_of} stands for it" if provided.alias_of else ""
            lines.append(f"{provided.name} {provided.version}: the base holds it{stand_in}")
    moves = [move for move in lock.moved if move.name == name]
    lines += [f"replaces {move.before} of the base, because {move.reason}" for move in moves]
    holds = [hold for hold in lock.held_back if hold.name == name]
    lines += [f"held back: {hold.newest} is newer, but {hold.reason}" for hold in holds]
    needs = {one.name for one in lock.installed if name in one.via}
    needs |= {one.name for one in lock.conda if name in one.via}
    if needs:
        lines.append(f"brings: {', '.join(sorted(needs))}")
    for builder in lock.build_only:
        if builder.name == name:
            built = f"{name} {builder.version} (build only)"
            lines.append(f"{built}: for building {_name_list(builder.via)}")
    return lines + [f"note: {note}" for note in lock.notes if name in note.split()]


def conda_package(lock: Lock, name: str) -> CondaPackage | None:
    """Return the entry of a conda package, None where there is none of that name."""
    return next((p for p in lock.conda if p.name == name), None)


def _describe_conda(lock: Lock, name: str) -> list[str]:
    package = conda_package(lock, name)
    if package is None:
        return []
    versions = {p.name: p.version for p in lock.conda}
    paths = _paths_in({p.name: p.via for p in lock.conda}, name)
    named = [" -> ".join(f"{step} {versions[step]}" for step in path) for path in paths]
    license_ = f", {package.license}" if package.license else ""
    first = f"{name} {package.version} {package.build} (conda, {package.channel}{license_})"
    return [f"{first}: {package.file}", *(f"wanted by: the recipe -> {path}" for path in named)]


def _describe_path(path: Texts, lock: Lock) -> str:
    versions: Mapping[str, str] = {p.name: p.version for p in lock.installed}
    first = locked_package(lock, path[0])
    start = "the base"
    if first is not None:
        start = "the recipe's framework" if first.group == "framework" else "the recipe"
    steps = [f"{name} {versions[name]}" if name in versions else name for name in path]
    return " -> ".join((start, *steps))


def _name_list(via: Texts) -> str:
    return ", ".join("the image" if name == DIRECT else name for name in via)
