"""The layers of an image as one file system, read without running it (OCI layer spec)."""

from __future__ import annotations

import fnmatch
import posixpath
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from envbuild.formats import file_tree
from envbuild.formats.file_tree import EPOCH, Part, TreeEntry, TreeMerger, resolve_links
from envbuild.formats.oci_layer import finish_layer, open_layer, read_mark
from envbuild.limits import reading
from envbuild.parts.from_tar import KINDS
from envbuild.tarread import members

NOT_KEPT = -1


class Tree:
    """The merged file system of layers; paths are absolute, links lead inside it only.

    ``keep`` says of a path and its size in bytes whether the content will be read.
    """

    def __init__(self, keep: Callable[[str, int], bool]) -> None:
        self._keep = keep
        self._merger = TreeMerger(lenient=True)
        # an entry's ``start`` is the place of its content in this list
        self._contents: list[bytes] = []
        self._tree: file_tree.Tree = {}
        self._names: dict[str, list[str]] = {}

    def add_layer(self, path: Path, diff_id: str | None, *, number: int, where: str) -> None:
        """Lay one layer's tar (plain, gzip or zstd) over what is there.

        Raises IntegrityError for a damaged one, and for one whose content is not ``diff_id``.
        """
        size = path.stat().st_size
        entries = []
        with reading(f"layer {number + 1} is damaged", where), open_layer(path) as (stream, tar):
            for member in members(tar, size):
                entries.append(self._read_member(tar, member))
                tar.members = []  # type: ignore[attr-defined]  # it would keep all of them
            finish_layer(stream, diff_id, f"layer {number + 1}", where)
            layer = Part(
                key="", entries=tuple(entries), fragments=(), size=size, sha256="", layer=True
            )
            self._merger.add(layer)
        self._tree = {}

    def _read_member(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> TreeEntry:
        path = posixpath.normpath("/" + member.name).lstrip("/")
        mark = read_mark(path)
        if mark is not None:
            return TreeEntry(path, mark, 0)
        if member.islnk():
            return TreeEntry(path, "h", 0, target=posixpath.normpath("/" + member.linkname))
        kind, start = KINDS.get(member.type, "p"), NOT_KEPT
        if kind == "f" and self._keep(member.name.lstrip("./"), member.size):
            file = tar.extractfile(member)
            start = len(self._contents)
            self._contents.append(file.read() if file else b"")
        return TreeEntry(
            path,
            kind,
            0,
            mtime=int(member.mtime),
            size=member.size,
            target=member.linkname if kind == "l" else "",
            start=start,
        )

    def _merged(self) -> file_tree.Tree:
        """Return what is there by path, without the leading slash."""
        if not self._tree:
            self._tree, self._names = self._merger.tree(), {}
            for path in filter(None, self._tree):
                folder, _, name = path.rpartition("/")
                self._names.setdefault(folder, []).append(name)
        return self._tree

    def _find(self, path: str) -> TreeEntry | None:
        found = self._merged().get(self.real(path)[1:])
        return found[0] if found is not None else None

    def real(self, path: str) -> str:
        """Return a path with links resolved inside the tree, as os.path.realpath does."""
        return "/" + resolve_links(self._merged(), path)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file that was kept, None for any other."""
        entry = self._find(path)
        if entry is None or entry.kind != "f" or entry.start == NOT_KEPT:
            return None
        return self._contents[entry.start]

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none for what is no folder."""
        folder = self.real(path)[1:]
        return sorted(self._names.get(folder, ()))

    def kind(self, path: str) -> str | None:
        """Return "d", "f" or "o" (device, pipe) of what a path leads to, None where nothing is."""
        entry = self._find(path)
        if entry is None or entry.kind == "l":
            return None
        return entry.kind if entry.kind in ("d", "f") else "o"

    def mtime(self, path: str) -> int | None:
        """Return the modification time in seconds since 1970."""
        entry = self._find(path)
        if entry is None:
            return None
        return 0 if entry.mtime == EPOCH else entry.mtime

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
