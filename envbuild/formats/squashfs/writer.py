"""Write a squashfs 4.0 file system from packed parts.

Their bytes are copied, only the tables are made anew. Tables are stored uncompressed: some megabytes
of a large image, read faster, and the same bytes whatever library is there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import BinaryIO

from envbuild import limits
from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import BLOCK
from envbuild.formats.file_tree import EPOCH, NO_FRAGMENT, Part, Tree, TreeEntry
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
    MOST_ENTRIES,
    NONE32,
    NONE64,
    NUMBER,
    SHORT_FILE,
    SHORT_FOLDER,
    SUPERBLOCK,
    Superblock,
    join_reference,
)
from envbuild.formats.squashfs.tables import MetadataTable, XattrTables
from envbuild.host import count_processors

FLAGS = 0x0001 | 0x0800
"""Inodes and ids uncompressed."""
PLAIN_XATTRS, NO_XATTRS = 0x0100, 0x0200  # SQUASHFS_NOX, SQUASHFS_NO_XATTR of the flags
PAGE = 4096
Copy = Callable[[int, int], object]
"""Writes a part's bytes to an open file (its descriptor) at a place; is called from any thread."""
COPIERS = 4


@dataclass(slots=True)
class _Node:
    """A name of the tree; ``block`` and ``offset`` are its inode's place, once that is written."""

    path: str
    entry: TreeEntry
    part: int
    number: int
    parent: int
    block: int = 0
    offset: int = 0


@dataclass(slots=True)
class _InodeTables:
    """Inodes and folders of one image.

    ``starts`` and ``fragments`` say where each part's blob and fragments begin.
    """

    tree: Tree
    epoch: int
    starts: Sequence[int]
    fragments: Sequence[int]
    inodes: MetadataTable = field(default_factory=MetadataTable)
    folders: MetadataTable = field(default_factory=MetadataTable)
    ids: dict[int, int] = field(default_factory=dict)
    xattrs: XattrTables = field(default_factory=XattrTables)

    def build(self) -> int:
        """Write all inodes, children before their folder; return the root's reference."""
        nodes: dict[str, _Node] = {}
        children: dict[str, list[_Node]] = {}
        # the order of bytes, which is that of directory listings; a folder comes before its names
        for number, path in enumerate(sorted(self.tree, key=os.fsencode), start=1):
            entry, part = self.tree[path]
            folder = path.rpartition("/")[0]
            # the root's parent is a number that no inode has
            parent = nodes[folder].number if path else len(self.tree) + 1
            node = nodes[path] = _Node(path, entry, part, number, parent)
            if entry.kind == "d":
                children[path] = []
            if path:
                children[folder].append(node)
        for path in sorted(filter(None, children), key=_deepest_first):
            self._write_folder(nodes[path], children[path])
        root = nodes[""]
        self._write_folder(root, children[""])
        return join_reference(root.block, root.offset)

    def _write_folder(self, node: _Node, children: list[_Node]) -> None:
        # a folder is also "." in itself and ".." in each folder below it
        links = 2
        for child in children:
            if child.entry.kind == "d":
                links += 1
            else:
                # a listing names the places of its children's inodes, so these come first
                self._write_inode(child)
        start, offset = self.folders.where()
        # the kernel counts 3 bytes more than the listing has: for "." and ".." (fs/squashfs/dir.c)
        size = self._write_listing(children) + 3
        xattrs = self.xattrs.number(node.entry.xattrs)
        # the short inode has 16 bits for the listing's size, and no place for attributes
        is_long = size > 0xFFFF or xattrs != NONE32
        if is_long:
            body = LONG_FOLDER.pack(links, size, start, node.parent, 0, offset, xattrs)
        else:
            body = SHORT_FOLDER.pack(start, links, size, offset, node.parent)
        self._add_inode(node, body, is_long=is_long)

    def _write_listing(self, children: list[_Node]) -> int:
        before = len(self.folders.data)
        index = 0
        while index < len(children):
            run = _next_run(children, index)
            first = run[0]
            rows = [LISTING_HEAD.pack(len(run) - 1, first.block, first.number)]
            for child in run:
                name = os.fsencode(child.path.rpartition("/")[2])
                kind, delta = INODE_TYPES[child.entry.kind], child.number - first.number
                rows += (LISTING_ROW.pack(child.offset, delta, kind, len(name) - 1), name)
            self.folders.data += b"".join(rows)
            index += len(run)
        return len(self.folders.data) - before

    def _write_inode(self, node: _Node) -> None:
        """Write the inode of anything but a folder."""
        entry = node.entry
        if entry.kind == "f":
            self._write_file(node)
            return
        if entry.kind == "l":
            target = os.fsencode(entry.target)
            body = LINK_OR_DEVICE.pack(1, len(target)) + target
        elif entry.kind == "p":
            body = NUMBER.pack(1)
        else:
            body = LINK_OR_DEVICE.pack(1, entry.device)
        xattrs = self.xattrs.number(entry.xattrs)
        is_long = xattrs != NONE32
        if is_long:
            body += NUMBER.pack(xattrs)
        self._add_inode(node, body, is_long=is_long)

    def _write_file(self, node: _Node) -> None:
        entry = node.entry
        fragment = NONE32
        if entry.fragment != NO_FRAGMENT:
            fragment = self.fragments[node.part] + entry.fragment
        start, sizes = 0, b""
        if entry.blocks:
            start = self.starts[node.part] + entry.start
            sizes = struct.pack(f"<{len(entry.blocks)}I", *entry.blocks)
        xattrs = self.xattrs.number(entry.xattrs)
        # the short inode has 32 bits for place and size
        is_long = max(start, entry.size) > NONE32 or xattrs != NONE32
        if is_long:
            body = LONG_FILE.pack(start, entry.size, 0, 1, fragment, entry.offset, xattrs)
        else:
            body = SHORT_FILE.pack(start, fragment, entry.offset, entry.size)
        self._add_inode(node, body + sizes, is_long=is_long)

    def _add_inode(self, node: _Node, body: bytes, *, is_long: bool) -> None:
        entry = node.entry
        node.block, node.offset = self.inodes.where()
        # inodes hold a 16-bit place in the table of ids, not the id
        user = self.ids.setdefault(entry.uid, len(self.ids))
        group = self.ids.setdefault(entry.gid, len(self.ids))
        if len(self.ids) > limits.OWNERS:
            raise IntegrityError(f"no image can hold files of over {limits.OWNERS} owners")
        mtime = self.epoch if entry.mtime == EPOCH else entry.mtime
        kind = INODE_TYPES[entry.kind] + (LONG if is_long else 0)
        self.inodes.data += INODE_HEAD.pack(kind, entry.mode, user, group, mtime, node.number)
        self.inodes.data += body


def _next_run(children: list[_Node], index: int) -> list[_Node]:
    """Return the next children that may share a header.

    One block of inodes, numbers close by, at most 256.
    """
    # squashfs.rst, "Directories": a header holds block and number, its entries only differences
    first = children[index]
    run = []
    for child in children[index : index + MOST_ENTRIES]:
        if child.block != first.block or child.number - first.number >= 0x7FFF:
            break
        run.append(child)
    return run


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
    indexes = [part for part, _ in parts]
    fragments, firsts = _list_fragments(indexes, starts)
    tables = _InodeTables(tree, epoch, starts, firsts)
    with ThreadPoolExecutor(min(COPIERS, count_processors()), "copy") as pool:
        # the largest first, so that no thread waits for it in the end
        order = sorted(zip(starts, parts, strict=True), key=lambda item: -item[1][0].size)
        copies = [pool.submit(copy, out.fileno(), begin + start) for start, (_, copy) in order]
        try:
            size = _write_tables(out, (begin, at), tables, fragments, COMPRESSORS[compressor])
            for done in copies:
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return size


def _write_tables(
    out: BinaryIO,
    place: tuple[int, int],
    tables: _InodeTables,
    fragments: MetadataTable,
    compressor: int,
) -> int:
    """Write everything but the parts' bytes.

    ``place`` is where the file system begins and where its tables do.
    """
    begin, inode_table = place
    root = tables.build()
    out.seek(begin + inode_table)
    # tables stand in the order of mksquashfs: inodes, folders, fragments, ids, attributes
    folder_table = inode_table + out.write(tables.inodes.packed())
    at = folder_table + out.write(tables.folders.packed())
    fragment_table, at = _write_lookup(out, fragments, at)
    ids = MetadataTable()
    for number in tables.ids:
        ids.data += NUMBER.pack(number)
    id_table, at = _write_lookup(out, ids, at)
    xattr_table, at = tables.xattrs.write(out, at)
    size = _page_aligned(at)
    out.write(bytes(size - at))
    count = len(fragments.data) // FRAGMENT.size
    superblock = Superblock(
        magic=MAGIC,
        inodes=len(tables.tree),
        time=tables.epoch,
        block_size=BLOCK,
        fragments=count,
        compressor=compressor,
        block_log=BLOCK.bit_length() - 1,
        flags=FLAGS | (NO_XATTRS if xattr_table == NONE64 else PLAIN_XATTRS),
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
    out.seek(begin + size)
    return size


def _list_fragments(
    parts: Sequence[Part], starts: Sequence[int]
) -> tuple[MetadataTable, list[int]]:
    """Return the table of all fragments, and the number of each part's first one."""
    table, firsts = MetadataTable(), []
    for part, start in zip(parts, starts, strict=True):
        firsts.append(len(table.data) // FRAGMENT.size)
        for offset, size in part.fragments:
            table.data += FRAGMENT.pack(start + offset, size, 0)
    return table, firsts


def _write_lookup(out: BinaryIO, table: MetadataTable, at: int) -> tuple[int, int]:
    """Write a table and then the list of its blocks' places; return where the list begins and ends."""
    begin = at + out.write(table.packed())
    return begin, begin + out.write(table.block_list(at))


def _page_aligned(size: int) -> int:
    return -(-size // PAGE) * PAGE
