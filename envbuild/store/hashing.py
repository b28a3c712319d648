"""Digests: ``sha256:…`` over bytes or text, and the few characters of one that people read."""

from __future__ import annotations

import hashlib


def hash_text(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8 (hex)."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(data: bytes) -> str:
    """Return ``sha256:…`` over bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def short_digest(digest: str) -> str:
    """Return the first twelve hex digits of ``sha256:…``."""
    return digest.removeprefix("sha256:")[:12]
