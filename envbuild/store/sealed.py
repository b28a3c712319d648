"""Stored files that no lock names (roots, wheels, facts): their hash is beside them.

A file without its seal, or of other bytes than it says, does not count: it is made again.  A seal
tells damage, and what was half written; against who may write to the folder it is no help
(docs/store.md).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from envbuild.errors import IntegrityError, UsageError
from envbuild.limits import open_plain, read_kept
from envbuild.store.atomic import commit_file, write_bytes
from envbuild.store.hashing import hash_bytes, hash_rest

SEAL = ".sha256"
SEALED = ("bases/*.tar", "built/*.whl", "facts/*.json", "facts/*.scheme", "images/*.sif")
"""Patterns of such files in the store."""
SETTLED_SECONDS = 2.0
"""How old the last change has to be: two within a tick of the kernel's clock have the same time."""
_HASHED: dict[tuple[int, ...], str] = {}
"""The sha256 of files by their state: a root of 250 MB is looked at twice in one build."""


def seal_path(path: Path) -> Path:
    """Return where the hash of a file is written down."""
    return path.with_name(f"{path.name}{SEAL}")


def commit_sealed(temporary: Path, final: Path) -> None:
    """Give a file its final name and write its hash.  Raises SpaceError or HostError."""
    with temporary.open("rb") as file:
        sha256 = _hash_stream(file)
    seal_path(final).unlink(missing_ok=True)  # it would belong to another file for a moment
    commit_file(temporary, final)
    write_bytes(seal_path(final), sha256.encode(), mode=0o444)


def write_sealed(path: Path, data: bytes) -> None:
    """Write a small file, and its hash beside it.  Raises SpaceError or HostError."""
    seal_path(path).unlink(missing_ok=True)
    write_bytes(path, data, mode=0o444)
    write_bytes(seal_path(path), hash_bytes(data).encode(), mode=0o444)


def sealed_hash(path: Path) -> str | None:
    """Return the sha256 (hex) that was written down of a file, None where none was."""
    try:
        recorded = read_kept(seal_path(path)).decode("ascii", "replace")
    except OSError:
        return None
    return recorded if re.fullmatch(r"[0-9a-f]{64}", recorded) else None


def is_sealed(path: Path) -> bool:
    """Tell whether a file is there and is what was written down; it is read as a whole."""
    expected = sealed_hash(path)
    try:
        with open_plain(path) as file:
            return expected is not None and _hash_stream(file) == expected
    except (OSError, UsageError):
        return False


def read_sealed(path: Path) -> bytes | None:
    """Return a small file's content, None where it is missing or damaged."""
    try:
        data = read_kept(path)
    except OSError:
        return None
    return data if hash_bytes(data) == sealed_hash(path) else None


def hash_file(path: Path, advance: Callable[[int], None] | None = None) -> str:
    """Return ``sha256:…`` over the bytes of a file; ``advance`` gets the bytes that were read."""
    with path.open("rb") as file:
        return "sha256:" + hash_rest(file, advance)


def _hash_stream(file: BinaryIO) -> str:
    """Return the sha256 (hex) of an open file, which is at its start again afterwards.

    A file that this process hashed before is not read again while the kernel says that nobody wrote
    to it.
    """
    state = _state(file)
    if state not in _HASHED:
        file.seek(0)
        sha256 = hash_rest(file)
        if _state(file) != state or time.time() - state[-1] / 1e9 < SETTLED_SECONDS:
            file.seek(0)
            return sha256
        _HASHED[state] = sha256
    file.seek(0)
    return _HASHED[state]


def _state(file: BinaryIO) -> tuple[int, ...]:
    """Return what changes with the content: st_ctime, which no program can set."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def require_hash(file: BinaryIO, sha256: str | None, name: str) -> None:
    """Raise IntegrityError unless an open file has this hash; None is no hash."""
    if _hash_stream(file) != sha256:
        what = f"{name} was changed in the store"
        raise IntegrityError(
            what, hint="envbuild store verify finds and removes what is damaged; then start again"
        )
