"""A digest is computed once per state of a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.base.digests import known_digest
from envbuild.store.layout import Store


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read."""
    read: list[Path] = []

    def image_digest(path: Path, **_: object) -> str:
        read.append(path)
        return f"sha256:{path.read_text()}"

    monkeypatch.setattr("envbuild.base.digests.siffile.image_digest", image_digest)
    return read


def test_a_file_is_read_again_only_when_it_has_changed(
    tmp_path: Path, computed: list[Path]
) -> None:
    image, store = tmp_path / "x.sif", Store(tmp_path / "store")
    image.write_text("one")
    assert known_digest(image, store) == known_digest(image, store) == "sha256:one"
    assert len(computed) == 1
    image.write_text("two")
    os.utime(image, ns=(0, image.stat().st_mtime_ns + 1))
    assert known_digest(image, store) == "sha256:two"
    other = tmp_path / "y.sif"
    other.write_text("six")
    os.utime(other, ns=(0, image.stat().st_mtime_ns))
    other.replace(image)  # as long, of the same time, another file
    assert known_digest(image, store) == "sha256:six"
    assert len(computed) == 3


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"digest": 5}'])
def test_a_broken_note_is_none(tmp_path: Path, computed: list[Path], text: str) -> None:
    image, store = tmp_path / "x.sif", Store(tmp_path / "store")
    image.write_text("one")
    known_digest(image, store)
    [note] = (tmp_path / "store").rglob("digests/*.json")
    note.chmod(0o644)
    note.write_text(text)
    assert known_digest(image, store) == "sha256:one"
    assert len(computed) == 2


def test_a_store_that_cannot_be_written_does_not_matter(
    tmp_path: Path, computed: list[Path]
) -> None:
    image = tmp_path / "x.sif"
    image.write_text("one")
    (tmp_path / "store").write_text("a file")
    assert known_digest(image, Store(tmp_path / "store")) == "sha256:one"
    assert computed == [image]
