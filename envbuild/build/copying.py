"""Copy bytes between files: shared blocks where the file system can, inside the kernel elsewhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

from envbuild.errors import IntegrityError

STEP = 1 << 26
UNABLE = (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.EBADF)
"""What copy_file_range says where it cannot (copy_file_range(2))."""


def append_file(source: Path, out: BinaryIO, size: int, *, offset: int = 0) -> None:
    """Copy ``size`` bytes of a file, from ``offset`` on, to the current place of ``out``.

    Raises as copy_into does.
    """
    out.flush()
    begin = out.tell()
    copy_into(source, out.fileno(), begin, size, offset=offset)
    out.seek(begin + size)


def copy_into(source: Path, target: int, at: int, size: int, *, offset: int = 0) -> None:
    """Copy ``size`` bytes of a file, from ``offset`` on, to the place ``at`` of an open file; safe in several threads.

    Raises IntegrityError when the file is shorter, OSError when writing fails.
    """
    with source.open("rb", buffering=0) as file:
        done = _share(file.fileno(), target, size, offset, at)
        while done < size:
            chunk = os.pread(file.fileno(), min(size - done, 1 << 22), offset + done)
            if not chunk:
                raise IntegrityError("is shorter than recorded", where=str(source), hint="run: envbuild store verify")
            write_at(target, chunk, at + done)
            done += len(chunk)


def write_at(target: int, data: bytes, at: int) -> None:
    """Write bytes at a place of an open file."""
    view = memoryview(data)
    while view:
        written = os.pwrite(target, view, at)
        view, at = view[written:], at + written


def _share(source: int, target: int, size: int, offset: int, at: int) -> int:
    """Let the kernel copy; return how many bytes it did."""
    done = 0
    while done < size:
        try:
            copied = os.copy_file_range(source, target, min(size - done, STEP), offset + done, at + done)
        except OSError as error:
            if error.errno in UNABLE:
                return done
            raise
        if not copied:
            return done
        done += copied
    return done
