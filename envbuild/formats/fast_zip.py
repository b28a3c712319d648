"""Read zip archives quickly.

Most of the time of packing a wheel goes into inflating it, and isal does that faster. ``isal``
(Intel's ISA-L) inflates 2 to 3 times as fast as zlib, to the same bytes; everything else is
zipfile's.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from isal import isal_zlib

LOCAL_HEADER = struct.Struct("<4s22xHH")
"""Signature and the lengths of name and extra field (APPNOTE.TXT 4.3.7)."""
SIGNATURE = b"PK\x03\x04"
ENCRYPTED = 0x1
CHUNK = 1 << 18
MOST = 1 << 22
"""Bytes inflated at a time: a small archive must not fill the memory."""


END = struct.Struct("<4s6xH4xIH")
"""The record at the end: its sign, how many members, where the table is, the comment's size."""
END_SIGNATURE = b"PK\x05\x06"
OTHER_NAME = 0x7075
"""The extra field with a name in UTF-8 (APPNOTE.TXT 4.6.9), which only some readers take."""


def open_zip(path: Path | BinaryIO) -> zipfile.ZipFile:
    """Open a zip archive for reading.  Raises BadZipFile where readers may see other files."""
    archive = FastZipFile(path)
    require_one_reading(archive)
    return archive


def require_one_reading(archive: zipfile.ZipFile) -> None:
    """Raise BadZipFile where other programs may see other files: with two tables or names."""
    file: Any = archive.fp
    members = archive.infolist()
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - len(archive.comment) - END.size))
    record = file.read(END.size)
    signature, count, table, comment = END.unpack(record.ljust(END.size))
    if signature != END_SIGNATURE or comment != len(archive.comment):
        raise zipfile.BadZipFile("there is content behind its end")
    if END_SIGNATURE in archive.comment:
        raise zipfile.BadZipFile("its comment is the end of another archive")
    # the largest number means that it stands in a record of its own (ZIP64)
    if count not in (len(members), 0xFFFF) or table not in (archive.start_dir, 0xFFFFFFFF):
        raise zipfile.BadZipFile("it has two tables")
    if min((one.header_offset for one in members), default=0):
        raise zipfile.BadZipFile("there is content before its first file")
    for member in members:
        if "\0" in member.orig_filename or not _has_one_name(member):
            raise zipfile.BadZipFile(f"{member.filename[:200]!r} has two names")


def _has_one_name(member: zipfile.ZipInfo) -> bool:
    extra = member.extra
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == OTHER_NAME and extra[9 : 4 + size] != member.orig_filename.encode("utf-8"):
            return False
        extra = extra[4 + size :]
    return True


class BlocksFile(io.RawIOBase):
    """A stream of blocks of any size."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._ready = blocks, memoryview(b"")

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as one block goes; return 0 behind the last one."""
        while not self._ready:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._ready = memoryview(block)
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._ready))
        view[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


class FastZipFile(zipfile.ZipFile):
    """A zip archive opened for reading, whose deflated members are inflated by isal."""

    def open(
        self, name: str | zipfile.ZipInfo, mode: Any = "r", *args: Any, **kwargs: Any
    ) -> IO[bytes]:
        """Return a stream of a member's content.

        Reading raises BadZipFile where it is not what the archive says.
        """
        info = name if isinstance(name, zipfile.ZipInfo) else self.getinfo(name)
        # zipfile asks for as much memory as a member says that it needs
        if mode == "r" and info.header_offset + info.compress_size > self.start_dir:
            raise zipfile.BadZipFile(f"{info.filename} is cut off")
        if (
            mode != "r"
            or info.compress_type != zipfile.ZIP_DEFLATED
            or info.flag_bits & ENCRYPTED
            or self.fp is None
        ):
            return super().open(name, mode, *args, **kwargs)
        file: Any = self.fp
        # the member's own header may have another extra field
        # than the table at the archive's end has
        file.seek(info.header_offset)
        header = file.read(LOCAL_HEADER.size)
        if len(header) != LOCAL_HEADER.size:
            raise zipfile.BadZipFile(f"{info.filename} is cut off")
        signature, name_size, extra_size = LOCAL_HEADER.unpack(header)
        if signature != SIGNATURE:
            raise zipfile.BadZipFile(f"{info.filename} has no local header")
        blocks = _inflated_blocks(file, file.tell() + name_size + extra_size, info)
        return io.BufferedReader(BlocksFile(blocks), CHUNK)


def _inflated_blocks(file: BinaryIO, at: int, info: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the content of one member; others may read the archive's file between two blocks.

    Raises BadZipFile for damage, and for more than was announced: a bomb ends there.
    """
    # raw deflate with the largest window (RFC 1951), without zlib's header
    inflater = isal_zlib.decompressobj(-15)
    left, size, crc = info.compress_size, 0, 0
    ended = False
    while not ended:
        data = inflater.unconsumed_tail
        if not data and left:
            file.seek(at)
            data = file.read(min(CHUNK, left))
            if not data:
                raise zipfile.BadZipFile(f"{info.filename} is cut off")
            at += len(data)
            left -= len(data)
        piece = _inflate_some(inflater, data, info)
        size += len(piece)
        crc = isal_zlib.crc32(piece, crc)
        if size > info.file_size:
            raise zipfile.BadZipFile(f"{info.filename} is longer than the archive says")
        ended = inflater.eof or not (data or piece)
        # before the last block is given away: who reads as much as was announced sees no end
        if ended and (size, crc) != (info.file_size, info.CRC):
            raise zipfile.BadZipFile(f"Bad CRC-32 for file {info.filename!r}")
        yield piece


def _inflate_some(inflater: Any, data: bytes, info: zipfile.ZipInfo) -> bytes:
    error_class: Any = isal_zlib.IsalError  # its stub says an instance
    try:
        piece: bytes = inflater.decompress(data, MOST)
    except error_class as error:
        raise zipfile.BadZipFile(f"{info.filename} is damaged: {error}") from error
    return piece
