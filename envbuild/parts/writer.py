"""Pack a tree into one blob and its index.

Blocks compressed by all cores, the same bytes for any number of them.
"""

from __future__ import annotations

import hashlib
import io
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import BinaryIO

from msgspec import structs

from envbuild import limits
from envbuild.formats.block_codec import BLOCK, Codec
from envbuild.formats.file_tree import NO_FRAGMENT, Part, TreeEntry
from envbuild.limits import Room, require_path
from envbuild.store.hashing import hash_bytes

IN_FLIGHT = 48
"""Blocks read ahead of the one being written."""
PlaceNote = Callable[[int, int], None]
"""What is called with the place and the packed size of a block once it is written."""

Content = tuple[TreeEntry, BinaryIO | bytes | None]
"""An entry, and for files what is in it."""


@dataclass(slots=True)
class FilePlace:
    """Where a file's bytes come to lie; filled while its blocks are written."""

    size: int = 0
    sha256: str = ""
    start: int = 0
    blocks: list[int] = field(default_factory=list)
    fragment: int = NO_FRAGMENT
    offset: int = 0


class PartWriter:
    """Take the entries of a tree one by one, write their packed bytes, return the index in the end.

    The same entries in the same order give the same bytes for any number of workers. One thread
    feeds it.
    """

    def __init__(self, out: BinaryIO, *, codec: Codec, pool: Executor) -> None:
        self._out, self._codec, self._pool = out, codec, pool
        self._written = 0
        self._digest = hashlib.sha256()
        self._waiting: deque[tuple[Future[tuple[bytes, int]], PlaceNote]] = deque()
        # fragments: blocks that many small files share (squashfs.rst), by place and packed size
        self._fragments: list[tuple[int, int]] = []
        # the content of the next fragment, and where small files lie, by their sha256
        self._small = bytearray()
        self._known: dict[str, FilePlace] = {}
        self._entries: dict[str, tuple[TreeEntry, FilePlace | None]] = {}
        self._room: Room | None = None
        self._folders = {""}

    def limit(self, size: int) -> None:
        """Refuse more names than an honest archive of so many bytes can hold.

        Folders count too that the archive does not list itself.
        """
        self._room = Room(limits.most_names(size), "its names take")

    def add(self, entry: TreeEntry, content: BinaryIO | bytes | None = None) -> FilePlace | None:
        """Add an entry and, for a file, read its content to the end.

        A later entry of the same path wins.
        """
        require_path(entry.path)
        require_path(entry.target)
        if self._room is not None:
            self._count(entry, self._room)
        if entry.kind != "f":
            self._entries[entry.path] = (entry, None)
            return None
        stream = io.BytesIO(content or b"") if isinstance(content, bytes | None) else content
        block = _read_block(stream)
        place = self._small_file(block) if len(block) < BLOCK else self._large_file(block, stream)
        self._entries[entry.path] = (entry, place)
        return place

    def _count(self, entry: TreeEntry, room: Room) -> None:
        """Take the entry's names out of the room, and those of new folders above it."""
        attributes = sum(len(value) for _, value in entry.xattrs)
        room.take(limits.ENTRY + len(entry.path) + len(entry.target) + attributes)
        folder = entry.path.rpartition("/")[0]
        while folder not in self._folders:
            room.take(limits.ENTRY + len(folder))
            self._folders.add(folder)
            folder = folder.rpartition("/")[0]

    def add_link(self, path: str, target: str) -> bool:
        """Add another name of an entry that was added before; return whether there is one."""
        require_path(path)
        if target not in self._entries:
            return False
        known, place = self._entries[target]
        entry = structs.replace(known, path=path)
        if self._room is not None:
            self._count(entry, self._room)
        self._entries[path] = (entry, place)
        return True

    def add_all(self, contents: Iterable[Content]) -> None:
        """Add entries in their order.  Whatever reading or writing raises passes through."""
        for entry, content in contents:
            self.add(entry, content)

    def finish(self, key: str, *, layer: bool = False) -> Part:
        """Write what is left and return the index; ``layer`` says that it is one of an image."""
        self._flush_fragment()
        while self._waiting:
            self._write_one()
        entries = [self._entries[path] for path in sorted(self._entries)]
        return Part(
            key=key,
            entries=tuple(_entry_at(entry, place) for entry, place in entries),
            fragments=tuple(self._fragments),
            size=self._written,
            sha256=self._digest.hexdigest(),
            layer=layer,
        )

    def _large_file(self, block: bytes, stream: BinaryIO) -> FilePlace:
        digest, place = hashlib.sha256(), FilePlace()
        while block:
            digest.update(block)
            place.size += len(block)
            self._submit(block, lambda at, size: _note_block(place, at, size))
            block = _read_block(stream)
        place.sha256 = digest.hexdigest()
        return place

    def _small_file(self, content: bytes) -> FilePlace:
        sha256 = hash_bytes(content)
        # equal small files (licences, empty __init__.py) are stored once
        if sha256 in self._known or not content:
            return self._known.get(sha256) or FilePlace(sha256=sha256)
        if len(self._small) + len(content) > BLOCK:
            self._flush_fragment()
        place = FilePlace(
            size=len(content), sha256=sha256, fragment=len(self._fragments), offset=len(self._small)
        )
        self._small += content
        self._known[sha256] = place
        return place

    def _flush_fragment(self) -> None:
        if not self._small:
            return
        number = len(self._fragments)
        # its place is known once it is written
        self._fragments.append((0, 0))

        def note(at: int, size: int) -> None:
            self._fragments[number] = (at, size)

        self._submit(bytes(self._small), note)
        self._small.clear()

    def _submit(self, block: bytes, note: PlaceNote) -> None:
        self._waiting.append((self._pool.submit(self._codec.pack, block), note))
        # written in the order of reading, whichever thread is done first:
        # the same bytes on any machine
        while len(self._waiting) > IN_FLIGHT:
            self._write_one()

    def _write_one(self) -> None:
        future, note = self._waiting.popleft()
        data, size = future.result()
        self._out.write(data)
        self._digest.update(data)
        note(self._written, size)
        self._written += len(data)


def _note_block(place: FilePlace, at: int, size: int) -> None:
    if not place.blocks:
        place.start = at
    place.blocks.append(size)


def _read_block(stream: BinaryIO) -> bytes:
    """Read a whole block: streams may give less than was asked for."""
    block = stream.read(BLOCK)
    while len(block) < BLOCK:
        more = stream.read(BLOCK - len(block))
        if not more:
            break
        # a short read is no end: a pipe gives what it has
        block += more
    return block


def _entry_at(entry: TreeEntry, place: FilePlace | None) -> TreeEntry:
    if place is None:
        return entry
    return structs.replace(
        entry,
        size=place.size,
        sha256=place.sha256,
        start=place.start,
        blocks=tuple(place.blocks),
        fragment=place.fragment,
        offset=place.offset,
    )
