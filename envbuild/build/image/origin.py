"""From which lock an image was made, as far as the image itself says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from envbuild.errors import UsageError
from envbuild.formats.sif_reader import read_sif

NOTE = "envbuild.json"
"""The object in which an assembled image says what made it (image/metadata.py writes it)."""
DEFINITION = 0x4001
"""Data type of the definition that Apptainer keeps (sylabs/sif, pkg/sif/descriptor.go)."""
LABEL = re.compile(r"^[ \t]*envbuild\.lock[ \t]+(sha256:[0-9a-f]{64})[ \t\r]*$", re.MULTILINE)
MOST = 8 * 1024 * 1024
"""Bytes of an object that are read."""


def embedded_lock_digest(image: Path) -> str | None:
    """Return the digest of the lock that an image says it was made from.

    None where it says nothing, or is none.
    """
    try:
        sif = read_sif(image)
    except UsageError:
        return None
    for item in sif.objects:
        if item.name != NOTE and item.data_type != DEFINITION:
            continue
        text = sif.read(item, MOST).decode("utf-8", "replace")
        found = _read_digest(text, note=item.name == NOTE)
        if found is not None:
            return found
    return None


def _read_digest(text: str, *, note: bool) -> str | None:
    if not note:
        label = LABEL.search(text)
        return label[1] if label else None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return str(found["lock"]) if isinstance(found, dict) and "lock" in found else None
