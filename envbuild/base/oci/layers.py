"""The layers of an image as one file system, read without running it (OCI layer spec)."""

from __future__ import annotations

import fnmatch
import posixpath
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from envbuild import limits
from envbuild.formats.oci_layer import OPAQUE, WHITEOUT, finish_layer, open_layer, require_hidden
from envbuild.limits import Room, reading
from envbuild.tarread import members

MOST_LINKS = 40
"""Links followed before a path counts as going in a circle, as Linux does."""


@dataclass(kw_only=True, slots=True)
class Node:
    """A file, folder, link or device of the merged tree, from layer number ``layer``."""

    kind: str
    layer: int
    mtime: int = 0
    size: int = 0
    target: str = ""
    data: bytes | None = None
    children: dict[str, Node] = field(default_factory=dict)


class Tree:
    """The merged file system of layers; paths are absolute, links lead inside it only."""

    def __init__(self, keep: Callable[[str, int], bool]) -> None:
        self._root = Node(kind="d", layer=0)
        self._keep = keep
        self._room = Room(0, "its names take")
        self._last: tuple[list[str], Node] = ([], self._root)

    def add_layer(self, path: Path, diff_id: str | None, *, number: int, where: str) -> None:
        """Lay one layer's tar (plain, gzip or zstd) over what is there.

        Raises IntegrityError for a damaged one, and for one whose content is not ``diff_id``.
        """
        size = path.stat().st_size
        self._room = Room(limits.most_names(size), "its names take")
        with reading(f"layer {number + 1} is damaged", where), open_layer(path) as (stream, tar):
            for entry in members(tar, size):
                self._add(tar, entry, number)
                tar.members = []  # type: ignore[attr-defined]  # it would keep all of them
            finish_layer(stream, diff_id, f"layer {number + 1}", where)

    def _add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, number: int) -> None:
        parts = [part for part in posixpath.normpath("/" + entry.name).split("/") if part]
        if not parts:
            return
        folder = self._folder(parts[:-1], number)
        name = parts[-1]
        if name.startswith(WHITEOUT):
            require_hidden(name)
            self._last = ([], self._root)
        if name == OPAQUE:
            folder.children = {
                key: node for key, node in folder.children.items() if node.layer == number
            }
        elif name.startswith(WHITEOUT):
            hidden = folder.children.get(name.removeprefix(WHITEOUT))
            if hidden is not None and hidden.layer < number:
                del folder.children[name.removeprefix(WHITEOUT)]
        else:
            self._put(tar, entry, folder, name, number)

    def _put(
        self, tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Node, name: str, number: int
    ) -> None:
        before = folder.children.get(name)
        if before is not None and before.kind in "dl":
            self._last = ([], self._root)  # what it leads to may change
        if entry.isdir():
            if before is not None and before.kind == "d":
                before.mtime, before.layer = int(entry.mtime), number
                return
            folder.children[name] = Node(kind="d", layer=number, mtime=int(entry.mtime))
        elif entry.issym():
            folder.children[name] = Node(
                kind="l", layer=number, mtime=int(entry.mtime), target=entry.linkname
            )
        elif entry.islnk():
            linked = self._find(entry.linkname)
            if linked is not None:
                folder.children[name] = linked
        else:
            node = Node(
                kind="f" if entry.isreg() else "o",
                layer=number,
                mtime=int(entry.mtime),
                size=entry.size,
            )
            if entry.isreg() and self._keep(entry.name.lstrip("./"), entry.size):
                file = tar.extractfile(entry)
                node.data = file.read() if file else None
            folder.children[name] = node

    def _folder(self, parts: list[str], number: int) -> Node:
        """Return the folder of an entry: links are followed, missing folders made."""
        if self._last[0] == parts:
            return self._last[1]
        node = self._root
        for part in self.real("/" + "/".join(parts)).split("/"):
            if not part:
                continue
            child = node.children.get(part)
            if child is None or child.kind != "d":
                self._room.take(limits.ENTRY + len(part))
                child = node.children[part] = Node(kind="d", layer=number)
            node = child
        self._last = (parts, node)
        return node

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for part in self.real(path).split("/"):
            if part:
                node = node.children.get(part) if node is not None else None
        return node

    def real(self, path: str) -> str:
        """Return a path with links resolved inside the tree, as os.path.realpath does."""
        todo = [part for part in path.split("/") if part][::-1]
        done: list[tuple[str, Node | None]] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == ".." and done:
                done.pop()
            if part in (".", ".."):
                continue
            at = done[-1][1] if done else self._root
            node = at.children.get(part) if at is not None else None
            if node is None or node.kind != "l" or links >= MOST_LINKS:
                done.append((part, node))
                continue
            links += 1
            if node.target.startswith("/"):
                done = []
            todo += [piece for piece in node.target.split("/") if piece][::-1]
        return "/" + "/".join(name for name, _ in done)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file that was kept, None for any other."""
        node = self._find(path)
        return node.data if node is not None and node.kind == "f" else None

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none for what is no folder."""
        node = self._find(path)
        return sorted(node.children) if node is not None else []

    def kind(self, path: str) -> str | None:
        """Return "d", "f" or "o" (device, pipe) of what a path leads to, None where nothing is."""
        node = self._find(path)
        return node.kind if node is not None and node.kind != "l" else None

    def mtime(self, path: str) -> int | None:
        """Return the modification time in seconds since 1970."""
        node = self._find(path)
        return None if node is None else node.mtime

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that a pattern matches, sorted; a star stays within one name."""
        found = [""]
        for part in pattern.strip("/").split("/"):
            folders, found = found, []
            for folder in folders:
                found += [f"{folder}/{name}" for name in self._matching(folder, part)]
        return sorted(found)

    def _matching(self, folder: str, part: str) -> Iterator[str]:
        if any(char in part for char in "*?["):
            yield from (name for name in self.names(folder) if fnmatch.fnmatchcase(name, part))
        elif self.kind(f"{folder}/{part}") is not None:
            yield part
