"""What a SIF holds beside its objects: header, launch line, table, and the bytes between.

Signatures are left out.  Together with the image digest, which is over the objects, it is the whole
file as it was before anybody signed it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from envbuild.formats.sif_reader import (
    DESCRIPTOR,
    HEADER,
    SIGNATURE,
    SifFile,
    parse_header,
    read_chunks,
    read_sif,
)
from envbuild.names import Texts

LAUNCH = b"#!/usr/bin/env run-singularity\n"
"""The first line of a SIF, by which a kernel starts it: ./image.sif runs what it names."""


def frame_digest(path: Path) -> str:
    """Return ``sha256:…`` over everything but the objects, as it was before the file was signed.

    Raises UsageError for what is no SIF.
    """
    sif = read_sif(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        header, table, signed = _unsigned_objects(file, sif)
        digest.update(header + table)
        end = _end_of_content(sif)
        for at, size in _find_gaps(file, sif):
            for chunk in read_chunks(file, at, size):
                # behind the last object is only what signing put there, aligned by zeros
                if at < end or not signed or chunk.strip(b"\0"):
                    digest.update(b"%d\n" % at + chunk)
    return "sha256:" + digest.hexdigest()


def strange_frame(path: Path) -> Texts:
    """Return, in words, what neither packing nor signing puts there: hidden code or data."""
    sif = read_sif(path)
    found = []
    with path.open("rb") as file:
        start = file.read(HEADER.size)
        line = parse_header(start).launch.rstrip(b"\0")
        if line != LAUNCH:
            text = line.decode("ascii", "replace")
            found.append(f"the launch line, which ./{path.name} runs: {text!r}")
        rows = enumerate(_read_table(file, start), 1)
        filled = [str(number) for number, row in rows if not _object_kind(row) and row.strip(b"\0")]
        if filled:
            listed = ", ".join(filled[:8])
            found.append(f"descriptors that are not in use hold something: {listed}")
        for at, size in _find_gaps(file, sif):
            if any(chunk.strip(b"\0") for chunk in read_chunks(file, at, size)):
                found.append(f"bytes {at} to {at + size} belong to no object and are not empty")
    return tuple(found)


def _unsigned_objects(file: BinaryIO, sif: SifFile) -> tuple[bytes, bytes, bool]:
    """Return header and table without signatures, and whether there are any."""
    file.seek(0)
    start = file.read(HEADER.size)
    rows = _read_table(file, start)
    # a signature takes a free row and is written behind the last object: without both, header and
    # table are as they were before
    kept = [row if _object_kind(row) != SIGNATURE else bytes(DESCRIPTOR.size) for row in rows]
    signatures = sum(row != other for row, other in zip(rows, kept, strict=True))
    if signatures:
        header = parse_header(start)
        size = _end_of_content(sif) - header.data
        # signing tells its time; a file of ours was never changed before
        unsigned = header._replace(
            modified=header.created, free=header.free + signatures, data_size=size
        )
        start = HEADER.pack(*unsigned)
    return start, b"".join(kept), bool(signatures)


def _end_of_content(sif: SifFile) -> int:
    """Return the place behind the last object that is no signature."""
    return max((item.offset + item.size for item in sif.unsigned), default=0)


def _object_kind(row: bytes) -> int:
    """Return a row's type of data, 0 for one that is not in use (pkg/sif/descriptor.go)."""
    kind, is_used, *_ = DESCRIPTOR.unpack(row)
    return kind if is_used else 0


def _read_table(file: BinaryIO, start: bytes) -> list[bytes]:
    header = parse_header(start)
    file.seek(header.table)
    raw = file.read(header.total * DESCRIPTOR.size)
    return [raw[at : at + DESCRIPTOR.size] for at in range(0, len(raw), DESCRIPTOR.size)]


def _find_gaps(file: BinaryIO, sif: SifFile) -> Iterator[tuple[int, int]]:
    """Yield place and size of the bytes that are neither header, table nor object."""
    file.seek(0)
    header = parse_header(file.read(HEADER.size))
    spans = [(0, HEADER.size), (header.table, header.total * DESCRIPTOR.size)]
    spans += [(item.offset, item.size) for item in sif.objects]
    at = 0
    for begin, size in sorted(spans):
        # objects are aligned: between them are zeros, and nothing else should be there
        if begin > at:
            yield at, begin - at
        at = max(at, begin + size)
    if sif.size > at:
        yield at, sif.size - at
