"""Write wheels of pure Python (the wheel specification); the same files give the same bytes."""

from __future__ import annotations

import hashlib
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from envbuild.store.atomic import os_errors_as

WHEEL = "Wheel-Version: 1.0\nGenerator: envbuild\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The first time that a zip archive can tell."""


def write_wheel(
    folder: Path, stem: str, files: Mapping[str, bytes], *, compression: int = zipfile.ZIP_STORED
) -> Path:
    """Write a wheel and return its path; ``stem`` is NAME-VERSION as its file name has it.

    ``files`` lack WHEEL and RECORD.  Raises SpaceError or HostError.
    """
    about = f"{stem}.dist-info"
    members = {**files, f"{about}/WHEEL": WHEEL.encode()}
    rows = [_record_row(name, data) for name, data in members.items()]
    members[f"{about}/RECORD"] = "".join([*rows, f"{about}/RECORD,,\n"]).encode()
    path = folder / f"{stem}-py3-none-any.whl"
    with os_errors_as(path), zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, EARLIEST)
            info.external_attr = 0o644 << 16
            info.compress_type = compression
            archive.writestr(info, data)
    return path


def record_hash(digest: bytes) -> str:
    """Return a hash as RECORD has it: without padding."""
    return urlsafe_b64encode(digest).decode().rstrip("=")


def _record_row(name: str, data: bytes) -> str:
    return f"{name},sha256={record_hash(hashlib.sha256(data).digest())},{len(data)}\n"
