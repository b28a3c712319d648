"""The partial file beside a store file: locked, resumable, complete before renaming."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from envbuild.errors import HostError
from envbuild.net.web import StoppedError
from envbuild.store.atomic import commit_file, make_folder, os_errors_as

CHUNK = 1024 * 1024
LOCK_PAUSE = 0.2
"""Seconds between two looks whether the other process has finished."""
MOST_REPLACED = 1000
"""How often the file may have become another between opening and locking it."""


class Partial:
    """What has arrived of one file: ``have`` bytes, hashed as they come.

    ``continued`` says that some of it was written by an earlier process or connection,
    ``restarts`` how often it was begun again.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self.handle = handle
        self.have = 0
        self.continued = False
        self.restarts = 0
        self._digest = hashlib.sha256()

    def adopt(self, limit: int) -> None:
        """Hash what an earlier process left; drop it where it is longer than ``limit``."""
        with os_errors_as(self.path):
            if os.fstat(self.handle).st_size > limit:
                self.restart()
            while chunk := os.read(self.handle, CHUNK):
                self._digest.update(chunk)
                self.have += len(chunk)
        self.continued = self.have > 0

    def append(self, chunk: bytes) -> None:
        """Write the next bytes.  Raises SpaceError or HostError."""
        with os_errors_as(self.path):
            view = memoryview(chunk)
            while view:
                written = os.write(self.handle, view)
                self._digest.update(view[:written])
                self.have += written
                view = view[written:]

    def restart(self) -> None:
        """Forget everything that has arrived."""
        with os_errors_as(self.path):
            os.ftruncate(self.handle, 0)
            os.lseek(self.handle, 0, os.SEEK_SET)
        self.have = 0
        self.restarts += 1
        self.continued = False
        self._digest = hashlib.sha256()

    def sha256(self) -> str:
        """Return the hash of everything that has arrived, in hex."""
        return self._digest.hexdigest()

    def finish(self, final: Path) -> None:
        """Give the file its final name, read-only."""
        commit_file(self.path, final)

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


def partial_path(final: Path) -> Path:
    """Return this user's partial file; another user could not continue or rename it."""
    return final.with_name(f"{final.name}.{os.getuid()}.partial")


def is_complete(final: Path, size: int) -> bool:
    """Tell whether the store has a regular file of this size; a planted link does not count."""
    try:
        found = final.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


@contextlib.contextmanager
def locked_partial(
    final: Path, size: int, *, stop: threading.Event, waiting: Callable[[], None]
) -> Iterator[Partial | None]:
    """Lend the locked partial file of ``final``, or None once another process has made it whole.

    The lock is on the partial file itself and ends with its process.  ``waiting`` is called once
    when another process holds it.  Raises StoppedError when ``stop`` is set meanwhile, HostError
    for a file that somebody keeps replacing.
    """
    path = partial_path(final)
    has_waited, replaced = False, 0
    while not is_complete(final, size):
        with os_errors_as(path):
            make_folder(path.parent)
            handle = _open_regular(path)
            try:
                if _try_lock(handle) and _is_at(path, handle):
                    yield Partial(path, handle)
                    return
                busy = _is_at(path, handle)
            finally:
                os.close(handle)
        if busy and not has_waited:
            waiting()
            has_waited = True
        replaced += not busy
        if replaced > MOST_REPLACED:
            what = "is replaced by another file again and again"
            raise HostError(what, where=path, hint="find out who writes there: envbuild store path")
        if stop.wait(LOCK_PAUSE if busy else 0):
            raise StoppedError
    yield None


def _open_regular(path: Path) -> int:
    """Open a file for reading and writing; anything else under its name is removed first."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    for _ in range(3):
        try:
            handle = os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):
                raise
        else:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return handle
            os.close(handle)
        path.unlink(missing_ok=True)
    raise FileExistsError(errno.EEXIST, "something keeps replacing it by a link", str(path))


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, handle: int) -> bool:
    """Tell whether the name still leads to the open file, which may have been renamed."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False
