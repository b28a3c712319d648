"""Write a SIF file: a header, a table of objects, the objects.

Nothing in it depends on time, host or user.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import BinaryIO

from envbuild.errors import HostError
from envbuild.formats.sif_frame import LAUNCH
from envbuild.formats.sif_reader import (
    ARCHITECTURES,
    DESCRIPTOR,
    HEADER,
    MAGIC,
    OVERLAY,
    PARTITION,
    PRIMARY,
)
from envbuild.records import frozen_record

DESCRIPTORS = 48
"""Room in the table, as Apptainer makes it: a signature later finds a free place."""
TABLE = 4096
DATA = TABLE + DESCRIPTORS * DESCRIPTOR.size
GROUP = 0xF0000001
"""Group 1, which Apptainer signs as a whole.

Objects of no group are ignored by it (sylabs/sif, descriptor.go).
"""
NO_LINK = 0
DEFINITION, JSON, GENERIC, SBOM = 0x4001, 0x4006, 0x4007, 0x4009
SQUASHFS = 1
CYCLONEDX_JSON = struct.pack("<i", 1)
PAGE = 4096


@frozen_record
class SifPart:
    """One object: ``write`` puts it at the file's place and returns its size.

    Partitions begin at a page.
    """

    data_type: int
    name: str
    write: Callable[[BinaryIO], int]
    extra: bytes = b""


def data_object(data_type: int, name: str, content: bytes, *, extra: bytes = b"") -> SifPart:
    """Return an object of plain bytes."""
    return SifPart(
        data_type=data_type, name=name, write=lambda out: out.write(content), extra=extra
    )


def partition_object(
    write: Callable[[BinaryIO], int], *, machine: str, name: str = "", overlay: bool = False
) -> SifPart:
    """Return a squashfs partition for a machine (``uname -m``): the root, or an overlay over it."""
    kind = struct.pack("<ii", SQUASHFS, OVERLAY if overlay else PRIMARY)
    extra = kind + _architecture_code(machine)
    return SifPart(data_type=PARTITION, name=name, write=write, extra=extra)


def _uuid_of(identity: str) -> bytes:
    """Return the UUID of an image: the same image has the same (RFC 9562, version 8)."""
    unique = bytearray(hashlib.sha256(identity.encode()).digest()[:16])
    unique[6] = unique[6] & 0x0F | 0x80  # the version
    unique[8] = unique[8] & 0x3F | 0x80  # the variant
    return bytes(unique)


def write_sif(
    out: BinaryIO, parts: Sequence[SifPart], *, machine: str, epoch: int, identity: str
) -> None:
    """Write a whole SIF from the start of an empty file opened for writing.

    ``epoch`` (seconds) is its only time; its UUID comes from ``identity``.
    """
    at, rows = DATA, []
    for number, part in enumerate(parts, start=1):
        # partitions are mounted in place, by a loop device or FUSE, which want whole pages
        begin = -(-at // PAGE) * PAGE if part.data_type == PARTITION else at
        out.seek(begin)
        size = part.write(out)
        end, name = begin + size, part.name.encode()[:128]
        kind = (part.data_type, True, number, GROUP, NO_LINK)
        place = (begin, size, end - at)
        rows.append(DESCRIPTOR.pack(*kind, *place, epoch, epoch, 0, 0, name, part.extra))
        at = end
    # what a partition wrote last may be a hole
    out.truncate(at)
    out.seek(0)
    out.write(
        HEADER.pack(
            LAUNCH, MAGIC, b"01", _architecture_code(machine), _uuid_of(identity), epoch, epoch,
            DESCRIPTORS - len(parts), DESCRIPTORS, TABLE, DATA - TABLE, DATA, at - DATA,
        )
    )  # fmt: skip
    out.seek(TABLE)
    out.write(b"".join(rows))
    out.seek(at)


def _architecture_code(machine: str) -> bytes:
    for code, name in ARCHITECTURES.items():
        if name == machine:
            return code.encode() + b"\0"
    raise HostError(f"SIF has no code for the architecture {machine}")
