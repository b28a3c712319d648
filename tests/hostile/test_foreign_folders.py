"""A copied folder whose ``recipes`` or ``lockfiles`` is a link: nothing is written where it would be run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envbuild.cli import run_cli
from envbuild.errors import UsageError
from envbuild.recipe.find import require_own_folder
from envbuild.settings import load_settings
from tests.shelf.people import User, user


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A folder whose files every new shell of the user runs."""
    folder = tmp_path / ".bashrc.d"
    folder.mkdir()
    return folder


@pytest.fixture
def bea(tmp_path: Path) -> User:
    """Somebody with a copied folder, and a shelf with an entry."""
    ann = user(tmp_path / "ann", str(tmp_path / "shelf"))
    ann.recipe("small")
    ann.ok("shelf", "publish", "small")
    bea = user(tmp_path / "bea", str(tmp_path / "shelf"))
    bea.ok("shelf", "list")
    return bea


@pytest.mark.parametrize("name", ["recipes", "lockfiles"])
def test_no_entry_of_a_shelf_is_written_through_it(name: str, started: Path, bea: User) -> None:
    (bea.folder / name).symlink_to(started)
    told = bea.refused(2, "shelf", "get", "small")
    assert "leads into a hidden folder" in told
    assert not list(started.iterdir())


def test_nobody_waits_for_a_pipe_in_the_place_of_a_recipe(bea: User) -> None:
    (bea.folder / "recipes").mkdir()
    os.mkfifo(bea.folder / "recipes/small.toml")
    assert "is here already" in bea.refused(2, "shelf", "get", "small")


def test_no_draft_is_written_through_it(
    started: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "requirements.txt").write_text("six\n")
    (project / "recipes").symlink_to("../.bashrc.d")
    monkeypatch.chdir(project)
    assert run_cli(["init", "-y", "--offline"]) == 2
    assert "leads into a hidden folder" in capsys.readouterr().err
    assert not list(started.iterdir())


def test_links_of_ones_own_are_followed(started: Path, tmp_path: Path) -> None:
    project, shared = tmp_path / "project", tmp_path / "shared"
    for folder in (project / "here", shared):
        folder.mkdir(parents=True)
    settings = load_settings({"HOME": str(tmp_path)}, project)
    for name, target in (("a", shared), ("b", project / "here")):
        (project / name).symlink_to(target)
        require_own_folder(project / name / "x.lock", settings)
    require_own_folder(started / "x.lock", settings)
    (project / "c").symlink_to(started)
    with pytest.raises(UsageError, match="hidden folder"):
        require_own_folder(project / "c/x.lock", settings)


def test_a_link_that_goes_round_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").symlink_to("x")
    monkeypatch.chdir(tmp_path)
    assert run_cli(["init", "x", "-y", "--offline"]) == 2
    assert "there is no such file or folder" in capsys.readouterr().err
