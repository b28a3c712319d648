"""What a place must do to hold a shelf: list, read, append one entry atomically."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from envbuild.names import Texts

MARKER = "envbuild-shelf.json"
"""The file that marks a shelf: a folder that is not mounted has none."""
MARKER_TEXT = b'{"schema":1}\n'
NAMES = "names"
BIGGEST_TEXT = 4 * 1024 * 1024
"""Bytes of one recipe, lock, report or entry; everything but an image."""


class SlotTakenError(Exception):
    """Somebody else has published this number; the caller retries."""


class PieceStore(Protocol):
    """Where a backend keeps the bytes of images, by sha256."""

    def has_piece(self, digest: str, size: int) -> bool:
        """Tell whether these bytes are there, by their size."""

    def add_piece(self, digest: str, source: Path, offset: int, size: int) -> None:
        """Take a part of a file.  Raises IntegrityError where it is not what the digest says."""

    def piece_path(self, digest: str) -> Path:
        """Return a file with these bytes, unverified.  Raises IntegrityError for none."""

    def free_bytes(self) -> int:
        """Return how many bytes may still be written."""


class Backend(Protocol):
    """A place of a shelf.  Paths are relative ("names/NAME.000001"; docs/shelf.md)."""

    @property
    def pieces(self) -> PieceStore | None:
        """Where images go; None where the place takes none."""

    def refresh(self) -> None:
        """Read the place again.  Raises HostError or NetworkError where it cannot be reached."""

    def create(self) -> bool:
        """Make an empty place a shelf; False where it is one.  Raises UsageError otherwise."""

    def slots(self) -> Texts:
        """Return the files of ``names/`` that are entries by their name, sorted."""

    def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the files by path.  Raises IntegrityError for links, devices, huge files."""

    def append(self, slot: str, entry: bytes, objects: Mapping[str, bytes]) -> None:
        """Put the objects (by path), then the entry under its name, visible at once or never.

        Raises SlotTakenError; SpaceError, HostError or NetworkError with nothing visible.
        """


def object_path(digest: str) -> str:
    """Return the path of the bytes with this digest (``sha256:…``)."""
    plain = digest.removeprefix("sha256:")
    return f"objects/{plain[:2]}/{plain}"


def signature_path(digest: str) -> str:
    """Return the path of the signature of the entry with this digest."""
    return f"signatures/{digest.removeprefix('sha256:')}.sig"


def slot_path(slot: str) -> str:
    """Return the path of an entry."""
    return f"{NAMES}/{slot}"
