"""Stores that lie below the own one are read and never written to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.errors import UsageError
from envbuild.settings import load_settings
from envbuild.store.layout import LAYOUT, Store


@pytest.fixture
def stacked(tmp_path: Path) -> Store:
    return Store(tmp_path / "own", (tmp_path / "lab", tmp_path / "site"))


def put(root: Path, relative: str) -> Path:
    path = root / LAYOUT / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(root))
    return path


def test_the_first_store_that_has_a_file_wins(stacked: Store, tmp_path: Path) -> None:
    sha = "ab" * 32
    assert stacked.artifact(sha) == tmp_path / "own" / LAYOUT / "artifacts" / "ab" / sha
    site = put(tmp_path / "site", f"artifacts/ab/{sha}")
    assert stacked.artifact(sha) == site
    lab = put(tmp_path / "lab", f"artifacts/ab/{sha}")
    assert stacked.artifact(sha) == lab
    own = put(tmp_path / "own", f"artifacts/ab/{sha}")
    assert stacked.artifact(sha) == own


@pytest.mark.parametrize(
    ("relative", "ask"),
    [
        ("bases/sha256-a.tar", lambda store: store.base("sha256:a")),
        ("facts/sha256-a.json", lambda store: store.facts("sha256:a")),
        ("images/sha256-a.sif", lambda store: store.image("sha256:a")),
        ("images/sha256-a.json", lambda store: store.record("sha256:a")),
        ("layers/a.index", lambda store: store.layer("a")),
        ("built/a.whl", lambda store: store.built("a")),
    ],
)
def test_everything_that_can_be_shared_is_found_below(
    stacked: Store, tmp_path: Path, relative: str, ask: Callable[[Store], Path | None]
) -> None:
    below = put(tmp_path / "site", relative)
    assert ask(stacked) == below


def test_what_is_written_goes_to_the_own_store(stacked: Store, tmp_path: Path) -> None:
    put(tmp_path / "lab", "layers/a.index")
    put(tmp_path / "lab", "images/sha256-a.json")
    for path in (
        stacked.own(stacked.layer("a")),
        stacked.own(stacked.record("sha256:a")),
        stacked.folder("tmp"),
        stacked.delivery("a"),
    ):
        assert path.is_relative_to(tmp_path / "own")
    with stacked.work("build") as work:
        assert work.is_relative_to(tmp_path / "own")


def test_settings_name_the_stores_below(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[store]\npath = "~/own"\nbelow = ["/shared/envbuild", "near"]\n')
    env = {"HOME": "/home/me", "ENVBUILD_CONFIG": str(config)}
    settings = load_settings(env, tmp_path)
    assert settings.stores_below == (Path("/shared/envbuild"), tmp_path / "near")
    settings = load_settings({**env, "ENVBUILD_STORE_BELOW": "/a:/b"}, tmp_path)
    assert settings.stores_below == (Path("/a"), Path("/b"))
    assert dataclasses.replace(settings, stores_below=()).stores_below == ()
    config.write_text('[store]\nbelow = "/shared/envbuild"\n')
    with pytest.raises(UsageError, match=r"store.below: takes a list, not text"):
        load_settings(env, tmp_path)
