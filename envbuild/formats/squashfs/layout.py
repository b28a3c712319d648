"""The fields of a squashfs 4.0 file system, for what reads one and what writes one.

The format is the kernel's (Documentation/filesystems/squashfs.rst, fs/squashfs/squashfs_fs.h); all
numbers are little-endian.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from envbuild.formats.file_tree import Kind

MAGIC = 0x73717368  # "hsqs"
SUPERBLOCK = Struct("<5I6H8Q")  # squashfs_super_block


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


# ZLIB_COMPRESSION and those after it, by the kernel's numbers
COMPRESSORS = {"gzip": 1, "lzma": 2, "lzo": 3, "xz": 4, "lz4": 5, "zstd": 6}
# squashfs.rst, "Squashfs Filesystem Design": 8 KiB each, bit 15: plain
METADATA, UNCOMPRESSED = 8192, 0x8000
NONE32, NONE64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
"""In place of a number or a place: there is none."""

INODE_TYPES: dict[Kind, int] = {"d": 1, "f": 2, "l": 3, "b": 4, "c": 5, "p": 6}
LONG = 7
"""Added to a type for inodes with more fields."""
INODE_HEAD = Struct("<4HII")  # type, mode, places of user and group, time, number
SHORT_FOLDER = Struct("<IIHHI")  # block of the listing, links, size, place in the block, parent
LONG_FOLDER = Struct("<IIIIHHI")  # links, size, block, parent, indexes, place, attributes
SHORT_FILE = Struct("<4I")  # start, fragment, place in the fragment, size
LONG_FILE = Struct("<QQQIIII")  # start, size, sparse, links, fragment, place, attributes
LINK_OR_DEVICE = Struct("<II")  # links, then the length of the target or the device
NUMBER = Struct("<I")
LISTING_HEAD = Struct("<III")  # entries - 1, block of their inodes, number of the first
LISTING_ROW = Struct("<HhHH")  # place in the block, number - the first's, type, length of name - 1
MOST_ENTRIES = 256
"""Entries of a folder behind one header."""
FRAGMENT = Struct("<QII")  # place, packed size, unused

XATTR_KINDS = ("user.", "trusted.", "security.")
"""Prefixes of extended attributes by their number; squashfs knows no others."""
XATTR_SET = Struct("<QII")  # place of the first value, number of them, size
XATTR_TABLE = Struct("<QII")  # place of the values, number of sets, unused
XATTR_NAME = Struct("<HH")  # kind, length of the rest of the name


def split_reference(reference: int) -> tuple[int, int]:
    """Return a metadata block's offset in its table, and a place in the block."""
    return reference >> 16, reference & 0xFFFF


def join_reference(block: int, offset: int) -> int:
    """Return the one number for a metadata block and a place in it."""
    return block << 16 | offset
