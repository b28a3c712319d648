"""The order in which conda packages are installed: each after what it requires."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.lock.model import CondaPackage


def install_order(packages: Sequence[CondaPackage]) -> tuple[CondaPackage, ...]:
    """Return packages so that those required come first.

    Of packages that require each other (Python and pip) one has to be first: that met last.
    """
    named = {package.name: package for package in sorted(packages, key=lambda one: one.name)}
    requires: dict[str, list[str]] = {name: [] for name in named}
    for package in named.values():
        for parent in package.via:
            if parent in requires:
                requires[parent].append(package.name)
    done: dict[str, CondaPackage] = {}
    entered: set[str] = set()
    # depth first without recursion: a chain may be longer than Python's stack
    todo = list(named)[::-1]
    while todo:
        name = todo[-1]
        if name in entered:
            todo.pop()
            done.setdefault(name, named[name])
            continue
        entered.add(name)
        todo += [one for one in requires[name][::-1] if one not in entered]
    return tuple(done.values())
