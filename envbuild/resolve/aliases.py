"""One distribution in place of another with the same modules (data/aliases.toml)."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

from envbuild.data.package_tables import load_aliases
from envbuild.names import Texts
from envbuild.resolve.couplings import Coupling
from envbuild.resolve.requirements import Direct
from envbuild.resolve.stubs import first_match


@functools.cache
def stand_ins() -> Mapping[str, Texts]:
    """Return by wanted name the patterns of its stand-ins, best first, lossy ones last."""
    data = load_aliases()
    found: dict[str, Texts] = dict(data.alias)
    # the last member of a group holds most, so that it is tried first
    for members in data.interchangeable.values():
        for name in members:
            found[name] = (
                *found.get(name, ()),
                *(other for other in reversed(members) if other != name),
            )
    # what holds less than the wanted one comes last: it is better than nothing
    for name, lossy in data.lossy.items():
        found[name] = (*found.get(name, ()), *lossy.by)
    return MappingProxyType(found)


def caution_about(alias: str, real: str) -> str | None:
    """Return what to know when ``real`` stands for ``alias``; None where they are the same."""
    data = load_aliases()
    lossy = data.lossy.get(alias)
    if lossy is not None and real in lossy.by:
        return f"{real} stands for {alias}: {lossy.missing} are missing"
    if any(alias in members and real in members for members in data.interchangeable.values()):
        return f"{real} stands for {alias}: the same modules, built for another CUDA"
    return None


def doubled_modules(names: Collection[str]) -> tuple[tuple[str, Texts], ...]:
    """Return (module, members, best first) of the groups with several members among the names.

    The files of such members overwrite each other.
    """
    found = []
    for module, patterns in sorted(load_aliases().exclusive.items()):
        members: list[str] = []
        for pattern in patterns:
            members += [name for name in sorted(names) if fnmatchcase(name, pattern)]
        if len(members) > 1:
            found.append((module, tuple(dict.fromkeys(members))))
    return tuple(found)


def merge_aliases(names: Collection[str], asked: Collection[str]) -> dict[str, str]:
    """Return which of several new members of a group stands for the others: alias to real name.

    What the user asks for by name comes first, then what holds most.  A group is left alone where
    no member can stand for all others.
    """
    found: dict[str, str] = {}
    for _, members in doubled_modules(names):
        # sorted() is stable: what the user names comes first, then the order of the table
        for real in sorted(members, key=lambda name: name not in asked):
            others = [name for name in members if name != real]
            if all(_stands_for_all(alias, real) for alias in others):
                found |= dict.fromkeys(others, real)
                break
    return found


def alias_bounds(
    directs: Iterable[Direct], aliases: Mapping[str, str], *, but: Collection[str]
) -> tuple[Coupling, ...]:
    """Return what the user asks of ``aliases`` as bounds on what stands for them, ``but`` for some.

    opencv-contrib-python stands for an opencv-python<4.9 in a release of its own before 4.9.
    """
    found = []
    for direct in directs:
        real = aliases.get(direct.name)
        text = f"{real}{direct.specifier}"
        if real is not None and direct.specifier and text not in but:
            found.append(Coupling(package=real, constraint=text, reason="what you ask for"))
    return tuple(found)


def _stands_for_all(alias: str, real: str) -> bool:
    lossy = load_aliases().lossy.get(alias)
    return first_match(stand_ins().get(alias, ()), {real}) is not None and not (
        lossy and real in lossy.by
    )
