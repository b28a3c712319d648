"""What an image carries about itself: the note of its making and its lock, as objects of the SIF."""

from __future__ import annotations

from pathlib import Path

import msgspec

from envbuild.build.image.metadata import ImageNote
from envbuild.build.image.origin import NOTE
from envbuild.errors import IntegrityError
from envbuild.formats.sif_reader import SifFile, SifObject, read_sif
from envbuild.limits import UNREADABLE
from envbuild.lock.model import Lock
from envbuild.lock.read import parse_lock
from envbuild.records import frozen_record
from envbuild.store.units import human_bytes

MOST_TEXT = 64 * 1024 * 1024
"""Bytes of an object that are read."""


@frozen_record
class EmbeddedInfo:
    """What an image carries about itself.

    The note of its making, where envbuild put it together, and its lock.
    """

    note: ImageNote | None
    lock: Lock | None


def read_embedded_info(path: Path) -> EmbeddedInfo:
    """Read the objects that envbuild put into a SIF.  Raises UsageError for what is no SIF."""
    sif = read_sif(path)
    note = next((_read_text(sif, item) for item in sif.objects if item.name == NOTE), None)
    lock = next(
        (_read_text(sif, item) for item in sif.objects if item.name.endswith(".lock")), None
    )
    try:
        return EmbeddedInfo(
            note=msgspec.json.decode(note, type=ImageNote) if note else None,
            lock=parse_lock(lock, f"the lock inside {path.name}") if lock else None,
        )
    except UNREADABLE as error:
        raise IntegrityError(f"its object {NOTE} is damaged: {error}", where=path) from error


def _read_text(sif: SifFile, item: SifObject) -> str:
    if item.size > MOST_TEXT:
        raise IntegrityError(f"its object {item.name} is {human_bytes(item.size)}", where=sif.path)
    return sif.read(item).decode("utf-8", "replace")
