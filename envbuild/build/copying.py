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

    Raises IntegrityError when the file is shorter, OSError when writing fails.
    """
    out.flush()
    begin = out.tell()
    with source.open("rb", buffering=0) as file:
        file.seek(offset)
        left = _share(file.fileno(), out.fileno(), size)
        while left:
            chunk = file.read(min(left, 1 << 22))
            if not chunk:
                raise IntegrityError("is shorter than recorded", where=str(source), hint="run: envbuild store verify")
            view = memoryview(chunk)
            while view:
                view = view[os.write(out.fileno(), view) :]
            left -= len(chunk)
    out.seek(begin + size)


def _share(source: int, target: int, size: int) -> int:
    """Let the kernel copy; return how many bytes are left for us."""
    left = size
    while left:
        try:
            done = os.copy_file_range(source, target, min(left, STEP))
        except OSError as error:
            if error.errno in UNABLE:
                return left
            raise
        if not done:
            return left
        left -= done
    return 0
