"""Read the tree of a squashfs 4.0 file system inside a file, without mounting it.

Whoever packed it may be hostile: every place and size is checked, and nothing of it is written
anywhere.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envbuild import limits
from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import STORED, unpack_block
from envbuild.formats.file_tree import NO_FRAGMENT, TreeEntry, Xattrs
from envbuild.formats.sif_reader import SifObject
from envbuild.formats.squashfs.layout import (
    COMPRESSORS,
    FRAGMENT,
    INODE_HEAD,
    INODE_TYPES,
    LINK_OR_DEVICE,
    LISTING_HEAD,
    LISTING_ROW,
    LONG,
    LONG_FILE,
    LONG_FOLDER,
    MAGIC,
    METADATA,
    MOST_ENTRIES,
    NONE32,
    NONE64,
    NUMBER,
    SHORT_FILE,
    SHORT_FOLDER,
    SUPERBLOCK,
    UNCOMPRESSED,
    XATTR_KINDS,
    XATTR_NAME,
    XATTR_SET,
    XATTR_TABLE,
    Superblock,
    join_reference,
    split_reference,
)
from envbuild.limits import Room, reading, require_path

DAMAGED = "its file system is damaged"
KINDS = {number: kind for kind, number in INODE_TYPES.items()}
COMPRESSOR_NAMES = {number: name for name, number in COMPRESSORS.items()}
ELSEWHERE = 0x100
"""Bit of an attribute's kind: its value stands at another place of the table."""
BLOCK_ENTRY = 36
"""Bytes that the size of one block takes in memory."""


def read_compressor(path: Path, offset: int) -> str | None:
    """Return what a file system was packed with, None where there is none at this place."""
    with path.open("rb") as file:
        file.seek(offset)
        head = file.read(SUPERBLOCK.size)
    if len(head) < SUPERBLOCK.size:
        return None
    superblock = Superblock(*SUPERBLOCK.unpack(head))
    return COMPRESSOR_NAMES.get(superblock.compressor) if superblock.magic == MAGIC else None


class SquashImage:
    """An open file system; ``offset`` and ``size`` (bytes) are its place in the file.

    ``data_end`` is where its contents end and its tables begin.
    """

    def __init__(self, path: Path, offset: int, size: int) -> None:
        self.path, self.offset, self.size = path, offset, size
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with reading(DAMAGED, str(path)):
                self._read_tables()
        except BaseException:
            self.close()
            raise

    def _read_superblock(self) -> Superblock:
        head = Superblock(*SUPERBLOCK.unpack(self.read(0, SUPERBLOCK.size)))
        if head.magic != MAGIC or head.major != 4:
            raise self.damaged("it has no squashfs 4 superblock")
        size = head.block_size
        # SQUASHFS_FILE_MAX_SIZE; the kernel takes powers of two only
        if not 4096 <= size <= 1 << 20 or size & size - 1:
            raise self.damaged("its superblock has impossible values")
        return head

    def _read_tables(self) -> None:
        head = self._read_superblock()
        self.block_size, self.root = head.block_size, head.root
        self.compressor = COMPRESSOR_NAMES.get(head.compressor, f"compressor {head.compressor}")
        self._inode_table, self._folder_table = head.inode_table, head.folder_table
        self._room = Room(limits.most_names(self.size), f"{DAMAGED}: its tables take")
        self._content = Room(limits.most_content(self.size), f"{DAMAGED}: it unpacks to")
        # the tables may stand in any order, all behind the data
        tables = (head.inode_table, head.folder_table, head.fragment_table, head.id_table)
        self.data_end = min(tables)
        self._block = functools.lru_cache(maxsize=4096)(self._metadata_block)
        self.fragments: list[tuple[int, int]] = []
        if head.fragments:
            rows = self._read_table(head.fragment_table, head.fragments, FRAGMENT.size)
            self.fragments = [(start, packed) for start, packed, _ in FRAGMENT.iter_unpack(rows)]
        ids = self._read_table(head.id_table, head.ids, NUMBER.size)
        self._ids = [number for (number,) in NUMBER.iter_unpack(ids)]
        self._read_xattr_rows(head.xattr_table)

    def _read_xattr_rows(self, at: int) -> None:
        self._xattr_table, self._xattr_rows = 0, b""
        if at == NONE64:
            return
        # squashfs.rst, "Xattr table": its head, then the list of the rows' blocks
        self._xattr_table, count, _ = XATTR_TABLE.unpack(self.read(at, XATTR_TABLE.size))
        if count > limits.ATTRIBUTE_SETS:
            raise self.damaged("its extended attributes are too many")
        self._xattr_rows = self._read_table(at + XATTR_TABLE.size, count, XATTR_SET.size)

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def damaged(self, why: str) -> IntegrityError:
        """Return the error for a file system that cannot be what it says."""
        return IntegrityError(f"{DAMAGED}: {why}", where=self.path, hint="copy or make it again")

    def read(self, at: int, size: int) -> bytes:
        """Return bytes of the file system.  Raises IntegrityError where it does not have them."""
        if at < 0 or size < 0 or at + size > self.size:
            raise self.damaged(f"{size} bytes at {at} are outside of it")
        data = os.pread(self._handle, size, self.offset + at)
        if len(data) != size:
            raise self.damaged("it is cut off")
        return data

    def content(self, at: int, packed: int) -> bytes:
        """Return a data block's content; ``packed`` is its squashfs size."""
        if packed & ~STORED > self.block_size:
            raise self.damaged("a block is larger than any may be")
        data = self.read(at, packed & ~STORED)
        return data if packed & STORED else unpack_block(data, self.compressor, self.block_size)

    def _metadata_block(self, at: int) -> tuple[bytes, int]:
        """Return a metadata block's content, and where the next one begins."""
        (head,) = struct.unpack("<H", self.read(at, 2))
        size = head & ~UNCOMPRESSED
        data = self.read(at + 2, size)
        if not head & UNCOMPRESSED:
            data = unpack_block(data, self.compressor, METADATA)
        return data, at + 2 + size

    def metadata(self, at: int, offset: int, size: int) -> tuple[bytes, int, int]:
        """Return bytes of a chain of metadata blocks, and the place behind them."""
        # most reads are of some bytes; only listings, block lists and values are longer
        if size > METADATA:
            self._room.take(size)  # it is kept in memory as a whole
        parts, left = [], size
        while True:
            data, following = self._block(at)
            piece = data[offset : offset + left]
            parts.append(piece)
            left -= len(piece)
            offset += len(piece)
            if not left:
                return b"".join(parts), at, offset
            if not data:
                raise self.damaged("an empty block of its tables")
            at, offset = following, 0

    def _read_table(self, at: int, count: int, width: int) -> bytes:
        self._room.take(count * limits.ENTRY)
        blocks = -(-count * width // METADATA)
        places = struct.unpack(f"<{blocks}Q", self.read(at, 8 * blocks))
        # a hostile list of places could name one block a million times
        if list(places) != sorted(set(places)):
            raise self.damaged("a table goes back to where it was")
        data = b"".join(self._block(place)[0] for place in places)
        if len(data) < count * width:
            raise self.damaged("a table is too short")
        return data[: count * width]

    def _read_xattrs(self, number: int) -> Xattrs:
        """Return a set of extended attributes, sorted."""
        if number == NONE32:
            return ()
        row = number * XATTR_SET.size
        if row + XATTR_SET.size > len(self._xattr_rows):
            raise self.damaged(f"it has no extended attributes {number}")
        place, count, _ = XATTR_SET.unpack_from(self._xattr_rows, row)
        pairs = []
        total = Room(limits.ATTRIBUTES, "the extended attributes of one file take")
        rows = _Cursor(self, self._xattr_table, place)
        for _ in range(count):
            kind, length = rows.take(XATTR_NAME)
            name = rows.take_bytes(length)
            size = rows.take_number()
            prefix = kind & ~ELSEWHERE
            if prefix >= len(XATTR_KINDS):
                raise self.damaged("an extended attribute is of no known kind")
            total.take(size + len(name) + limits.ATTRIBUTE)
            value = rows.take_bytes(size)
            # equal values of many files are stored once, and named by their place
            if kind & ELSEWHERE:
                (place,) = struct.unpack("<Q", value)
                shared = _Cursor(self, self._xattr_table, place)
                size = shared.take_number()
                total.take(size)
                value = shared.take_bytes(size)
            pairs.append((XATTR_KINDS[prefix] + name.decode(), value))
        return tuple(sorted(pairs))

    def entries(self) -> Iterator[TreeEntry]:
        """Yield the tree, without the hashes of contents.

        Raises IntegrityError for whatever is damaged.
        """
        with reading(DAMAGED, str(self.path)):
            yield from self._walk_tree("", self.root)

    def _walk_tree(self, path: str, reference: int) -> Iterator[TreeEntry]:
        # folders that lead in a circle end here, if the room does not end before
        require_path(path)
        entry, listing = self._read_inode(path, reference)
        attributes = sum(len(value) for _, value in entry.xattrs)
        self._room.take(limits.ENTRY + len(path) + len(entry.target) + attributes)
        yield entry
        if listing is not None:
            for name, child in self._read_listing(*listing):
                yield from self._walk_tree(f"{path}/{name}" if path else name, child)

    def _read_inode(
        self, path: str, reference: int
    ) -> tuple[TreeEntry, tuple[int, int, int] | None]:
        """Return an inode's entry; for a folder also where its listing is, and its size."""
        inode = _Cursor(self, self._inode_table, reference)
        kind, mode, user, group, mtime, _ = inode.take(INODE_HEAD)
        # types 1 to 7 are the short inodes, 8 to 14 the long ones
        long = kind > LONG
        basic = KINDS.get(kind - LONG if long else kind)
        if basic is None or max(user, group) >= len(self._ids):
            raise self.damaged(f"/{path} is of a kind that no image may hold")
        owner = {"uid": self._ids[user], "gid": self._ids[group], "mtime": mtime}
        listing, xattrs = None, NONE32
        more: dict[str, Any] = {}
        if basic == "d" and long:
            _, size, start, _, _, begin, xattrs = inode.take(LONG_FOLDER)
            listing = start, begin, size
        elif basic == "d":
            start, _, size, begin, _ = inode.take(SHORT_FOLDER)
            listing = start, begin, size
        elif basic == "f":
            more, xattrs = self._read_file(inode, long=long)
        else:
            if basic == "l":
                more["target"] = self._read_target(inode, path)
            elif basic in ("b", "c"):
                _, more["device"] = inode.take(LINK_OR_DEVICE)
            else:
                inode.take_number()
            if long:
                xattrs = inode.take_number()
        entry = TreeEntry(path, basic, mode, **owner, **more, xattrs=self._read_xattrs(xattrs))
        return entry, listing

    def _read_file(self, inode: _Cursor, *, long: bool) -> tuple[dict[str, Any], int]:
        """Return where a file's content is, and the number of its extended attributes."""
        xattrs = NONE32
        if long:
            start, size, _, _, fragment, begin, xattrs = inode.take(LONG_FILE)
        else:
            start, fragment, begin, size = inode.take(SHORT_FILE)
        # the rest of a file lies in a fragment, where it has one, else in a block of its own
        if fragment == NONE32:
            count, unpacked, number = -(-size // self.block_size), size, NO_FRAGMENT
        else:
            count, number = size // self.block_size, fragment
            unpacked = size + (self.block_size if count else 0)
        self._content.take(unpacked)
        self._room.take(count * BLOCK_ENTRY)
        blocks = inode.take(struct.Struct(f"<{count}I"))
        place = {"start": start, "blocks": blocks, "fragment": number, "offset": begin}
        return {"size": size, **place}, xattrs

    def _read_target(self, inode: _Cursor, path: str) -> str:
        _, size = inode.take(LINK_OR_DEVICE)
        if size > limits.PATH:
            raise self.damaged(f"/{path} leads nowhere")
        return inode.take_bytes(size).decode()

    def _read_listing(self, start: int, begin: int, size: int) -> Iterator[tuple[str, int]]:
        data, _, _ = self.metadata(self._folder_table + start, begin, max(size - 3, 0))
        at, before = 0, b""
        while at < len(data):
            count, block, _ = LISTING_HEAD.unpack_from(data, at)
            at += LISTING_HEAD.size
            for _ in range(min(count + 1, MOST_ENTRIES)):
                offset, _, _, length = LISTING_ROW.unpack_from(data, at)
                begin = at + LISTING_ROW.size
                at = begin + length + 1
                name = data[begin:at]
                if name in (b".", b"..") or b"/" in name or b"\0" in name:
                    raise self.damaged(f"it holds a file named {name!r}")
                if name <= before:  # of two files of one name a kernel would show the other one
                    raise self.damaged(f"a folder is not in order at {name!r}")
                before = name
                yield name.decode(), join_reference(block, offset)


class _Cursor:
    """A place in a chain of metadata blocks, which moves behind what is read."""

    def __init__(self, image: SquashImage, table: int, reference: int) -> None:
        self._image = image
        block, self._offset = split_reference(reference)
        self._at = table + block

    def take(self, fields: struct.Struct) -> tuple[Any, ...]:
        """Return the next fields."""
        return fields.unpack(self.take_bytes(fields.size))

    def take_number(self) -> int:
        """Return the next number of 32 bits."""
        return int.from_bytes(self.take_bytes(4), "little")

    def take_bytes(self, size: int) -> bytes:
        """Return the next bytes."""
        data, self._at, self._offset = self._image.metadata(self._at, self._offset, size)
        return data


def open_partition(path: Path, item: SifObject) -> contextlib.closing[SquashImage]:
    """Open the file system of a partition of a SIF; it is closed by a with statement."""
    return contextlib.closing(SquashImage(path, item.offset, item.size))
