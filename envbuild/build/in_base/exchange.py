"""What a run inside a root is given and what is taken from it.

Two folders, and no name that both sides use. What is given lies in a folder that the run sees
read-only, as copies: never as links to the store. What comes out lies in a fresh folder, which is
opened without following links, and is copied.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from envbuild.errors import IntegrityError
from envbuild.records import frozen_record
from envbuild.runtime import Bind
from envbuild.store.atomic import FICLONE, os_errors_as
from envbuild.store.layout import remove_tree

INSIDE = "/mnt"
"""Where a run sees the folder for what comes out: Debian's and Ubuntu's images have it."""
GIVEN = f"{INSIDE}/in"
STEP = 1 << 22
TEXT_LIMIT = 1 << 20
FILE_LIMIT = 1 << 36
"""Bytes of one result at most.

64 GiB is more than any wheel or layer, and a sparse file may claim more.
"""
NAMES_LIMIT = 100_000
"""Results in one folder at most."""
PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@frozen_record
class Exchange:
    """The folders of one run: ``given`` is seen read-only as /mnt/in, ``out`` is seen as /mnt."""

    given: Path
    out: Path

    def binds(self, *more: tuple[Path, str]) -> tuple[Bind, ...]:
        """Return the binds of both; ``more`` are folders to be read, with names below /mnt."""
        below = ((self.given, "in"), *more)
        for _, name in below:
            with os_errors_as(self.out):
                (self.out / name).mkdir(exist_ok=True)
        return (
            (self.out, INSIDE, True),
            *((folder, f"{INSIDE}/{name}", False) for folder, name in below),
        )

    def write(self, name: str, data: bytes) -> None:
        """Give a file that is made here."""
        path = self.given / name
        with os_errors_as(path):
            make_open(path.parent)
            path.write_bytes(data)
            path.chmod(0o644)


@contextmanager
def open_exchange(work: Path) -> Iterator[Exchange]:
    """Yield the folders of one run, new ones, below a working folder that no run sees."""
    top = work / f"run-{os.urandom(6).hex()}"
    made = Exchange(given=top / "given", out=top / "out")
    with os_errors_as(top):
        for folder in (top, made.given, made.out):
            make_open(folder)
    try:
        yield made
    finally:
        remove_tree(top)


def make_open(folder: Path) -> None:
    """Make a folder that every user may read, whatever the umask.

    A run may have another user id.
    """
    if not folder.is_dir():
        make_open(folder.parent)
        folder.mkdir()
        folder.chmod(0o755)


def open_tree(folder: Path) -> None:
    """Let every user read a tree of ours, whatever the umask was when it was made."""
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if not path.is_symlink():
            path.chmod(mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0))


def give_file(kept: Path, target: Path, sha256: str | None) -> None:
    """Copy a stored file for a run.

    With ``sha256`` (hex) what was copied is hashed. Raises IntegrityError for another file,
    SpaceError, HostError.
    """
    with os_errors_as(target):
        make_open(target.parent)
        with kept.open("rb") as source, target.open("x+b") as out:
            found = _copy_hashed(source, out)
        target.chmod(0o644)
    if sha256 is not None and found != sha256:
        target.unlink()
        hint = "remove it, and it is downloaded again: envbuild store verify"
        raise IntegrityError("does not match the hash in its name", where=kept, hint=hint)


def _copy_hashed(source: BinaryIO, out: BinaryIO) -> str:
    """Copy a file, sharing its blocks where the file system can; return the sha256 of the copy."""
    digest = hashlib.sha256()
    try:
        # a copy-on-write copy: the run gets its own file, and no byte moves
        fcntl.ioctl(out.fileno(), FICLONE, source.fileno())
        shared = True
    except OSError:
        shared = False
    while block := (out if shared else source).read(STEP):
        digest.update(block)
        if not shared:
            out.write(block)
    return digest.hexdigest()


@contextmanager
def result_file(folder: Path, name: str, *, limit: int = FILE_LIMIT) -> Iterator[BinaryIO]:
    """Open a file that a run left; ``name`` is relative to its folder, ``limit`` in bytes.

    Raises IntegrityError for a link, a folder, a FIFO or a device anywhere on the way, and for a
    file that is too large. It may be changed by no run any more, but is never renamed or kept: copy
    it.
    """
    # from here on the descriptor is used, never the name: what it names could be exchanged
    handle = _open_below(folder, name)
    found = os.fstat(handle)
    why = "" if stat.S_ISREG(found.st_mode) else "is no regular file"
    if not why and found.st_size > limit:
        why = f"is larger than {limit} bytes"
    if why:
        os.close(handle)
        raise _refusal(name, why)
    # O_NONBLOCK was for opening a FIFO without waiting for its writer
    os.set_blocking(handle, True)
    with os.fdopen(handle, "rb") as file:
        yield file


def result_bytes(folder: Path, name: str) -> bytes:
    """Return what a file that a run left holds.  Raises IntegrityError as result_file does."""
    with result_file(folder, name, limit=TEXT_LIMIT) as file:
        data = file.read(TEXT_LIMIT + 1)
    if len(data) > TEXT_LIMIT:
        raise _refusal(name, f"is larger than {TEXT_LIMIT} bytes")
    return data


def result_names(folder: Path, name: str) -> list[str]:
    """Return the names in a folder that a run left, sorted.

    Raises IntegrityError for what is no folder.
    """
    handle = _open_below(folder, name)
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            raise _refusal(name, "is no folder")
        with os.scandir(handle) as entries:
            # a folder with a million names is not read to its end
            found = [entry.name for entry, _ in zip(entries, range(NAMES_LIMIT + 1), strict=False)]
    finally:
        os.close(handle)
    if len(found) > NAMES_LIMIT:
        raise _refusal(name, f"holds more than {NAMES_LIMIT} files")
    return sorted(found)


def take_file(folder: Path, name: str, target: Path, *, limit: int = FILE_LIMIT) -> None:
    """Copy a file that a run left to a path of our own.

    Raises IntegrityError as result_file does, SpaceError.
    """
    with (
        result_file(folder, name, limit=limit) as source,
        os_errors_as(target),
        target.open("xb") as out,
    ):
        left = os.fstat(source.fileno()).st_size
        while left and (block := source.read(min(STEP, left))):
            out.write(block)
            left -= len(block)
    target.chmod(0o644)


def _open_below(folder: Path, name: str) -> int:
    """Return a descriptor of what lies at a relative name, no part of which is a link."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise _refusal(name, "leaves its folder")
    handle = os.open(folder, PLAIN | os.O_DIRECTORY)
    try:
        for number, part in enumerate(parts, 1):
            kind = 0 if number == len(parts) else os.O_DIRECTORY
            # one folder at a time (openat(2)), so no part of the path can be a link
            inner = os.open(part, PLAIN | kind, dir_fd=handle)
            os.close(handle)
            handle = inner
    except OSError as error:
        os.close(handle)
        raise _refusal(name, f"cannot be opened: {error.strerror}") from error
    return handle


def _refusal(name: str, why: str) -> IntegrityError:
    hint = "a package or image that does this is broken, or means harm"
    return IntegrityError(f"what the build left {why}", where=name, hint=hint)
