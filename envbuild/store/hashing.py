"""Digests: ``sha256:…`` over bytes or text, and the few characters of one that people read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import IO

CHUNK = 1 << 22


def hash_bytes(data: bytes) -> str:
    """Return the SHA-256 of bytes (hex)."""
    return hashlib.sha256(data).hexdigest()


def hash_text(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8 (hex)."""
    return hash_bytes(text.encode())


def hash_rest(file: IO[bytes], advance: Callable[[int], None] | None = None) -> str:
    """Return the SHA-256 (hex) of what is left of an open file; ``advance`` gets the bytes read."""
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        if advance is not None:
            advance(len(chunk))
    return digest.hexdigest()


def digest_of(data: bytes) -> str:
    """Return ``sha256:…`` over bytes."""
    return f"sha256:{hash_bytes(data)}"


def short_digest(digest: str) -> str:
    """Return the first twelve hex digits of ``sha256:…``."""
    return digest.removeprefix("sha256:")[:12]
