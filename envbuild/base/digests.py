"""Digests of images, noted in the store and used while the file does not change."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from envbuild.errors import EnvbuildError
from envbuild.formats import sif_reader as siffile
from envbuild.limits import decode_kept
from envbuild.store.atomic import write_bytes
from envbuild.store.hashing import hash_bytes
from envbuild.store.layout import Store
from envbuild.store.sealed import hash_file

Advance = Callable[[int], None] | None


class _DigestNote(msgspec.Struct, frozen=True):
    """The image digest of a file, with its size, times (ns) and number on its disk.

    ``changed`` is the time that no program can set back (st_ctime), which a renaming or signing
    moves too.
    """

    digest: str
    size: int
    time: int
    inode: int
    changed: int = 0


def _file_state(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns


def known_digest(image: Path, store: Store, advance: Advance = None) -> str:
    """Return an image's digest (``sha256:…``); the file is read only if it has changed.

    ``advance`` is told the bytes that were read.
    """
    return _known_or_fresh(image, store, "", partial(siffile.image_digest, advance=advance))


def known_sha256(file: Path, store: Store, advance: Advance = None) -> str:
    """Return the sha256 (``sha256:…``) of a file, which is read only if it has changed.

    ``advance`` is told the bytes that were read.
    """
    return _known_or_fresh(file, store, "sha256", partial(hash_file, advance=advance))


def _known_or_fresh(file: Path, store: Store, kind: str, compute: Callable[[Path], str]) -> str:
    found = file.stat()
    note = decode_kept(_note_path(file, store, kind), _DigestNote)
    if note and (note.size, note.time, note.inode, note.changed) == _file_state(found):
        return note.digest
    return _compute(file, store, kind, compute)


def fresh_digest(image: Path, store: Store) -> str:
    """Return an image's digest, read as a whole: a disk may change a file without its time."""
    return _compute(image, store, "", siffile.image_digest)


def _compute(file: Path, store: Store, kind: str, compute: Callable[[Path], str]) -> str:
    found = file.stat()
    digest = compute(file)
    with contextlib.suppress(
        OSError, EnvbuildError
    ):  # a store that cannot be written costs time, nothing else
        _write_note(_note_path(file, store, kind), digest, found)
    return digest


def note_digest(image: Path, digest: str, store: Store) -> None:
    """Remember the digest (``sha256:…``) of an image by whoever wrote the file and knows it."""
    _write_note(_note_path(image, store, ""), digest, image.stat())


def _write_note(path: Path, digest: str, found: os.stat_result) -> None:
    note = _DigestNote(digest, *_file_state(found))
    write_bytes(path, msgspec.json.encode(note))


def _note_path(file: Path, store: Store, kind: str) -> Path:
    return store.digest(hash_bytes(os.fsencode(file.resolve()) + kind.encode()))
