"""What a base that is conda itself holds of packages that others replace."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from envbuild.build.packages.whiteouts import whiteout_entries
from envbuild.formats.file_tree import Tree, TreeEntry
from envbuild.limits import UNREADABLE
from envbuild.lock.model import Lock
from envbuild.names import Texts

Read = Callable[[str], bytes | None]


class _OwnedFiles(msgspec.Struct, frozen=True):
    """A record of an installed package, as far as its files go."""

    files: Texts = ()


def replaced_entries(lock: Lock, tree: Tree, read: Read) -> tuple[TreeEntry, ...]:
    """Return the marks that hide what a base has of a lock's conda packages in other versions."""
    names = {package.name for package in lock.conda}
    gone: set[str] = set()
    for path in _record_paths(lock, tree):
        if path.rpartition("/")[2].rsplit("-", 2)[0] in names:
            gone |= _owned_paths(path, lock, tree, read)
    return whiteout_entries(tree, gone)


def with_owners(lock: Lock, tree: Tree, gone: Collection[str], read: Read) -> frozenset[str]:
    """Return paths, and all else of the base's conda packages that lose their metadata with them.

    Without this a record would name files that a wheel has replaced.
    """
    metadata = {path for path in gone if path.endswith(("-info/METADATA", "-info/PKG-INFO"))}
    found = set(gone)
    if metadata:
        for path in _record_paths(lock, tree):
            owned = _owned_paths(path, lock, tree, read)
            if owned & metadata:
                found |= owned
    return frozenset(found)


def _record_paths(lock: Lock, tree: Tree) -> Iterator[str]:
    if lock.base.conda_prefix is None:
        return
    folder = f"{lock.conda_prefix}/conda-meta/".lstrip("/")
    for path in sorted(path for path in tree if path.startswith(folder)):
        if path.endswith(".json"):
            yield path


def _owned_paths(record: str, lock: Lock, tree: Tree, read: Read) -> set[str]:
    """Return a record's own path and those of its files that are there."""
    try:
        files = msgspec.json.decode(read(record) or b"{}", type=_OwnedFiles).files
    except UNREADABLE:
        files = ()
    folder = lock.conda_prefix.lstrip("/")
    paths = (f"{folder}/{name}" for name in files)
    return {record, *(path for path in paths if path in tree and tree[path][0].kind != "d")}
