"""Read tar archives of strangers: tarfile, with limits on what it believes and keeps in memory."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

from envbuild import limits
from envbuild.limits import Room, require_path

DESCRIBING = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
"""Headers that describe the next member, or all: tarfile reads each as a whole."""
PACKED_MODES = {b"\x1f\x8b": "r:gz", b"BZh": "r:bz2", b"\xfd7zXZ\0": "r:xz"}
"""How a packed tar is opened, by its first bytes (RFC 1952 2.3.1; bzip2; the .xz format 2.1.1.1).

tarfile's own search also takes almost any bytes for the older format of lzma, which has no mark and
lets 13 bytes ask for 4 GiB.
"""


def open_tar(file: IO[bytes] | Any, size: int, *, mode: str = "r:") -> tarfile.TarFile:
    """Open a tar for reading: "r:" (any order), "r|" (one pass), or a mode of PACKED_MODES.

    ``size`` is the file's.
    Raises tarfile.TarError for what is none.  Names are UTF-8 whatever the locale.
    """
    options: Any = {
        "mode": mode,
        "tarinfo": _member_class(size),
        "encoding": "utf-8",
        "errors": "surrogateescape",
    }
    # the caller closes it
    opened: tarfile.TarFile = tarfile.open(fileobj=file, **options)  # noqa: SIM115
    return opened


@contextmanager
def opened_members(path: Path) -> Iterator[tuple[tarfile.TarFile, Iterator[tarfile.TarInfo]]]:
    """Open a tar, packed or not, and its members.  Raises what open_tar and members raise."""
    size = path.stat().st_size
    with path.open("rb") as file, open_tar(file, size, mode=_mode_of(file)) as tar:
        yield tar, members(tar, size)


ReadMember = Callable[[int], bytes | None]
"""Reads at most so many bytes of a member; None for what is no plain file."""


def archive_members(path: Path, *, as_zip: bool) -> Iterator[tuple[str, ReadMember]]:
    """Yield the names in a zip or tar, each with what reads it while it is the current one.

    Raises what zipfile and opened_members raise.
    """
    if as_zip:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                yield info.filename, partial(_read_zipped, archive, info)
        return
    with opened_members(path) as (tar, found):
        for member in found:
            yield member.name, partial(_read_member, tar, member)


def _read_zipped(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int) -> bytes:
    with archive.open(info) as file:
        return file.read(most)


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo, most: int) -> bytes | None:
    file = tar.extractfile(member) if member.isfile() else None
    return None if file is None else file.read(most)


def _mode_of(file: IO[bytes]) -> str:
    """Return the mode in which a tar is opened.  Raises lzma.LZMAError for one that asks too much."""
    start = file.read(limits.KIB)
    file.seek(0)
    mode = next((mode for mark, mode in PACKED_MODES.items() if start.startswith(mark)), "r:")
    if mode == "r:xz":
        import lzma  # late: few archives are packed so, and some builds of Python lack it

        # lzma.open, which tarfile calls, knows no limit: the first bytes say what they ask for
        lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limits.XZ).decompress(start, 1)
    return mode


def members(tar: tarfile.TarFile, size: int) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar that was sent in ``size`` bytes.

    Raises IntegrityError for one that no file system could hold, tarfile.TarError for damage.
    """
    names = Room(limits.most_names(size), "its names take")
    content = Room(limits.most_content(size), "it unpacks to")
    for member in tar:
        if member.size < 0:
            raise tarfile.ReadError("a member of less than no bytes")
        require_path(member.name)
        require_path(member.linkname)
        names.take(limits.ENTRY + len(member.name) + len(member.linkname))
        content.take(member.size)
        yield member


def _member_class(size: int) -> type[tarfile.TarInfo]:
    """Return the class of an archive's members: it refuses headers before tarfile believes them."""
    common = Room(limits.COMMON_HEADERS, "its headers for all members take")
    describing = Room(limits.most_names(size), "its headers take")
    chain = 0

    class LimitedMember(tarfile.TarInfo):
        # The entry point that tarfile's source leaves to subclasses; `frombuf` and `fromtarfile`
        # are no longer called for members since CPython's gh-141707 (Debian's Python
        # 3.11.2-6+deb12u9 has that, 3.11.2-6+deb12u6 has not).
        def _proc_member(self, archive: tarfile.TarFile) -> Any:
            nonlocal chain
            if self.type == tarfile.GNUTYPE_SPARSE:
                raise _sparse()
            if self.type not in DESCRIBING:
                chain = 0
                return self._read_on(archive)
            chain += 1
            if not 0 <= self.size <= limits.HEADER or chain > limits.CHAIN:
                raise tarfile.ReadError(
                    f"a header of {self.size} bytes, number {chain} of one member"
                )
            describing.take(self.size)
            if self.type == tarfile.XGLTYPE:
                common.take(self.size)
            return self._read_on(archive)

        def _read_on(self, archive: tarfile.TarFile) -> Any:
            try:
                return super()._proc_member(archive)  # type: ignore[misc]
            except tarfile.HeaderError as error:
                # `TarFile.next` would take an invalid header for the end of the archive
                raise tarfile.ReadError(str(error)) from error

        # tarfile calls these for the three ways in which pax headers say that a member has holes
        def _proc_gnusparse_00(self, *_: object) -> None:
            raise _sparse()

        _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse_00

    return LimitedMember


def _sparse() -> tarfile.ReadError:
    return tarfile.ReadError("a member with holes, which is of no size that was sent")
