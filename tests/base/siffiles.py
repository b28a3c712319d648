"""Write small SIF files for tests."""

from __future__ import annotations

import struct
from pathlib import Path

from envbuild.formats.sif_reader import DESCRIPTOR, HEADER, MAGIC, PARTITION

Object = tuple[int, bytes, bytes]


def partition(
    data: bytes = b"hsqs root", *, file_system: int = 1, kind: int = 2, arch: bytes = b"02\0"
) -> Object:
    return (PARTITION, data, struct.pack("<2i3s", file_system, kind, arch))


def write_sif(
    path: Path, objects: list[Object], *, created: int = 0, arch: bytes = b"02\0", gap: int = 0
) -> Path:
    """Write a SIF with these (type, data, extra) objects; ``gap`` free descriptors stand before them."""
    total = len(objects) + gap
    offset = start = HEADER.size + total * DESCRIPTOR.size
    table = b"\0" * (gap * DESCRIPTOR.size)
    for number, (data_type, data, extra) in enumerate(objects, 1):
        fields = (
            data_type,
            True,
            number,
            0xF0000001,
            0,
            offset,
            len(data),
            len(data),
            created,
            created,
            0,
            0,
            b"name",
            extra,
        )
        table += DESCRIPTOR.pack(*fields)
        offset += len(data)
    header = HEADER.pack(
        b"#!/usr/bin/env run-singularity\n",
        MAGIC,
        b"01\0",
        arch,
        bytes(16),
        created,
        created,
        gap,
        total,
        HEADER.size,
        len(table),
        start,
        offset - start,
    )
    path.write_bytes(header + table + b"".join(data for _, data, _ in objects))
    return path
