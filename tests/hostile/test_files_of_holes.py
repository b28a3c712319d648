"""A file of a project that says it has gigabytes, and takes no room on the disk that it was copied to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.build.modes.sandbox import NOTE, read_note
from envbuild.bundle.pack import _check_script as packed_script
from envbuild.check.expected import asked_digest
from envbuild.errors import IntegrityError, UsageError
from envbuild.job.warnings import LIGHTNING, _in_source
from envbuild.recipe.model import Source
from envbuild.recipe.read import read_recipe
from envbuild.recipe.undo import settle_change, undo_path
from envbuild.resolve.sources.project_name import name_and_version
from envbuild.shelf.publish import _read_script as published_script
from envbuild.store.layout import Store

GIANT = 1 << 36
RECIPE = (
    '[recipe]\nname = "thing"\n[base]\nbootstrap = "debian:bookworm"\n[check]\nscript = "x.py"\n'
)


def source_of(top: Path) -> Source:
    path = top / "thing.toml"
    recipe, text = read_recipe(path)
    return Source(recipe=recipe, path=path, text=text, lock=top / "r.lock")


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "digest of a check": ("x.py", lambda top: asked_digest(source_of(top).recipe, top / "x.py")),
    "script of a bundle": ("x.py", lambda top: packed_script(top, "x.py")),
    "script of a shelf": ("x.py", lambda top: published_script(source_of(top))),
    "note of a sandbox": (NOTE, read_note),
    "name of a project": ("pyproject.toml", name_and_version),
}


def make_giant(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, GIANT)


@pytest.mark.parametrize("reader", READERS)
def test_is_not_read_into_memory(reader: str, tmp_path: Path) -> None:
    name, read = READERS[reader]
    (tmp_path / "thing.toml").write_text(RECIPE)
    make_giant(tmp_path / name)
    with pytest.raises(UsageError, match="too large for such a file"):
        read(tmp_path)


def test_nor_a_note_of_a_change_that_was_cut_off(tmp_path: Path) -> None:
    recipe = tmp_path / "thing.toml"
    recipe.write_text(RECIPE)
    make_giant(undo_path(recipe))
    with pytest.raises(IntegrityError, match="was not written from here"):
        settle_change(recipe, Store(tmp_path / "store"))


def test_nor_a_program_that_job_looks_at(tmp_path: Path) -> None:
    make_giant(tmp_path / "train.py")
    assert _in_source(tmp_path, LIGHTNING) is None
