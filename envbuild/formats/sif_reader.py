"""Read the table of a SIF file: its objects, its digest, and whether it can be a base."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from envbuild.errors import UsageError
from envbuild.limits import open_plain
from envbuild.records import frozen_record

# sylabs/sif, pkg/sif/sif.go: type header
HEADER = struct.Struct("<32s10s3s3s16s8q")
"""The fields of SifHeader, in their order."""
# sylabs/sif, pkg/sif/descriptor.go: type rawDescriptor; 585 bytes, nothing aligned
DESCRIPTOR = struct.Struct("<i?3I7q128s384s")
"""type, used, id, group, link, offset, size, padded size, times (2), uid, gid, name, extra.

585 bytes (SIF 1).
"""
MAGIC = b"SIF_MAGIC\0"
MOST_OBJECTS = 4096
ARCHITECTURES = {
    "01": "i386", "02": "x86_64", "03": "arm", "04": "aarch64", "05": "ppc64", "06": "ppc64le", "07": "mips",
    "08": "mipsle", "09": "mips64", "10": "mips64le", "11": "s390x", "12": "riscv64",
}  # fmt: skip
"""Architecture codes (sylabs/sif, pkg/sif/arch.go) as ``uname -m`` names them."""
PARTITION, SIGNATURE, CRYPT_MESSAGE, OCI_ROOT = 0x4004, 0x4005, 0x4008, 0x400A
"""Data types (sylabs/sif, pkg/sif/descriptor.go)."""
ENCRYPTED = 5
"""File system type "encrypted squashfs"."""
PRIMARY, OVERLAY = 2, 4
"""Partition types "primary system" and "overlay"."""
OTHER_FORMATS = {
    b"hsqs": "a bare squashfs file system (an image of Singularity 2)",
    b"\x1f\x8b": "gzip data",
    b"PK\x03\x04": "a zip archive",
    b"version https://git-lfs": "a Git LFS pointer: fetch the file itself (git lfs pull)",
    b"#!": "a script",
    b"Bootstrap": "a definition: build it first",
}
CHUNK = 1 << 18
"""Bytes read at once: larger ones leave the processor's cache before they are hashed."""


class SifHeader(NamedTuple):
    """The head of a SIF: times in seconds since 1970, places and sizes in bytes.

    ``free`` and ``total`` count the rows of the table.
    """

    launch: bytes
    magic: bytes
    version: bytes
    machine: bytes
    id: bytes
    created: int
    modified: int
    free: int
    total: int
    table: int
    table_size: int
    data: int
    data_size: int


@frozen_record
class SifObject:
    """One data object: where it is in the file (bytes), and what it is.

    ``file_system``, ``partition`` and ``machine`` are set for partitions only (0, 0 and "" else).
    """

    id: int
    data_type: int
    group: int
    offset: int
    size: int
    name: str
    file_system: int = 0
    partition: int = 0
    machine: str = ""


@frozen_record
class SifFile:
    """A SIF's table; ``created`` is in seconds since 1970, 0 where it was cleared."""

    path: Path
    machine: str
    created: int
    size: int
    objects: tuple[SifObject, ...]

    @property
    def primary(self) -> SifObject | None:
        """The partition that holds the root file system."""
        partitions = (item for item in self.objects if item.data_type == PARTITION)
        return next((item for item in partitions if item.partition == PRIMARY), None)

    @property
    def unsigned(self) -> tuple[SifObject, ...]:
        """All objects but signatures, which signing adds."""
        return tuple(item for item in self.objects if item.data_type != SIGNATURE)

    @property
    def overlays(self) -> tuple[SifObject, ...]:
        """The partitions that lie over the root, lowest first."""
        partitions = (item for item in self.objects if item.data_type == PARTITION)
        return tuple(item for item in partitions if item.partition == OVERLAY)

    def read(self, item: SifObject, most: int | None = None) -> bytes:
        """Return the bytes of an object, or the first ones."""
        with self.path.open("rb") as file:
            file.seek(item.offset)
            return file.read(item.size if most is None else min(item.size, most))


def read_sif(path: Path) -> SifFile:
    """Read a SIF's table.

    Raises UsageError for a file that is missing, is no SIF, is of another SIF version, or is cut
    off.
    """
    try:
        with open_plain(path) as file:
            size = file.seek(0, 2)
            file.seek(0)
            return _read_header(file, path, size)
    except FileNotFoundError as error:
        raise UsageError("there is no such file", where=path) from error
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=path) from error


def parse_header(start: bytes) -> SifHeader:
    """Read the first bytes of a SIF."""
    return SifHeader(*HEADER.unpack(start))


def read_chunks(file: BinaryIO, at: int, size: int) -> Iterator[bytes]:
    """Yield bytes of an open file from a place on; fewer where it ends before."""
    file.seek(at)
    while size and (chunk := file.read(min(CHUNK, size))):
        size -= len(chunk)
        yield chunk


def _read_header(file: BinaryIO, path: Path, size: int) -> SifFile:
    start = file.read(HEADER.size)
    if start[32:42] != MAGIC:
        raise UsageError(
            _not_sif_error(start),
            where=path,
            hint="a base is a file made by apptainer build or pull",
        )
    if len(start) < HEADER.size:
        raise _cut_off_error(path, HEADER.size, size)
    header = parse_header(start)
    version, total, table = header.version, header.total, header.table
    if version[:2] != b"01":
        raise UsageError(f"is of SIF version {version[:2]!r}; this version reads 01", where=path)
    if (
        not 0 <= total <= MOST_OBJECTS
        or table < HEADER.size
        or header.table_size < total * DESCRIPTOR.size
    ):
        raise UsageError("has a damaged SIF header", where=path, hint="copy or pull it again")
    end = table + header.table_size
    if end > size:
        raise _cut_off_error(path, end, size)
    file.seek(table)
    raw = file.read(total * DESCRIPTOR.size)
    found = tuple(_read_object(fields) for fields in DESCRIPTOR.iter_unpack(raw) if fields[1])
    for item in found:
        if item.offset < HEADER.size or item.size < 0:
            raise UsageError(
                f"has a damaged SIF table (object {item.id})", where=path, hint="copy it again"
            )
        if item.offset + item.size > size:
            raise _cut_off_error(path, item.offset + item.size, size)
    return SifFile(
        path=path,
        machine=_machine_name(header.machine),
        created=header.created,
        size=size,
        objects=found,
    )


def _read_object(fields: tuple[Any, ...]) -> SifObject:
    data_type, _, number, group, _, offset, size, _, _, _, _, _, name, extra = fields
    is_partition = data_type == PARTITION
    # the extra of a partition: file system, kind of partition, architecture
    file_system, partition = struct.unpack_from("<2i", extra) if is_partition else (0, 0)
    return SifObject(
        id=number,
        data_type=data_type,
        # the highest bits mark a group's number (descrGroupMask)
        group=group & 0x0FFFFFFF,
        offset=offset,
        size=size,
        name=name.rstrip(b"\0").decode("utf-8", "replace"),
        file_system=file_system,
        partition=partition,
        machine=_machine_name(extra[8:11]) if is_partition else "",
    )


def _machine_name(code: bytes) -> str:
    text = code.rstrip(b"\0").decode("ascii", "replace")
    return ARCHITECTURES.get(text, f"unknown ({text})")


def _not_sif_error(start: bytes) -> str:
    if not start:
        return "is empty"
    other = next((name for mark, name in OTHER_FORMATS.items() if start.startswith(mark)), None)
    return f"is not a SIF image but {other}" if other else "is not a SIF image"


def _cut_off_error(path: Path, needed: int, size: int) -> UsageError:
    what = f"is cut off: {size} of at least {needed} bytes are there"
    return UsageError(what, where=path, hint="copy or pull it again")


def image_digest(path: Path, advance: Callable[[int], None] | None = None) -> str:
    """Return ``sha256:…`` over all objects but signatures, in order.

    Of each its type and size, then its bytes. Signing does not change it; adding, removing or
    changing any other object does.  ``advance`` is told the bytes that were read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        # a new image was written past the cache: the disk reads on while a chunk is hashed
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        for item in read_sif(path).unsigned:
            digest.update(
                f"{item.data_type} {item.file_system} {item.partition} {item.size}\n".encode()
            )
            at, end = item.offset, item.offset + item.size
            for chunk in read_chunks(file, at, item.size):
                digest.update(chunk)
                at += len(chunk)
                if advance is not None:
                    advance(len(chunk))
            if at < end:
                raise _cut_off_error(path, end, at)
    return "sha256:" + digest.hexdigest()


def require_base(sif: SifFile, machine: str) -> None:
    """Raise UsageError unless a SIF holds a root that this machine (``uname -m``) can run."""
    where = str(sif.path)
    primary = sif.primary
    kinds = {item.data_type for item in sif.objects}
    if OCI_ROOT in kinds:
        hint = "make a plain one: singularity pull --no-oci base.sif …"
        raise UsageError(
            "is an OCI-SIF, which holds no root file system of its own", where=where, hint=hint
        )
    if primary is None:
        raise UsageError("has no root file system (no primary partition)", where=where)
    if primary.file_system == ENCRYPTED or CRYPT_MESSAGE in kinds:
        hint = "an encrypted image cannot be a base: build it again without --encrypt"
        raise UsageError("is encrypted", where=where, hint=hint)
    held = primary.machine if primary.machine in ARCHITECTURES.values() else sif.machine
    if held != machine:
        hint = f"take an image for {machine}, or work on a {held} machine"
        raise UsageError(f"is for {held}, but this machine is {machine}", where=where, hint=hint)
