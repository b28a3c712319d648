"""File trees without unpacking.

Entries that say where their packed bytes are, merged, compared and digested.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Literal

import msgspec
from msgspec import structs

from envbuild import limits
from envbuild.errors import IntegrityError
from envbuild.formats.oci_layer import WHITEOUT
from envbuild.limits import Room
from envbuild.names import Numbers, Pairs, Texts

Kind = Literal["f", "d", "l", "c", "b", "p", "h", "w", "o"]
"""File, folder, symbolic link, character device, block device, pipe.

And what only layers of images hold: another name of a file of a lower layer, a mark that hides a
name of lower layers (".wh.NAME"), one that empties a folder.
"""
Xattrs = tuple[tuple[str, bytes], ...]
"""Extended attributes: names and values."""
MOST_LINKS = 40
"""Links followed before a path counts as going in a circle, as Linux does."""
EPOCH = -1
"""A time that is not the entry's own.

The lock's epoch is put in its place when the image is written.
"""
NO_FRAGMENT = -1


class TreeEntry(msgspec.Struct, frozen=True, array_like=True):
    """One name of a tree. ``path`` has no leading slash; the root is "".

    ``blocks`` are the squashfs sizes of a file's packed blocks (bit 24: stored as it is), which
    follow one another from ``start`` in the part's blob; a small file lies at ``offset`` in the
    unpacked fragment number ``fragment``. ``sha256`` is of the content, in hex; ``mtime`` is in
    seconds or EPOCH; ``xattrs`` are sorted names and values.
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
    blocks: Numbers = ()
    fragment: int = NO_FRAGMENT
    offset: int = 0
    xattrs: Xattrs = ()


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The index of one packed tree; its bytes are the blob of the same key.

    ``fragments`` are offset in the blob and squashfs size; ``size`` and ``sha256`` are the blob's.
    A ``layer`` is one of an image: its names go through links of lower ones, it hides names of
    theirs and may replace whole folders.
    """

    key: str
    entries: tuple[TreeEntry, ...]
    fragments: tuple[tuple[int, int], ...]
    size: int
    sha256: str
    layer: bool = False


Tree = dict[str, tuple[TreeEntry, int]]
"""Path to entry and the number of the part that holds its bytes."""


def merge_parts(parts: Iterable[Part]) -> Tree:
    """Lay trees over one another, later ones winning.

    Folders that nobody lists are added. Raises IntegrityError where a name would lie below
    something that is no folder, which a hostile package could use to write through a link.
    """
    merger = TreeMerger()
    for part in parts:
        merger.add(part)
    return merger.tree()


class TreeMerger:
    """Lays trees over one another, one after the other.

    Parts are numbered in the order in which they come.  With ``lenient`` a layer may write below a
    file of a lower one, which becomes a folder, and link to what no layer holds, which is left out:
    no image can be put together from such layers, but facts can be read of one.
    """

    def __init__(self, *, lenient: bool = False) -> None:
        self._tree: Tree = {"": (TreeEntry("", "d", 0o755), 0)}
        self._lenient = lenient
        self._stack: _Stack | None = None
        self._count = 0

    def add(self, part: Part) -> None:
        """Lay a tree over what is there.  Raises as merge_parts does."""
        if part.layer:
            self._stack = self._stack or _Stack(self._tree, lenient=self._lenient)
            self._stack.add(part, self._count)
        else:
            self._stack = None
            _lay_part(self._tree, part, self._count)
        if self._tree[""][0].kind != "d":
            raise _no_folder("")
        self._count += 1

    def tree(self) -> Tree:
        """Return what is there so far, as a tree of its own."""
        # folders that nobody lists are added to the copy alone: a later part may yet list them
        whole = dict(self._tree)
        for path in self._tree:
            _add_parents(whole, path)
        return whole


def _lay_part(tree: Tree, part: Part, number: int) -> None:
    """Lay a package over a tree; unlike a layer, it may neither hide names nor go through links."""
    for entry in part.entries:
        held = tree.get(entry.path)
        if held is not None and held[0].kind == "d" and entry.kind != "d":
            raise IntegrityError(f"/{entry.path} is a folder in one package and none in another")
        tree[entry.path] = (entry, number)


class _Stack:
    """A tree that layers of images are laid over (OCI image layer specification)."""

    def __init__(self, tree: Tree, *, lenient: bool) -> None:
        self.tree = tree
        self._lenient = lenient
        self._room = Room(0, "its names take")
        self._children: dict[str, set[str]] = {}
        for path in tree:
            self._note_children(path)
        self._real: dict[str, str] = {}

    def add(self, part: Part, number: int) -> None:
        """Lay a layer over the tree; what it hides is hidden before its own names are there.

        Raises IntegrityError where the folders that it implies take more than its size explains.
        """
        self._room = Room(limits.most_names(part.size), "its names take")
        # image-spec, layer.md, "Whiteouts": they hide names of lower layers alone, wherever they
        # stand in the tar, so this layer's own names come after all of them
        for entry in part.entries:
            folder, _, name = entry.path.rpartition("/")
            # image-spec, layer.md, "Opaque Whiteout": all of the folder in lower layers goes
            if entry.kind == "o":
                for child in list(self._children.get(self.real_path(folder), ())):
                    self._remove_tree(child)
            elif entry.kind == "w":
                self._remove_tree(_join_path(self.real_path(folder), name.removeprefix(WHITEOUT)))
        for entry in part.entries:
            if entry.kind not in ("o", "w"):
                self._put_entry(entry, number)

    def _put_entry(self, entry: TreeEntry, number: int) -> None:
        folder, _, name = entry.path.rpartition("/")
        # a layer may write below a link of a lower one: /bin/sh goes to /usr/bin/sh
        path = _join_path(self.real_path(folder), name) if name else ""
        self._provide_parents(path)
        if entry.kind == "h":
            found = self.tree.get(self.real_path(entry.target))
            if found is None or found[0].kind == "d":
                if self._lenient:
                    return
                raise IntegrityError(
                    f"/{path} is another name of /{entry.target}, which no layer holds"
                )
            entry, number = found
        held = self.tree.get(path)
        kinds = {entry.kind, held[0].kind if held else entry.kind}
        # a file over a folder, or a folder over a file, takes all of it away
        if len(kinds) > 1 and "d" in kinds:
            self._remove_tree(path)
        # paths that were resolved through this name lead elsewhere from now on
        if len(kinds) > 1 and entry.kind in "ld":
            self._real.clear()
        if entry.path != path:
            entry = structs.replace(entry, path=path)
        self.tree[path] = (entry, number)
        self._note_children(path)

    def _provide_parents(self, path: str) -> None:
        while path:
            path = path.rpartition("/")[0]
            held = self.tree.get(path)
            if held is not None and held[0].kind == "d":
                return
            if held is not None:
                if not self._lenient:
                    raise _no_folder(path)
                self._remove_tree(path)
            self._room.take(limits.ENTRY + len(path))
            self.tree[path] = (TreeEntry(path, "d", 0o755), 0)

    def _remove_tree(self, path: str) -> None:
        if path and self.tree.pop(path, None) is not None:
            self._children.get(path.rpartition("/")[0], set()).discard(path)
        for child in list(self._children.pop(path, ())):
            self._remove_tree(child)
        self._real.clear()

    def _note_children(self, path: str) -> None:
        while path:
            parent = path.rpartition("/")[0]
            siblings = self._children.setdefault(parent, set())
            if path in siblings:
                return
            siblings.add(path)
            path = parent

    def real_path(self, path: str) -> str:
        """Return a path with all links resolved inside the tree; missing parts stay."""
        if path not in self._real:
            self._real[path] = resolve_links(self.tree, path)
        return self._real[path]


def resolve_links(tree: Tree, path: str) -> str:
    """Return a path with all links resolved inside the tree, as os.path.realpath does.

    Missing parts stay.
    """
    todo, done, links = [part for part in path.split("/") if part][::-1], "", 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = done.rpartition("/")[0]
        if part in (".", ".."):
            continue
        at = _join_path(done, part)
        held = tree.get(at)
        if held is None or held[0].kind != "l" or links >= MOST_LINKS:
            done = at
            continue
        links += 1
        target = held[0].target
        if target.startswith("/"):
            done = ""
        todo += [piece for piece in target.split("/") if piece][::-1]
    return done


def _join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _add_parents(tree: Tree, path: str) -> None:
    while path:
        path = path.rpartition("/")[0]
        held = tree.get(path)
        if held is None:
            tree[path] = (TreeEntry(path, "d", 0o755), 0)
        elif held[0].kind != "d":
            raise _no_folder(path)
        else:
            return


def _no_folder(path: str) -> IntegrityError:
    return IntegrityError(f"/{path} is no folder, but a package has files below it")


def tree_digest(entries: Iterable[TreeEntry]) -> str:
    """Return ``sha256:…`` over names, kinds, modes, owners, links, devices and contents alone."""
    digest = hashlib.sha256()
    for entry in sorted(entries, key=lambda entry: entry.path):
        # one line of JSON a name: a list of plain values, so no name in the code is in the digest
        digest.update(msgspec.json.encode(entry_identity(entry)) + b"\n")
    return "sha256:" + digest.hexdigest()


def entry_identity(entry: TreeEntry) -> tuple[str | int | bytes, ...]:
    """Return what makes two entries the same, whatever packed them."""
    xattrs: Iterable[str | bytes] = chain.from_iterable(entry.xattrs)
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
        *xattrs,
    )


def compare_trees(
    expected: Mapping[str, TreeEntry], found: Mapping[str, TreeEntry]
) -> tuple[Texts, Pairs, Texts]:
    """Return the paths that are missing, those that differ with what does, and the extra ones."""
    missing = tuple(sorted(expected.keys() - found.keys()))
    extra = tuple(sorted(found.keys() - expected.keys()))
    both = sorted(expected.keys() & found.keys())
    described = ((path, _describe_change(expected[path], found[path])) for path in both)
    changed = tuple((path, what) for path, what in described if what)
    return missing, changed, extra


def _describe_change(expected: TreeEntry, found: TreeEntry) -> str:
    if expected.kind != found.kind:
        return f"kind {expected.kind} is {found.kind}"
    differences = []
    if expected.mode != found.mode:
        differences.append(f"mode {expected.mode:o} is {found.mode:o}")
    if (expected.uid, expected.gid) != (found.uid, found.gid):
        differences.append(f"owner {expected.uid}:{expected.gid} is {found.uid}:{found.gid}")
    if expected.target != found.target:
        differences.append(f"leads to {found.target} instead of {expected.target}")
    if (expected.size, expected.sha256) != (found.size, found.sha256):
        differences.append(f"content (sha256 {found.sha256[:12]}, expected {expected.sha256[:12]})")
    if expected.device != found.device:
        differences.append("device number")
    if expected.xattrs != found.xattrs:
        differences.append("extended attributes")
    return ", ".join(differences)
