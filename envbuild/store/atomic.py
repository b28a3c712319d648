"""Write files so that nothing half-made ever carries a final name: write beside, sync, rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from envbuild.errors import HostError, SpaceError, UsageError
from envbuild.limits import open_plain
from envbuild.names import Texts

COPIED = 4 * 1024 * 1024
"""Bytes of a file that are copied at once."""
FICLONE = 0x40049409
"""ioctl that shares a file's blocks copy-on-write (linux/fs.h, ioctl_ficlone(2))."""
PARTIAL = ".partial"
"""Ending of a file that is being written beside its final name."""
BROKEN = "its disk or file server fails: ask who keeps it, or use a folder on another one"
HINTS = {
    **dict.fromkeys((errno.EIO, errno.ESTALE, errno.ENOTCONN), BROKEN),
    errno.EFBIG: "files may not become so large here: ulimit -f unlimited",
    errno.EMFILE: "so many files may not be open here: ulimit -n 1024",
}
"""What to do about errors that say nothing of it themselves."""


@contextlib.contextmanager
def os_errors_as(path: Path) -> Iterator[None]:
    """Turn the system's errors into ours: full disk, quota, permission, read-only."""
    try:
        yield
    except OSError as error:
        raise error_of_os(error, path) from error


def is_older(path: Path, seconds: float) -> bool:
    """Tell whether a file was last changed so long ago.  Raises OSError where it is gone."""
    return time.time() - path.stat().st_mtime > seconds


def size_of(path: Path) -> int:
    """Return the size in bytes of a file itself, of what is not there 0."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def error_of_os(error: OSError, path: Path) -> HostError | SpaceError:
    """Return the error to raise for an OSError met while writing to a path."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        is_full = error.errno == errno.ENOSPC
        full = "the file system is full" if is_full else "the disk quota is used up"
        hint = "free space there, or point TMPDIR or ENVBUILD_STORE to a larger file system"
        return SpaceError(full, where=path, hint=hint)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return HostError(
            f"cannot be written: {error.strerror}",
            where=path,
            hint="choose a folder that you may write to",
        )
    known = HINTS.get(error.errno or 0)
    return HostError(f"cannot be used: {error.strerror}", where=path, hint=known)


def publish(partial: Path, target: Path) -> None:
    """Give a finished image, executable as all are, its final name."""
    with os_errors_as(target):
        partial.chmod(0o755)
        partial.replace(target)
        sync_folder(target.parent)


def refuse_special(target: Path) -> None:
    """Raise UsageError for a device or pipe: a new file would take its place, where root writes it."""
    is_special = target.exists() and not target.is_file() and not target.is_dir()
    if is_special or target.parent.resolve() == Path("/dev"):
        raise UsageError("is no plain file", where=target, hint="name a new file in a folder")


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable; file systems that cannot are left alone."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_file(file: IO[bytes]) -> None:
    """Bring what was written into an open file to the disk.  Raises OSError."""
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def sync_meanwhile(path: Path) -> Iterator[None]:
    """Bring a file to the disk while something else is done.  Raises SpaceError or HostError."""
    from concurrent.futures import ThreadPoolExecutor

    def sync() -> None:
        with os_errors_as(path), path.open("rb") as file:
            os.fsync(file.fileno())

    with ThreadPoolExecutor(1, "sync") as pool:
        future = pool.submit(sync)
        yield
        future.result()


def make_folder(path: Path) -> None:
    """Make a folder and those above it, shared with the group where their parent is.

    So one user's umask shuts nobody else out of a lab's store, and lets nobody else write where
    the parent does not.  Raises OSError.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        if is_shared(folder.parent):
            _make_shared(folder)
        else:
            others = folder.parent.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            folder.mkdir(0o755 | others, exist_ok=True)


def make_own_folder(path: Path) -> None:
    """Make a folder that nobody else may write to, whatever the umask; one that is there stays.

    In a folder that a group shares, it is shared.
    """
    if not path.exists():
        make_folder(path.parent)
        if not is_shared(path.parent):
            path.mkdir(0o755, exist_ok=True)
    make_folder(path)


def _make_shared(folder: Path) -> None:
    """Make a folder with its parent's mode at once, so that members can write to it."""
    parent = os.open(folder.parent, os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a network file system may lock no folders
            fcntl.flock(parent, fcntl.LOCK_EX)
        # a rename takes the place of an empty folder, in which another process makes a file now
        if folder.is_dir():
            return
        made = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
        made.chmod(stat.S_IMODE(os.fstat(parent).st_mode))
        try:
            made.rename(folder)
        except OSError:
            made.rmdir()
            if not folder.is_dir():
                raise
    finally:
        os.close(parent)


def make_empty(path: Path, mode: int) -> None:
    """Make an empty file with its final mode at once; an existing one stays."""
    if path.exists():
        return
    handle, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        os.fchmod(handle, mode)
        with contextlib.suppress(
            OSError
        ):  # another was faster, or the file system has no links: it is made as usual
            os.link(name, path)
    finally:
        os.close(handle)
        Path(name).unlink(missing_ok=True)


def is_shared(folder: Path) -> bool:
    """Tell whether a group shares a folder."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_ISGID and mode & stat.S_IWGRP)


def write_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write a text file whole or not at all.  Raises SpaceError or HostError."""
    write_bytes(path, text.encode(), mode=mode)


def write_bytes(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file whole or not at all.  Raises SpaceError or HostError."""
    with writing_beside(path, mode) as file:
        file.write(data)
        sync_file(file)


@contextlib.contextmanager
def writing_beside(path: Path, mode: int) -> Iterator[IO[bytes]]:
    """Open a new file beside this path: it takes its place at the end, or is removed."""
    with os_errors_as(path):
        make_folder(path.parent)
        file, partial = _open_partial(path)
        try:
            with file:
                yield file
                partial.chmod(mode)
                partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def _open_partial(path: Path) -> tuple[IO[bytes], Path]:
    """Open a new file beside this path, locked while its process writes it."""
    while True:
        handle, name = tempfile.mkstemp(
            prefix=_partial_start(path), suffix=PARTIAL, dir=path.parent
        )
        with contextlib.suppress(OSError):  # a network file system may lock no files
            fcntl.flock(handle, fcntl.LOCK_SH)
        if os.fstat(handle).st_nlink:  # else it was cleared before it was locked
            return os.fdopen(handle, "wb"), Path(name)
        os.close(handle)


def _partial_start(path: Path) -> str:
    return f".{path.name[:64]}."


@functools.lru_cache(maxsize=4)
def _list_partials(folder: Path, _changed: int) -> Texts:
    """List what is half written in a folder; a folder of thousands of recipes is listed once."""
    return tuple(name for name in os.listdir(folder) if name.endswith(PARTIAL))  # noqa: PTH208


def clear_partials(path: Path) -> None:
    """Remove what killed processes left of this file beside it; what is being written stays."""
    left = re.compile(f"{re.escape(_partial_start(path))}[a-z0-9_]{{8}}{re.escape(PARTIAL)}")
    with contextlib.suppress(OSError):
        for name in _list_partials(path.parent, path.parent.stat().st_mtime_ns):
            if left.fullmatch(name):
                _remove_dead(path.with_name(name))


def _remove_dead(partial: Path) -> None:
    with contextlib.suppress(OSError, UsageError), open_plain(partial) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        partial.unlink()


def commit_file(temporary: Path, final: Path, *, mode: int = 0o444, sync_name: bool = True) -> None:
    """Give a finished file on the same file system its final name, durably.

    Its name need not be synced where another file is synced into the folder afterwards.
    """
    with os_errors_as(final):
        make_folder(final.parent)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(final)
        if sync_name:
            sync_folder(final.parent)


def clone_file(source: Path, out: IO[bytes], advance: Callable[[int], None] | None = None) -> None:
    """Copy into an open file and sync it: shared blocks where possible, else a copy.

    ``advance`` is told the bytes that were copied.
    """
    with source.open("rb") as file:
        try:
            fcntl.ioctl(out.fileno(), FICLONE, file.fileno())
        except OSError:
            while chunk := file.read(COPIED):
                out.write(chunk)
                if advance is not None:
                    advance(len(chunk))
    sync_file(out)


def link_or_copy(source: Path, target: Path, *, mode: int = 0o644) -> None:
    """Give a file a second name, or copy it to another file system.  Raises OSError."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        target.chmod(mode)


def copy_out(source: Path, target: Path, *, mode: int = 0o644) -> None:
    """Copy a store file out: a reflink where the file system can, else a copy.

    Never a hard link: signing an image in place would change the store's file.
    """
    with writing_beside(target, mode) as out:
        clone_file(source, out)
