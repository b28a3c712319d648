"""The note of what was put where."""

from __future__ import annotations

import os
from pathlib import Path

from envbuild.build.delivery import delivered, delivered_digest, note_delivery
from envbuild.store.layout import Store


def test_the_digest_of_an_image_is_known_until_the_file_changes(tmp_path: Path) -> None:
    image, store = tmp_path / "x.sif", Store(tmp_path / "store")
    image.write_bytes(b"image")
    assert delivered_digest(image, store) is None
    note_delivery(image, store, "key", "sha256:ab")
    assert delivered_digest(image, store) == "sha256:ab"
    assert delivered(image, store, "key") is not None
    assert delivered(image, store, "other") is None
    time = image.stat().st_mtime_ns
    image.write_bytes(b"signed image")
    os.utime(image, ns=(time, time))
    assert delivered_digest(image, store) is None


def test_nobody_computed_the_digest(tmp_path: Path) -> None:
    image, store = tmp_path / "x.sif", Store(tmp_path / "store")
    image.write_bytes(b"image")
    note_delivery(image, store, "key", "")
    assert delivered_digest(image, store) is None
