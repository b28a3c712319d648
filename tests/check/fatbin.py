"""Write GPU code as NVIDIA's tools pack it: regions of entries, in an ELF section or bare."""

from __future__ import annotations

import struct
from collections.abc import Sequence

MAGIC = 0xBA55ED50
Entry = tuple[str, int]
SUFFIXES = {"a": 1 << 20, "f": 1 << 21}
"""What sm_90a and sm_100f have in the flags of their entries."""


def region(entries: Sequence[Entry], payload: int = 64) -> bytes:
    """Return one region; an entry is ("sass", "ptx", "sass-a", …; capability times ten)."""
    body = b"".join(
        struct.pack(
            "<HHIQ12xI8xI",
            1 if kind.startswith("ptx") else 2,
            0x101,
            64,
            payload,
            capability,
            SUFFIXES.get(kind.partition("-")[2], 0),
        ).ljust(64, b"\0")
        + b"\x50\xed\x55" * (payload // 3)
        + bytes(payload % 3)
        for kind, capability in entries
    )
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body


def library(
    regions: Sequence[bytes], *, section: str | None = ".nv_fatbin", noise: bytes = b""
) -> bytes:
    """Return an ELF file with these regions in a section; None leaves the table of sections out."""
    content = bytes(64) + noise + b"".join(regions)
    if section is None:
        return b"\x7fELF\x02\x01".ljust(64, b"\0") + content[64:]
    names = b"\0" + section.encode() + b"\0.shstrtab\0"
    start = 64 + len(noise)
    rows = [
        (0, 0, 0, 0, 0, 0),
        (1, 1, 2, 0, start, len(content) - start),
        (names.index(b".shstrtab"), 3, 0, 0, len(content), len(names)),
    ]
    table = b"".join(struct.pack("<IIQQQQIIQQ", *row, 0, 0, 1, 0) for row in rows)
    head = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack(
        "<QIHHHHHH", len(content) + len(names), 0, 64, 0, 0, 64, 3, 2
    )
    return head + content[64:] + names + table
