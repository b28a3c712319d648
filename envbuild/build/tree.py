"""File trees without unpacking: entries that say where their packed bytes are, merged, compared and digested."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from envbuild.errors import IntegrityError

Kind = Literal["f", "d", "l", "c", "b", "p"]
"""File, folder, symbolic link, character device, block device, pipe."""
EPOCH = -1
"""A time that is not the entry's own: the lock's epoch is put in its place when the image is written."""
NO_FRAGMENT = -1


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One name of a tree.  ``path`` has no leading slash; the root is "".

    ``blocks`` are the squashfs sizes of a file's packed blocks (bit 24: stored as it is), which follow one another
    from ``start`` in the part's blob; a small file lies at ``offset`` in the unpacked fragment number ``fragment``.
    ``sha256`` is of the content, in hex; ``mtime`` is in seconds or EPOCH.
    """

    path: str
    kind: Kind
    mode: int
    uid: int = 0
    gid: int = 0
    mtime: int = EPOCH
    size: int = 0
    sha256: str = ""
    target: str = ""
    device: int = 0
    start: int = 0
    blocks: tuple[int, ...] = ()
    fragment: int = NO_FRAGMENT
    offset: int = 0


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The index of one packed tree; its bytes are the blob of the same key.

    ``fragments`` are offset in the blob and squashfs size; ``size`` and ``sha256`` are the blob's.
    """

    key: str
    entries: tuple[Entry, ...]
    fragments: tuple[tuple[int, int], ...]
    size: int
    sha256: str


Tree = dict[str, tuple[Entry, int]]
"""Path to entry and the number of the part that holds its bytes."""


def merge(parts: Iterable[Part]) -> Tree:
    """Lay trees over one another, later ones winning.

    Folders that nobody lists are added.  Raises IntegrityError where a name would lie below something that is no
    folder, which a hostile package could use to write through a link.
    """
    tree: Tree = {"": (Entry("", "d", 0o755), 0)}
    for number, part in enumerate(parts):
        for entry in part.entries:
            held = tree.get(entry.path)
            if held is not None and held[0].kind == "d" and entry.kind != "d":
                raise IntegrityError(f"/{entry.path} is a folder in one package and none in another")
            tree[entry.path] = (entry, number)
    for path in list(tree):
        _add_parents(tree, path)
    return tree


def _add_parents(tree: Tree, path: str) -> None:
    while path:
        path = path.rpartition("/")[0]
        held = tree.get(path)
        if held is None:
            tree[path] = (Entry(path, "d", 0o755), 0)
        elif held[0].kind != "d":
            raise IntegrityError(f"/{path} is no folder, but a package has files below it")
        else:
            return


def tree_digest(entries: Iterable[Entry]) -> str:
    """Return ``sha256:…`` over names, kinds, modes, owners, links, devices and contents, not over times and packing."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: entry.path):
        digest.update(msgspec.json.encode(identity(entry)) + b"\n")
    return "sha256:" + digest.hexdigest()


def identity(entry: Entry) -> tuple[str | int, ...]:
    """Return what makes two entries the same, whatever packed them."""
    return (
        entry.path,
        entry.kind,
        entry.mode,
        entry.uid,
        entry.gid,
        entry.size,
        entry.sha256,
        entry.target,
        entry.device,
    )


def differences(
    expected: Mapping[str, Entry], found: Mapping[str, Entry]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Compare two trees: the paths that are missing, those that changed with what did, those that are extra."""
    missing = tuple(sorted(expected.keys() - found.keys()))
    extra = tuple(sorted(found.keys() - expected.keys()))
    changed = tuple(
        (path, what)
        for path in sorted(expected.keys() & found.keys())
        if (what := _change(expected[path], found[path]))
    )
    return missing, changed, extra


def _change(expected: Entry, found: Entry) -> str:
    if expected.kind != found.kind:
        return f"kind {expected.kind} is {found.kind}"
    said = []
    if expected.mode != found.mode:
        said.append(f"mode {expected.mode:o} is {found.mode:o}")
    if (expected.uid, expected.gid) != (found.uid, found.gid):
        said.append(f"owner {expected.uid}:{expected.gid} is {found.uid}:{found.gid}")
    if expected.target != found.target:
        said.append(f"leads to {found.target} instead of {expected.target}")
    if (expected.size, expected.sha256) != (found.size, found.sha256):
        said.append(f"content (sha256 {found.sha256[:12]}, expected {expected.sha256[:12]})")
    if expected.device != found.device:
        said.append("device number")
    return ", ".join(said)
