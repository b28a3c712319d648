"""What differs between two locks, package by package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.base.model import DebianPackage
from envbuild.lock.dependency_paths import locked_package
from envbuild.lock.model import EVERYTHING, CondaPackage, Lock, PythonPackage
from envbuild.names import Texts
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.records import frozen_record
from envbuild.store.hashing import short_digest


@frozen_record
class Change:
    """One package that differs between two locks; None where it is absent."""

    kind: str
    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.name} {self.after}"
        if self.after is None:
            return f"- {self.name} {self.before}"
        return f"~ {self.name} {self.before} -> {self.after}"


def lock_changes(before: Lock, after: Lock) -> tuple[Change, ...]:
    """Return what differs: base, Debian and Python packages by name; empty for equal ones."""
    found: list[Change] = []
    if before.base.digest != after.base.digest:
        name = f"base {after.base.reference}"
        old_digest, new_digest = short_digest(before.base.digest), short_digest(after.base.digest)
        found.append(Change(kind="base", name=name, before=old_digest, after=new_digest))
    for kind in ("debian", "conda", "python"):
        old, new = _package_versions(before, kind), _package_versions(after, kind)
        found += compare_versions(kind, old, new)
        # a package of another version has other files anyway
        files = _changed_files(before, after, kind)
        found += [change for change in files if old.get(change.name) == new.get(change.name)]
    return tuple(found)


def compare_versions(
    kind: str, before: Mapping[str, str], after: Mapping[str, str]
) -> list[Change]:
    """Return the names that have another version in one of two lists, or none."""
    return [
        Change(kind=kind, name=name, before=before.get(name), after=after.get(name))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _changed_files(before: Lock, after: Lock, kind: str) -> Iterator[Change]:
    """Yield what has the same version in both and comes in another file."""
    old, new = _file_contents(before, kind), _file_contents(after, kind)
    for name in sorted(set(old) & set(new)):
        (file, content), (other, changed) = old[name], new[name]
        if content == changed:
            continue
        # two files of one name differ by their hashes alone
        if file == other:
            file = f"{file} ({content[:12]})"
            other = f"{other} ({changed[:12]})"
        yield Change(kind=kind, name=name, before=file, after=other)


def _file_contents(lock: Lock, kind: str) -> dict[str, tuple[str, str]]:
    return {item.name: (item.file, item.sha256) for item in _packages_of_kind(lock, kind)}


def _package_versions(lock: Lock, kind: str) -> dict[str, str]:
    return {item.name: item.version for item in _packages_of_kind(lock, kind)}


def _packages_of_kind(
    lock: Lock, kind: str
) -> tuple[DebianPackage, ...] | tuple[CondaPackage, ...] | tuple[PythonPackage, ...]:
    if kind == "debian":
        return lock.debian
    return lock.conda if kind == "conda" else lock.installed


def asked_line(lock: Lock, package: str, release: str | None = None) -> str | None:
    """Return the recipe's line on a package, if its bounds do not allow ``release``."""
    for line in lock.direct:
        try:
            asked = Requirement(line)
        except NO_REQUIREMENT:  # a source tree
            continue
        if canonicalize_name(asked.name) == package and asked.specifier:
            allowed = release is not None and asked.specifier.contains(release, prereleases=True)
            return None if allowed else line
    return None


def explain_unmoved(before: Lock, after: Lock, upgrade: Texts) -> list[str]:
    """Say of each Python package that was to be upgraded, and was not, what holds it.

    Where all were to be upgraded, only those that the recipe pins are named.
    """
    if not upgrade:
        return []
    pinned = [one.name for one in after.installed if "==" in (asked_line(after, one.name) or "")]
    asked: list[str] = [canonicalize_name(name) for name in upgrade if name != EVERYTHING]
    if EVERYTHING in upgrade:
        asked += pinned
    found = []
    others = {one.name for one in after.conda} | {one.name for one in after.provided}
    told = {hold.name for hold in after.held_back}
    for name in dict.fromkeys(asked):
        old, new = locked_package(before, name), locked_package(after, name)
        if new is None and name not in others:
            found.append(f"{name} is not in this lock (envbuild add {after.name} {name})")
        if old and new and old.version == new.version and name not in told:
            found.append(f"{name} stays at {new.version}: {_holder_of(new, after, pinned)}")
    return found


def _holder_of(package: PythonPackage, lock: Lock, pinned: list[str]) -> str:
    if package.name in pinned:
        return f'the recipe asks for "{asked_line(lock, package.name)}"'
    if package.group == "framework":
        return "the recipe's framework decides"
    as_of = f" as of {lock.as_of}" if lock.as_of else ""
    return f"no newer one fits{as_of} (envbuild why {package.name} {lock.name})"
