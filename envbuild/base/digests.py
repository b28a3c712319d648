"""Digests of images that need not be computed again: noted in the store, believed while a file stays as it is."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from envbuild.base import siffile
from envbuild.errors import EnvbuildError
from envbuild.store.atomic import write_bytes
from envbuild.store.layout import Store


class Note(msgspec.Struct, frozen=True):
    """The image digest of a file, with its size in bytes, times in nanoseconds, and number on its disk.

    ``changed`` is the time that no program can set back (st_ctime), which a renaming or signing moves too.
    """

    digest: str
    size: int
    time: int
    inode: int
    changed: int = 0


def _state(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns


def known_digest(image: Path, store: Store) -> str:
    """Return an image's digest (``sha256:…``); it is read as a whole only where it has changed since the last time."""
    found = image.stat()
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        note = msgspec.json.decode(_path(image, store).read_bytes(), type=Note)
        if (note.size, note.time, note.inode, note.changed) == _state(found):
            return note.digest
    digest = siffile.image_digest(image)
    with contextlib.suppress(OSError, EnvbuildError):  # a store that cannot be written costs time, nothing else
        _note(image, digest, found, store)
    return digest


def note_digest(image: Path, digest: str, store: Store) -> None:
    """Remember the digest (``sha256:…``) of an image by whoever wrote the file and knows it."""
    _note(image, digest, image.stat(), store)


def _note(image: Path, digest: str, found: os.stat_result, store: Store) -> None:
    size, time, inode, changed = _state(found)
    note = Note(digest=digest, size=size, time=time, inode=inode, changed=changed)
    write_bytes(_path(image, store), msgspec.json.encode(note))


def _path(image: Path, store: Store) -> Path:
    return store.digest(hashlib.sha256(os.fsencode(image.resolve())).hexdigest())
