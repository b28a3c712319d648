"""Which image was put under which name.

So that making it again can see that nothing has changed.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from envbuild.base.digests import note_digest
from envbuild.limits import decode_kept
from envbuild.store.atomic import write_bytes
from envbuild.store.hashing import hash_bytes
from envbuild.store.layout import Store


class OutputRecord(msgspec.Struct, frozen=True):
    """An image under a final name.

    Its key in the store, its digest ("" where nobody computed it), the file's state. It is trusted
    while the file keeps its size (bytes) and time (nanoseconds).
    """

    key: str
    digest: str
    size: int
    time: int


def record_output(target: Path, store: Store, key: str, digest: str) -> None:
    """Remember that the target is this image."""
    found = target.stat()
    note = OutputRecord(key=key, digest=digest, size=found.st_size, time=found.st_mtime_ns)
    write_bytes(_record_path(target, store), msgspec.json.encode(note))
    if digest:
        note_digest(target, digest, store)


def matching_output(target: Path, store: Store, key: str) -> OutputRecord | None:
    """Return the note of the target where it is this very image already."""
    note = last_output(target, store)
    try:
        found = target.stat()
    except OSError:
        return None
    # size and time, not the content: hashing gigabytes would make every "make" slow
    now = (key, found.st_size, found.st_mtime_ns)
    return note if note and (note.key, note.size, note.time) == now else None


def last_output(target: Path, store: Store) -> OutputRecord | None:
    """Return the note of the last image that was put under a name, whatever is there now."""
    return decode_kept(_record_path(target, store), OutputRecord)


def _record_path(target: Path, store: Store) -> Path:
    return store.delivery(hash_bytes(os.fsencode(target.absolute())))
