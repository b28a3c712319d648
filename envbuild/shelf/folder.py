"""A shelf in a folder: files are written, synced, then linked to a name once."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from envbuild.errors import EnvbuildError, HostError, IntegrityError, SpaceError, UsageError
from envbuild.formats.file_copy import append_file
from envbuild.host import free_bytes
from envbuild.names import Texts
from envbuild.shelf.backend import (
    BIGGEST_TEXT,
    MARKER,
    MARKER_TEXT,
    NAMES,
    SlotTakenError,
    object_path,
    slot_path,
)
from envbuild.shelf.model import SLOT
from envbuild.store.anchored import open_folder
from envbuild.store.sealed import hash_file

STALE = 24 * 3600.0
"""Seconds after which an unfinished file belongs to a publisher that was killed."""
NO_HARD_LINKS = "its file system has no hard links, which make two publishers safe from each other"
NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FolderBackend:
    """A shared folder; files get the mode of the top folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def pieces(self) -> FolderBackend:
        """Images are kept here too."""
        return self

    def refresh(self) -> None:
        """Raise HostError where the folder is gone, UsageError where it is no shelf."""
        with _shelf_errors(self.root):
            there, marked = self.root.is_dir(), (self.root / MARKER).is_file()
        what = "the shelf's folder is not there"
        if there:
            what = f"the folder is there, but it holds no shelf (no {MARKER})"
        if not marked:
            hint = "is its file system mounted here? nothing was changed"
            raise HostError(what, where=self.root, hint=hint)

    def create(self) -> bool:
        """Make a shelf of a missing or empty folder, writable for the group as its parent."""
        with _shelf_errors(self.root):
            if (self.root / MARKER).is_file():
                return False
            filled = self.root.is_dir() and any(self.root.iterdir())
        if filled:
            what = "is no shelf, and not empty"
            raise UsageError(
                what,
                where=self.root,
                hint="name an empty folder, or one that does not exist yet",
            )
        if not self.root.parent.is_dir():
            raise UsageError("there is no such folder", where=self.root.parent)
        if not self.root.is_dir() and not os.access(self.root.parent, os.W_OK):
            what = "there is no such folder, and you may not make it"
            raise UsageError(what, where=self.root, hint="look at the address again")
        with _shelf_errors(self.root):
            if not self.root.is_dir():
                self.root.mkdir()
                # a shelf is for a group: who wants it otherwise makes the folder first, and its
                # mode is kept
                self.root.chmod(0o2775)
            self._put(MARKER, MARKER_TEXT)
        return True

    def slots(self) -> Texts:
        """Return the entries by their file names."""
        try:
            folder = open_folder(self.root, NAMES)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _link_error(error, self.root / NAMES) from error
        try:
            return tuple(sorted(name for name in os.listdir(folder) if SLOT.fullmatch(name)))  # noqa: PTH208  (quick)
        finally:
            os.close(folder)

    def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the files that are there; a link, a device or a giant is refused unread."""
        found = {}
        for path in paths:
            data = _read_file(self.root, path)
            if data is not None:
                found[path] = data
        return found

    def append(self, slot: str, entry: bytes, objects: Mapping[str, bytes]) -> None:
        """Write the objects, then link the entry to its name; a second publisher fails."""
        self.refresh()
        with _shelf_errors(self.root):
            self._sweep()
            for path, data in objects.items():
                self._put(path, data)
            with self._beside() as partial:
                self._write(partial, lambda out: out.write(entry))
                self._claim(partial, self.root / slot_path(slot))

    def has_piece(self, digest: str, size: int) -> bool:
        """Tell whether a piece is there."""
        try:
            found = os.lstat(self.root / object_path(digest))
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == size

    def add_piece(self, digest: str, source: Path, offset: int, size: int) -> None:
        """Copy a piece of an image in; its blocks are shared where the file system can."""
        target = self.root / object_path(digest)
        with _shelf_errors(self.root), self._beside() as partial:
            self._folder(target.parent)
            self._write(partial, lambda out: append_file(source, out, size, offset=offset))
            if hash_file(partial) != digest:
                raise IntegrityError(
                    "changed while it was published", where=source, hint="publish it again"
                )
            with _holding(self.root, target) as folder:
                os.replace(partial, target.name, dst_dir_fd=folder)

    def piece_path(self, digest: str) -> Path:
        """Return the file of a piece."""
        path = self.root / object_path(digest)
        try:
            regular = stat.S_ISREG(os.lstat(path).st_mode)
        except OSError as error:
            hint = "build it instead: envbuild make --mode flat"
            raise IntegrityError(
                "a piece of the image is missing", where=path, hint=hint
            ) from error
        if not regular:
            raise IntegrityError("is no file", where=path)
        return path

    def free_bytes(self) -> int:
        """Return the free bytes of the file system."""
        return free_bytes(self.root)

    def _put(self, path: str, data: bytes) -> None:
        """Write one small file; an equal one stays, a damaged one is replaced."""
        target = self.root / path
        self._folder(target.parent)
        with contextlib.suppress(IntegrityError):
            if _read_file(self.root, path) == data:
                self._repair(target)
                return
        with self._beside() as partial:
            self._write(partial, lambda out: out.write(data))
            with _holding(self.root, target) as folder:
                os.replace(partial, target.name, dst_dir_fd=folder)
                os.fsync(folder)

    def _claim(self, partial: Path, target: Path) -> None:
        self._folder(target.parent)
        with _holding(self.root, target) as folder:
            try:
                os.link(partial, target.name, dst_dir_fd=folder)
            except FileExistsError as error:
                # an NFS server whose answer was lost had made it (open(2))
                if partial.stat().st_nlink != 2:
                    raise SlotTakenError(target.name) from error
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                hint = "put the shelf on another one, or use a git shelf"
                raise HostError(NO_HARD_LINKS, where=self.root, hint=hint) from error
            os.fsync(folder)

    @contextlib.contextmanager
    def _beside(self) -> Iterator[Path]:
        """Lend a name on the shelf's own file system; what is there afterwards is removed."""
        folder = self.root / "tmp"
        self._folder(folder)
        host = os.uname().nodename[:40]
        path = folder / f"{host}-{os.getpid()}-{secrets.token_hex(6)}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _write(self, path: Path, fill: Callable[[BinaryIO], object]) -> None:
        handle = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(handle, "wb") as out:
            fill(out)
            out.flush()
            os.fchmod(out.fileno(), self._modes()[1])
            os.fsync(out.fileno())

    def _modes(self) -> tuple[int, int]:
        """Return the modes of folders and of files: the top folder's, whatever the umask says."""
        top = stat.S_IMODE(self.root.stat().st_mode)
        shared = top & stat.S_IWGRP
        return (top | stat.S_ISGID if shared else top), top & 0o666

    def _folder(self, path: Path) -> None:
        if path == self.root:
            return
        if not path.is_dir():
            self._folder(path.parent)
            with contextlib.suppress(FileExistsError):
                path.mkdir()
        self._repair(path)

    def _repair(self, path: Path) -> None:
        """Give what is ours the mode it should have; what belongs to others is theirs to mend."""
        # by the file itself: its name may be a link to another by the next call
        handle = _open_file(self.root, str(path.relative_to(self.root)), os.O_PATH)
        try:
            found = os.fstat(handle)
            if stat.S_ISLNK(found.st_mode):
                raise IntegrityError("is a link, which a shelf never holds", where=path)
            wanted = self._modes()[0 if stat.S_ISDIR(found.st_mode) else 1]
            if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != wanted:
                Path(f"/proc/self/fd/{handle}").chmod(wanted)
        finally:
            os.close(handle)

    def _sweep(self) -> None:
        """Remove what killed publishers left, by the file server's clock alone."""
        with (
            self._beside() as now,
            contextlib.suppress(OSError),
            _holding(self.root, now) as folder,
        ):
            now.touch()
            for entry in os.scandir(folder):
                with contextlib.suppress(OSError):
                    if now.stat().st_mtime - entry.stat(follow_symlinks=False).st_mtime > STALE:
                        os.unlink(entry.name, dir_fd=folder)


@contextlib.contextmanager
def _holding(root: Path, path: Path) -> Iterator[int]:
    """Lend the folder of a path that is written: its name may be a link by the next call."""
    try:
        folder = open_folder(root, str(path.parent.relative_to(root)))
    except OSError as error:
        raise _link_error(error, path.parent) from error
    try:
        yield folder
    finally:
        os.close(folder)


def _open_file(root: Path, relative: str, access: int = os.O_RDONLY) -> int:
    parent, _, name = relative.rpartition("/")
    folder = open_folder(root, parent)
    try:
        return os.open(name, access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)


def _link_error(error: OSError, path: Path) -> EnvbuildError:
    """Return the error for a path with a link in it (ELOOP; ENOTDIR for one to a folder)."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
        return IntegrityError("is a link, which a shelf never holds", where=path)
    error.filename = str(path)
    return _shelf_error(error, path)


def _read_file(root: Path, relative: str) -> bytes | None:
    """Return a small regular file, None where there is none."""
    path = root / relative
    try:
        handle = _open_file(root, relative)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _link_error(error, path) from error
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise IntegrityError("is no file", where=path)
    with os.fdopen(handle, "rb") as file:
        if found.st_size > BIGGEST_TEXT:
            what = f"is larger than {BIGGEST_TEXT // 2**20} MiB: too large for such a file"
            raise IntegrityError(what, where=path)
        try:
            return file.read(BIGGEST_TEXT + 1)
        except OSError as error:
            raise _shelf_error(error, path) from error


@contextlib.contextmanager
def _shelf_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _shelf_error(error, path) from error


def _shelf_error(error: OSError, path: Path) -> EnvbuildError:
    """Return the error to raise for what the operating system says about a shelf."""
    where = str(error.filename or path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        is_full = error.errno == errno.ENOSPC
        what = "the shelf's file system is full" if is_full else "the shelf's quota is used up"
        hint = "nothing was published: free space there, then publish again"
        return SpaceError(what, where=where, hint=hint)
    if error.errno in (errno.ENOENT, errno.ESTALE, errno.ENOTCONN, errno.EIO):
        hint = "is its file system mounted here? nothing was published"
        return HostError(f"the shelf went away: {error.strerror}", where=where, hint=hint)
    is_refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
    advice = "ask whoever keeps the shelf; nothing was published" if is_refused else None
    return HostError(f"the shelf cannot be used: {error.strerror}", where=where, hint=advice)
