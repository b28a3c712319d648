"""Write a squashfs 4.0 file system from packed parts.

Their bytes are copied, only the tables are made anew. The format is the kernel's
(Documentation/filesystems/squashfs.rst, fs/squashfs/squashfs_fs.h). Tables are stored uncompressed:
some megabytes of a large image, read faster, and the same bytes whatever library is there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from envbuild import limits
from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import BLOCK
from envbuild.formats.file_tree import EPOCH, NO_FRAGMENT, Part, Tree, TreeEntry
from envbuild.host import count_processors

SUPERBLOCK = struct.Struct("<5I6H8Q")  # squashfs_super_block (squashfs_fs.h), little-endian
# squashfs_base_inode, the rest of a short file's, squashfs_dir_header and squashfs_dir_entry
INODE_HEAD, SHORT_FILE = struct.Struct("<4HII"), struct.Struct("<4I")
LISTING_HEAD, LISTING_ROW = struct.Struct("<3I"), struct.Struct("<HhHH")


class Superblock(NamedTuple):
    """The fields of a superblock, in their order; tables are named by where they begin (bytes)."""

    magic: int
    inodes: int
    time: int
    block_size: int
    fragments: int
    compressor: int
    block_log: int
    flags: int
    ids: int
    major: int
    minor: int
    root: int
    used: int
    id_table: int
    xattr_table: int
    inode_table: int
    folder_table: int
    fragment_table: int
    export_table: int


MAGIC = 0x73717368  # "hsqs"
# ZLIB_COMPRESSION and those after it, by the kernel's numbers
COMPRESSORS = {"gzip": 1, "lzma": 2, "lzo": 3, "xz": 4, "lz4": 5, "zstd": 6}
FLAGS = 0x0001 | 0x0800
"""Inodes and ids uncompressed."""
PLAIN_XATTRS, NO_XATTRS = 0x0100, 0x0200  # SQUASHFS_NOX, SQUASHFS_NO_XATTR of the flags
XATTR_KINDS = ("user.", "trusted.", "security.")
"""Prefixes of extended attributes by their number; squashfs knows no others."""
NONE32, NONE64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
# squashfs.rst, "Squashfs Filesystem Design": 8 KiB each, bit 15: plain
METADATA, UNCOMPRESSED, PAGE = 8192, 0x8000, 4096
# inode types (squashfs_fs.h); a long one, 7 higher, has more fields
DIRECTORY, FILE, LINK, BLOCK_DEVICE, CHARACTER_DEVICE, PIPE = 1, 2, 3, 4, 5, 6
LONG = 7
"""Added to a kind for inodes with more fields."""
BASIC = {"d": DIRECTORY, "f": FILE, "l": LINK, "b": BLOCK_DEVICE, "c": CHARACTER_DEVICE, "p": PIPE}
Copy = Callable[[int, int], object]
"""Writes a part's bytes to an open file (its descriptor) at a place; is called from any thread."""
COPIERS = 4


class _MetadataTable:
    """Metadata blocks under construction: 8 KiB each, behind a header of two bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def where(self) -> tuple[int, int]:
        """Return where the next byte goes.

        Its block's offset in the table, and its offset in the block.
        """
        block, offset = divmod(len(self.data), METADATA)
        return block * (METADATA + 2), offset

    def packed(self) -> bytes:
        """Return the table as it stands in the file."""
        blocks = (self.data[at : at + METADATA] for at in range(0, len(self.data), METADATA))
        return b"".join(struct.pack("<H", len(block) | UNCOMPRESSED) + block for block in blocks)


@dataclass(slots=True)
class _XattrTables:
    """Extended attributes: their values, and a row for every set of them."""

    values: _MetadataTable = field(default_factory=_MetadataTable)
    rows: _MetadataTable = field(default_factory=_MetadataTable)
    numbers: dict[tuple[tuple[str, bytes], ...], int] = field(default_factory=dict)

    def number(self, pairs: tuple[tuple[str, bytes], ...]) -> int:
        """Return the number of a set, NONE32 for an empty one.

        Raises IntegrityError for a name of another kind, and for more than is ever read.
        """
        if not pairs:
            return NONE32
        if pairs not in self.numbers:
            room = limits.Room(limits.ATTRIBUTES, "the extended attributes of one file take")
            if len(self.numbers) == limits.ATTRIBUTE_SETS:
                raise IntegrityError("no image can hold so many sets of extended attributes")
            self.numbers[pairs] = len(self.numbers)
            block, offset = self.values.where()
            for name, value in pairs:
                room.take(len(os.fsencode(name)) + len(value) + limits.ATTRIBUTE)
                kind = _xattr_kind(name)
                rest = os.fsencode(name.removeprefix(XATTR_KINDS[kind]))
                self.values.data += struct.pack("<HH", kind, len(rest)) + rest
                self.values.data += struct.pack("<I", len(value)) + value
            size = sum(len(os.fsencode(name)) + 1 for name, _ in pairs)
            self.rows.data += struct.pack("<QII", block << 16 | offset, len(pairs), size)
        return self.numbers[pairs]

    def write(self, out: BinaryIO, at: int) -> tuple[int, int]:
        """Write the tables.

        Return where the list of rows begins (NONE64: there are none), and where it ends.
        """
        if not self.numbers:
            return NONE64, at
        rows = at + out.write(self.values.packed())
        packed = self.rows.packed()
        places = range(rows, rows + len(packed), METADATA + 2)
        head = struct.pack("<QII", at, len(self.numbers), 0)
        out.write(packed + head + struct.pack(f"<{len(places)}Q", *places))
        return rows + len(packed), rows + len(packed) + len(head) + 8 * len(places)


def _xattr_kind(name: str) -> int:
    for number, prefix in enumerate(XATTR_KINDS):
        if name.startswith(prefix) and len(os.fsencode(name)) <= limits.NAME:
            return number
    raise IntegrityError(f"no image can hold the extended attribute {name[:80]!r}")


@dataclass(slots=True)
class _InodeTables:
    """Inodes and folders of one image.

    ``starts`` and ``fragments`` say where each part's blob and fragments begin.
    """

    tree: Tree
    epoch: int
    starts: Sequence[int]
    fragments: Sequence[int]
    inodes: _MetadataTable = field(default_factory=_MetadataTable)
    folders: _MetadataTable = field(default_factory=_MetadataTable)
    ids: dict[int, int] = field(default_factory=dict)
    xattrs: _XattrTables = field(default_factory=_XattrTables)
    numbers: dict[str, int] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)

    def build(self) -> int:
        """Write all inodes, children before their folder; return the root's reference."""
        children: dict[str, list[str]] = {
            path: [] for path, (entry, _) in self.tree.items() if entry.kind == "d"
        }
        # the order of bytes, which is that of directory listings
        for number, path in enumerate(sorted(self.tree, key=os.fsencode), start=1):
            self.numbers[path] = number
            if path:
                children[path.rpartition("/")[0]].append(path)
        for path in sorted(filter(None, children), key=_deepest_first):
            self._write_folder(path, children[path])
        self._write_folder("", children[""])
        block, offset = self.places[""]
        return block << 16 | offset

    def _write_folder(self, path: str, children: list[str]) -> None:
        for child in children:
            if self.tree[child][0].kind != "d":
                # a folder's listing names the places of its children's inodes, so these come first
                self._write_inode(child)
        start, offset = self.folders.where()
        # the kernel counts 3 bytes more than the listing has: for "." and ".." (fs/squashfs/dir.c)
        size = self._write_listing(children) + 3
        # the root's parent is a number that no inode has
        parent = self.numbers[path.rpartition("/")[0]] if path else len(self.tree) + 1
        # a folder is also "." in itself and ".." in each folder below it
        links = 2 + sum(self.tree[child][0].kind == "d" for child in children)
        xattrs = self.xattrs.number(self.tree[path][0].xattrs)
        # the short inode has 16 bits for the listing's size, and no place for attributes
        if size <= 0xFFFF and xattrs == NONE32:
            body = struct.pack("<IIHHI", start, links, size, offset, parent)
            self._add_inode(path, DIRECTORY, body)
        else:
            body = struct.pack("<IIIIHHI", links, size, start, parent, 0, offset, xattrs)
            self._add_inode(path, DIRECTORY + LONG, body)

    def _write_listing(self, children: list[str]) -> int:
        before = len(self.folders.data)
        index = 0
        while index < len(children):
            run = self._next_run(children, index)
            block = self.places[children[index]][0]
            first = self.numbers[children[index]]
            rows = [LISTING_HEAD.pack(len(run) - 1, block, first)]
            for child in run:
                name = os.fsencode(child.rpartition("/")[2])
                kind = BASIC[self.tree[child][0].kind]
                delta = self.numbers[child] - first
                offset = self.places[child][1]
                rows += (LISTING_ROW.pack(offset, delta, kind, len(name) - 1), name)
            self.folders.data += b"".join(rows)
            index += len(run)
        return len(self.folders.data) - before

    def _next_run(self, children: list[str], index: int) -> list[str]:
        """Return the next children that may share a header.

        One block of inodes, numbers close by, at most 256.
        """
        # squashfs.rst, "Directories": a header holds block and number,
        # its entries only differences
        block, first = self.places[children[index]][0], self.numbers[children[index]]
        run = []
        for child in children[index : index + 256]:
            if self.places[child][0] != block or self.numbers[child] - first >= 0x7FFF:
                break
            run.append(child)
        return run

    def _write_inode(self, path: str) -> None:
        entry, part = self.tree[path]
        if entry.kind == "f":
            self._write_file(path, entry, part)
        else:
            self._write_special(path, entry)

    def _write_special(self, path: str, entry: TreeEntry) -> None:
        """Write what is neither file nor folder; extended attributes stand behind the rest."""
        xattrs = self.xattrs.number(entry.xattrs)
        long, tail = (0, b"") if xattrs == NONE32 else (LONG, struct.pack("<I", xattrs))
        if entry.kind == "l":
            target = os.fsencode(entry.target)
            body = struct.pack("<II", 1, len(target)) + target
        elif entry.kind == "p":
            body = struct.pack("<I", 1)
        else:
            body = struct.pack("<II", 1, entry.device)
        self._add_inode(path, BASIC[entry.kind] + long, body + tail)

    def _write_file(self, path: str, entry: TreeEntry, part: int) -> None:
        small = entry.fragment != NO_FRAGMENT
        fragment = self.fragments[part] + entry.fragment if small else NONE32
        start = self.starts[part] + entry.start if entry.blocks else 0
        sizes = struct.pack(f"<{len(entry.blocks)}I", *entry.blocks) if entry.blocks else b""
        xattrs = self.xattrs.number(entry.xattrs) if entry.xattrs else NONE32
        # the short inode has 32 bits for place and size
        if start <= NONE32 and entry.size <= NONE32 and xattrs == NONE32:
            body = SHORT_FILE.pack(start, fragment, entry.offset, entry.size)
            self._add_inode(path, FILE, body + sizes)
        else:
            body = struct.pack("<QQQIIII", start, entry.size, 0, 1, fragment, entry.offset, xattrs)
            self._add_inode(path, FILE + LONG, body + sizes)

    def _add_inode(self, path: str, kind: int, body: bytes) -> None:
        entry = self.tree[path][0]
        self.places[path] = self.inodes.where()
        # inodes hold a 16-bit place in the table of ids, not the id
        user = self.ids.setdefault(entry.uid, len(self.ids))
        group = self.ids.setdefault(entry.gid, len(self.ids))
        if len(self.ids) > limits.OWNERS:
            raise IntegrityError(f"no image can hold files of over {limits.OWNERS} owners")
        mtime = self.epoch if entry.mtime == EPOCH else entry.mtime
        number = self.numbers[path]
        self.inodes.data += INODE_HEAD.pack(kind, entry.mode, user, group, mtime, number) + body


def _deepest_first(path: str) -> tuple[int, bytes]:
    return -path.count("/"), os.fsencode(path)


def write_squashfs(
    out: BinaryIO, tree: Tree, parts: Sequence[tuple[Part, Copy]], *, epoch: int, compressor: str
) -> int:
    """Write a file system at the current place of ``out`` and return its size in bytes.

    The place is a multiple of 4096. ``parts`` are the indexes with what writes their blobs, in the
    order that the tree's part numbers mean. ``epoch`` (seconds) is the time of whatever has none of
    its own.
    """
    out.flush()
    begin = out.tell()
    # every blob begins at a page, so that file systems can share its blocks with the store
    starts, at = [], PAGE
    for part, _ in parts:
        starts.append(at)
        at = _page_aligned(at + part.size)
    with ThreadPoolExecutor(min(COPIERS, count_processors()), "copy") as pool:
        # the largest first, so that no thread waits for it in the end
        order = sorted(zip(starts, parts, strict=True), key=lambda item: -item[1][0].size)
        copies = [pool.submit(copy, out.fileno(), begin + start) for start, (_, copy) in order]
        try:
            size = _write_tables(
                out, (begin, at), tree, (parts, starts), epoch=epoch, compressor=compressor
            )
            for done in copies:
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return size


def _write_tables(
    out: BinaryIO,
    place: tuple[int, int],
    tree: Tree,
    packed: tuple[Sequence[tuple[Part, Copy]], Sequence[int]],
    *,
    epoch: int,
    compressor: str,
) -> int:
    """Write everything but the parts' bytes.

    ``place`` is where the file system begins and where its tables do.
    """
    (begin, at), (parts, starts) = place, packed
    fragments, firsts = _list_fragments([part for part, _ in parts], starts)
    tables = _InodeTables(tree, epoch, starts, firsts)
    root = tables.build()
    out.seek(begin + at)
    inode_table = at
    at += out.write(tables.inodes.packed())
    folder_table = at
    at += out.write(tables.folders.packed())
    fragment_table = at = _write_lookup(out, fragments, at)
    at += 8 * -(-len(fragments.data) // METADATA)
    ids = _MetadataTable()
    ids.data += struct.pack(f"<{len(tables.ids)}I", *tables.ids)
    id_table = at = _write_lookup(out, ids, at)
    at += 8 * -(-len(ids.data) // METADATA)
    # tables stand in the order of mksquashfs: inodes, folders, fragments, ids, attributes
    xattr_table, at = tables.xattrs.write(out, at)
    flags = FLAGS | (NO_XATTRS if xattr_table == NONE64 else PLAIN_XATTRS)
    count = len(fragments.data) // 16
    out.write(bytes(_page_aligned(at) - at))
    superblock = Superblock(
        magic=MAGIC,
        inodes=len(tree),
        time=epoch,
        block_size=BLOCK,
        fragments=count,
        compressor=COMPRESSORS[compressor],
        block_log=BLOCK.bit_length() - 1,
        flags=flags,
        ids=len(tables.ids),
        major=4,
        minor=0,
        root=root,
        used=at,
        id_table=id_table,
        xattr_table=xattr_table,
        inode_table=inode_table,
        folder_table=folder_table,
        fragment_table=fragment_table if count else NONE64,
        export_table=NONE64,
    )
    out.seek(begin)
    out.write(SUPERBLOCK.pack(*superblock))
    out.seek(begin + _page_aligned(at))
    return _page_aligned(at)


def _list_fragments(
    parts: Sequence[Part], starts: Sequence[int]
) -> tuple[_MetadataTable, list[int]]:
    """Return the table of all fragments, and the number of each part's first one."""
    table, firsts = _MetadataTable(), []
    for part, start in zip(parts, starts, strict=True):
        firsts.append(len(table.data) // 16)
        # squashfs.rst, "Fragment lookup table": place, size and an unused word for each fragment
        for offset, size in part.fragments:
            table.data += struct.pack("<QII", start + offset, size, 0)
    return table, firsts


def _write_lookup(out: BinaryIO, table: _MetadataTable, at: int) -> int:
    """Write a table and then the list of its blocks' places; return where that list begins."""
    packed = table.packed()  # squashfs.rst: metadata blocks, then a list of their places
    places = range(at, at + len(packed), METADATA + 2)
    out.write(packed + struct.pack(f"<{len(places)}Q", *places))
    return at + len(packed)


def _page_aligned(size: int) -> int:
    return -(-size // PAGE) * PAGE
