"""The note of what was put where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.base.digests import known_digest
from envbuild.build.output_record import matching_output, record_output
from envbuild.errors import UsageError
from envbuild.store.layout import Store


def test_an_image_is_the_delivered_one_until_the_file_changes(tmp_path: Path) -> None:
    image, store = tmp_path / "x.sif", Store(tmp_path / "store")
    image.write_bytes(b"image")
    assert matching_output(image, store, "key") is None
    record_output(image, store, "key", "sha256:ab")
    assert matching_output(image, store, "key") is not None
    assert matching_output(image, store, "other") is None
    assert known_digest(image, store) == "sha256:ab"
    time = image.stat().st_mtime_ns
    image.write_bytes(b"signed image")
    os.utime(image, ns=(time, time))
    assert matching_output(image, store, "key") is None
    with pytest.raises(UsageError, match="is not a SIF image"):  # read anew, and it is no image
        known_digest(image, store)


def test_a_digest_that_nobody_computed_is_not_noted(tmp_path: Path) -> None:
    image, store = tmp_path / "x.sif", Store(tmp_path / "store")
    image.write_bytes(b"image")
    record_output(image, store, "key", "")
    with pytest.raises(UsageError, match="is not a SIF image"):
        known_digest(image, store)
