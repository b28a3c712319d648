"""Tables of a squashfs file system under construction: metadata blocks, extended attributes."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from typing import BinaryIO

from envbuild import limits
from envbuild.errors import IntegrityError
from envbuild.formats.file_tree import Xattrs
from envbuild.formats.squashfs.layout import (
    METADATA,
    NONE32,
    NONE64,
    NUMBER,
    UNCOMPRESSED,
    XATTR_KINDS,
    XATTR_NAME,
    XATTR_SET,
    XATTR_TABLE,
    join_reference,
)


class MetadataTable:
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
        packed = bytearray()
        for at in range(0, len(self.data), METADATA):
            block = self.data[at : at + METADATA]
            packed += struct.pack("<H", len(block) | UNCOMPRESSED) + block
        return bytes(packed)

    def block_list(self, at: int) -> bytes:
        """Return the list of the blocks' places, where the table begins at ``at``."""
        count = -(-len(self.data) // METADATA)
        places = range(at, at + count * (METADATA + 2), METADATA + 2)
        return struct.pack(f"<{count}Q", *places)


@dataclass(slots=True)
class XattrTables:
    """Extended attributes: their values, and a row for every set of them."""

    values: MetadataTable = field(default_factory=MetadataTable)
    rows: MetadataTable = field(default_factory=MetadataTable)
    numbers: dict[Xattrs, int] = field(default_factory=dict)

    def number(self, pairs: Xattrs) -> int:
        """Return the number of a set, NONE32 for an empty one.

        Raises IntegrityError for a name of another kind, and for more than is ever read.
        """
        if not pairs:
            return NONE32
        if pairs not in self.numbers:
            if len(self.numbers) == limits.ATTRIBUTE_SETS:
                raise IntegrityError("no image can hold so many sets of extended attributes")
            self.numbers[pairs] = len(self.numbers)
            self._add_set(pairs)
        return self.numbers[pairs]

    def _add_set(self, pairs: Xattrs) -> None:
        room = limits.Room(limits.ATTRIBUTES, "the extended attributes of one file take")
        reference = join_reference(*self.values.where())
        size = 0
        for name, value in pairs:
            length = len(os.fsencode(name))
            room.take(length + len(value) + limits.ATTRIBUTE)
            kind, rest = _split_name(name)
            size += length + 1
            self.values.data += XATTR_NAME.pack(kind, len(rest)) + rest
            self.values.data += NUMBER.pack(len(value)) + value
        self.rows.data += XATTR_SET.pack(reference, len(pairs), size)

    def write(self, out: BinaryIO, at: int) -> tuple[int, int]:
        """Write the tables.

        Return where the list of rows begins (NONE64: there are none), and where it ends.
        """
        if not self.numbers:
            return NONE64, at
        rows_at = at + out.write(self.values.packed())
        begin = rows_at + out.write(self.rows.packed())
        tail = XATTR_TABLE.pack(at, len(self.numbers), 0) + self.rows.block_list(rows_at)
        return begin, begin + out.write(tail)


def _split_name(name: str) -> tuple[int, bytes]:
    """Return the number of an attribute's kind, and the rest of its name."""
    if len(os.fsencode(name)) <= limits.NAME:
        for number, prefix in enumerate(XATTR_KINDS):
            if name.startswith(prefix):
                return number, os.fsencode(name.removeprefix(prefix))
    raise IntegrityError(f"no image can hold the extended attribute {name[:80]!r}")
