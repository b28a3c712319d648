"""Read a conda package: ``.conda`` (a zip of two packed tars, CEP 35) or ``.tar.bz2``."""

from __future__ import annotations

import bz2
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, BinaryIO

import zstandard

from envbuild import limits
from envbuild.conda.metadata import ABOUT, LISTS, WANTED, CondaInfo, read_info
from envbuild.errors import IntegrityError
from envbuild.formats.fast_zip import open_zip
from envbuild.records import frozen_record
from envbuild.tarread import members, open_tar

WINDOW = 1 << 27
"""Bytes that unpacking looks back: what zstd's highest level asks for (``--ultra -22``)."""
Member = tuple[tarfile.TarInfo, BinaryIO | None]


@frozen_record
class CondaArchive:
    """An open package; ``time`` is when it was finished, in seconds (None: it does not say)."""

    raw: BinaryIO
    file: str
    size: int
    info: CondaInfo
    time: int | None

    def members(self) -> Iterator[Member]:
        """Yield what is to be installed, in the order of the archive; read each at once."""
        with _open_tar(self.raw, self.file, self.size, "pkg") as tar:
            for member in members(tar, self.size):
                if not plain_name(member.name).startswith("info/"):
                    yield member, _content(tar, member)


def open_archive(raw: BinaryIO, file: str, size: int) -> CondaArchive:
    """Open a package of so many bytes; ``file`` is its name.

    Raises IntegrityError for what is no such package.
    """
    held: dict[str, bytes] = {}
    time = None
    with _open_tar(raw, file, size, "info") as tar:
        for member in members(tar, size):
            name = plain_name(member.name)
            if name == ABOUT:
                time = int(member.mtime)
            if name not in WANTED or not member.isreg():
                continue
            if member.size > (limits.CONDA_INFO if name in LISTS else limits.TEXT):
                raise IntegrityError(f"its {name} is of {member.size} bytes")
            stream = tar.extractfile(member)
            held[name] = stream.read() if stream else b""
    return CondaArchive(raw=raw, file=file, size=size, info=read_info(held), time=time)


def plain_name(name: str) -> str:
    """Return a member's name without what tar programs put before it."""
    return name.removeprefix("./").rstrip("/")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> BinaryIO | None:
    return tar.extractfile(member) if member.isreg() else None  # type: ignore[return-value]


@contextmanager
def _open_tar(raw: BinaryIO, file: str, size: int, part: str) -> Iterator[tarfile.TarFile]:
    """Open one of the two tars of a package; a ``.tar.bz2`` has both in one."""
    raw.seek(0)
    if file.endswith(".tar.bz2"):
        with bz2.BZ2File(raw) as unpacked, open_tar(unpacked, size, mode="r|") as tar:
            yield tar
        return
    if not file.endswith(".conda"):
        raise IntegrityError("is neither a .conda nor a .tar.bz2 package")
    with open_zip(raw) as archive:
        found = [name for name in archive.namelist() if _is_tar(name, part)]
        if len(found) != 1:
            raise IntegrityError(f"holds {len(found)} archives {part}-….tar.zst, not one")
        with (
            archive.open(found[0]) as packed,
            _unpack_zstd(packed) as unpacked,
            open_tar(unpacked, size, mode="r|") as tar,
        ):
            yield tar


def _is_tar(name: str, part: str) -> bool:
    return name.startswith(f"{part}-") and name.endswith(".tar.zst") and "/" not in name


def _unpack_zstd(packed: IO[bytes]) -> Any:
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW)
    return decompressor.stream_reader(packed, read_across_frames=True, closefd=False)
