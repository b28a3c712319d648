"""What outlives a container: which folders, which variables, and who may say otherwise."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from envbuild.caches import Caches, image_mark, make_folders, make_scratch, plan_caches
from envbuild.data.tables import load_caches
from envbuild.errors import UsageError
from envbuild.recipe.read import read_recipe
from envbuild.settings import Settings, load_settings
from tests.base.siffiles import partition, write_sif


def settings(tmp_path: Path, **variables: str) -> Settings:
    return load_settings({"HOME": str(tmp_path / "home"), **variables}, tmp_path)


def image(tmp_path: Path, data: bytes = b"hsqs one", name: str = "x.sif") -> Path:
    return write_sif(tmp_path / name, [partition(data)])


def test_every_row_names_a_variable_once_and_stays_below_its_folder() -> None:
    names = [row.variable for row in load_caches().cache]
    assert len(names) == len(set(names))
    for row in load_caches().cache:
        assert re.fullmatch(r"[A-Z][A-Z0-9_]*", row.variable)
        assert re.fullmatch(r"\.|[a-z_]+", row.folder)
        assert row.source


def test_downloads_are_shared_and_compiled_code_is_the_image_s_own(tmp_path: Path) -> None:
    one, other = image(tmp_path), image(tmp_path, b"hsqs another one", "y.sif")
    mine = settings(tmp_path)
    first, second = plan_caches(one, mine), plan_caches(other, mine)
    top = tmp_path / "home/.cache/envbuild-caches"
    assert first.folders[0] == second.folders[0] == (str(top / "downloads"), ".cache")
    assert first.folders[1] == (str(top / "compiled" / image_mark(one)), ".compiled")
    assert first.folders[1] != second.folders[1]
    variables = dict(first.variables)
    assert (variables["HF_HOME"], variables["TRITON_CACHE_DIR"]) == (
        ".cache/huggingface",
        ".compiled/triton",
    )
    assert variables["XDG_CACHE_HOME"] == ".cache"
    make_folders(first)
    assert {path.name for path in top.rglob("*")} == {
        "downloads",
        "nltk",
        "compiled",
        image_mark(one),
    }
    assert (top / "downloads").stat().st_mode & 0o777 == 0o700


def test_what_somebody_has_set_is_left_alone(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    mine = settings(tmp_path, HF_HOME=str(hub), TORCH_HOME="/nowhere/torch", KERAS_HOME=f"{hub}:x")
    caches = plan_caches(image(tmp_path), mine, taken={"NLTK_DATA"})
    assert caches.given == (("HF_HOME", str(hub)),)
    assert not {"HF_HOME", "NLTK_DATA"} & {name for name, _ in caches.variables}
    assert {"TORCH_HOME", "KERAS_HOME"} < {name for name, _ in caches.variables}


def test_it_can_be_switched_off_and_put_elsewhere(tmp_path: Path) -> None:
    one = image(tmp_path)
    assert plan_caches(one, settings(tmp_path, ENVBUILD_CACHES="none")) == Caches()
    assert plan_caches(one, settings(tmp_path), wanted=False) == Caches()
    assert plan_caches(one, settings(tmp_path, ENVBUILD_CACHES="/big")).folders[0] == (
        "/big/downloads",
        ".cache",
    )
    (tmp_path / "config.toml").write_text('[caches]\nfolder = "~/kept"\n')
    told = settings(tmp_path, ENVBUILD_CONFIG=str(tmp_path / "config.toml"))
    assert plan_caches(one, told).folders[0] == (str(tmp_path / "home/kept/downloads"), ".cache")
    with pytest.raises(UsageError, match="cannot be bound into a container"):
        plan_caches(one, settings(tmp_path, ENVBUILD_CACHES="/a:b"))


RECIPE = '[recipe]\nname = "x"\n[base]\nbootstrap = "debian:bookworm"\n[run]\ncaches = %s\n'


def test_a_recipe_names_further_folders_of_home(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(RECIPE % '[".insightface", "nltk_data/corpora"]')
    recipe, _ = read_recipe(path)
    caches = plan_caches(image(tmp_path), settings(tmp_path), wanted=recipe.run.caches)
    home = tmp_path / "home/.cache/envbuild-caches/home"
    assert caches.folders[2:] == (
        (str(home / ".insightface"), ".insightface"),
        (str(home / "nltk_data/corpora"), "nltk_data/corpora"),
    )


@pytest.mark.parametrize(
    "wrong", ["../x", "/etc", "a/../b", ".", "a//b", ".cache", ".compiled/x", "a b", "$X", ""]
)
def test_a_recipe_names_no_other_folder(wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(RECIPE % f'["{wrong}"]')
    with pytest.raises(UsageError, match=r"line 6: run.caches"):
        read_recipe(path)


def test_an_image_is_told_from_another_by_the_head_of_its_file(tmp_path: Path) -> None:
    one = image(tmp_path)
    assert image_mark(one) == image_mark(image(tmp_path, name="copy.sif"))
    assert image_mark(one) != image_mark(write_sif(tmp_path / "z.sif", [partition()], created=1))
    assert image_mark(tmp_path) != image_mark(tmp_path.parent)


def test_tmp_has_a_folder_while_its_process_lives(tmp_path: Path) -> None:
    one = make_scratch(tmp_path)
    (one / "large").write_text("x")
    assert one.name == str(os.getpid())
    assert one.parent.stat().st_mode & 0o777 == 0o700
    for name in ("1", "999999999"):
        (one.parent / name).mkdir()
        (one.parent / name / "file").write_text("x")
    again = make_scratch(tmp_path)
    assert again == one
    assert list(again.iterdir()) == [], "it is ours alone, and empty"
    assert sorted(path.name for path in one.parent.iterdir()) == sorted(["1", str(os.getpid())]), (
        "init lives, 999999999 not"
    )


def test_nobody_else_s_folder_is_taken_for_tmp(tmp_path: Path) -> None:
    top = make_scratch(tmp_path).parent
    shutil.rmtree(top)
    (tmp_path / "elsewhere").mkdir()
    top.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        make_scratch(tmp_path)


def test_who_swaps_a_folder_for_a_link_gets_nothing_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /tmp anybody may have made a folder of this name first, and put a link in its place."""
    top = make_scratch(tmp_path).parent
    shutil.rmtree(top)
    precious = tmp_path / "home/precious"
    precious.mkdir(parents=True)
    top.symlink_to(tmp_path / "home")
    # as the folder was a moment ago
    monkeypatch.setattr(Path, "is_symlink", lambda _path: False)
    with pytest.raises(PermissionError):
        make_scratch(tmp_path)
    assert precious.is_dir()
