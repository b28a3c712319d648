"""Write squashfs file systems that lie: every field is the attack's, metadata is packed by zlib where that helps."""

from __future__ import annotations

import struct
import zlib

from envbuild.formats.squashfs.layout import METADATA, NONE64, SUPERBLOCK, UNCOMPRESSED

MAGIC = 0x73717368
BASE = SUPERBLOCK.size


def metadata(data: bytes, *, packed: bool = False) -> bytes:
    """Return a table's metadata blocks."""
    blocks = b""
    for at in range(0, len(data), METADATA):
        piece = data[at : at + METADATA]
        squeezed = zlib.compress(piece) if packed else piece
        blocks += struct.pack("<H", len(squeezed) | (0 if packed else UNCOMPRESSED)) + squeezed
    return blocks


def folder(size: int, *, start: int = 0, offset: int = 0) -> bytes:
    """Return a folder's inode, whose listing of so many bytes begins there."""
    return struct.pack("<4HII", 1, 0o755, 0, 0, 0, 1) + struct.pack(
        "<IIHHI", start, 2, size + 3, offset, 1
    )


def file(size: int, blocks: bytes = b"", *, start: int = 96) -> bytes:
    """Return a file's long inode without a fragment."""
    fields = struct.pack("<QQQIIII", start, size, 0, 1, 0xFFFFFFFF, 0, 0xFFFFFFFF)
    return struct.pack("<4HII", 9, 0o644, 0, 0, 0, 1) + fields + blocks


def listing(*rows: tuple[str, int]) -> bytes:
    """Return a folder's listing: names and the offsets of their inodes in the first block."""
    body = b""
    for name, offset in rows:
        body += struct.pack("<HhHH", offset, 0, 1, len(name) - 1) + name.encode()
    return struct.pack("<III", len(rows) - 1, 0, 1) + body


def system(
    inodes: bytes,
    listings: bytes,
    *,
    root: int = 0,
    block: int = 131072,
    fragments: tuple[int, bytes] = (0, b""),
    packed: bool = False,
) -> bytes:
    """Return a file system; ``fragments`` are their count and the table's places, each as eight bytes."""
    inode_table = metadata(inodes, packed=packed)
    folder_table = metadata(listings, packed=packed)
    at = BASE + len(inode_table)
    ids_at = at + len(folder_table)
    ids = metadata(struct.pack("<I", 0))
    id_table = ids_at + len(ids)
    fragment_table = id_table + 8
    count, places = fragments
    superblock = SUPERBLOCK.pack(
        MAGIC, 20_000_000, 0, block, count, 1, block.bit_length() - 1, 0, 1, 4, 0,
        root, fragment_table + len(places), id_table, NONE64, BASE, at, fragment_table if count else NONE64, NONE64,
    )  # fmt: skip
    return superblock + inode_table + folder_table + ids + struct.pack("<Q", ids_at) + places


def one_block_table(times: int) -> bytes:
    """A fragment table whose places are all the same block: 16 MB that unpack to 16 GB."""
    inodes, rows = folder(0), b""
    empty = system(inodes, rows)
    zeros = metadata(bytes(METADATA), packed=True)
    places = struct.pack("<Q", len(empty)) * times
    data = system(inodes, rows, fragments=(times * METADATA // 16, places + zeros))
    at = data.index(zeros, BASE)
    return data.replace(struct.pack("<Q", len(empty)) * times, struct.pack("<Q", at) * times)


def folders_of_folders(levels: int, width: int) -> bytes:
    """Few inodes, each folder with many names of the next level's: width to the power of levels names."""
    size = len(folder(0))
    rows, inodes = b"", b""
    for level in range(levels):
        names = listing(*((f"n{number:03d}", (level + 1) * size) for number in range(width)))
        inodes += folder(len(names), start=0, offset=len(rows))
        rows += names
    inodes += folder(0)
    return system(inodes, rows)


def holes(blocks: int) -> bytes:
    """A file of nothing but holes."""
    inode = file(blocks * 131072, bytes(4 * blocks))
    rows = listing(("zeros", 0))
    at = len(inode)
    root = (at // METADATA * (METADATA + 2)) << 16 | at % METADATA
    return system(inode + folder(len(rows)), rows, root=root)


def huge_listing(size: int) -> bytes:
    """A folder whose listing says that it is gigabytes, of zeros that pack to little."""
    inode = struct.pack("<4HII", 8, 0o755, 0, 0, 0, 1) + struct.pack(
        "<IIIIHHI", 2, size, 0, 1, 0, 0, 0xFFFFFFFF
    )
    return system(inode, bytes(64 * METADATA), packed=True)


def circle() -> bytes:
    """A folder that holds itself."""
    rows = listing(("again", 0))
    return system(folder(len(rows)), rows)


def twice() -> bytes:
    """Two files of one name: a kernel shows the first, a table by name keeps the last."""
    inode = file(0)
    rows = listing(("same", 0), ("same", 0))
    return system(inode + folder(len(rows)), rows, root=len(inode))
