"""Links that a member of the group plants in a store or shelf: nothing of the user's is cleared through them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from envbuild.cli import run_cli
from envbuild.errors import IntegrityError
from envbuild.net.index import _index_of_uv
from envbuild.resolve.stubs import kept_stubs, plan_stubs
from envbuild.resolve.uv.answer_checks.foreign_wheels import OtherWheels, _read_note
from envbuild.settings import Settings
from envbuild.shelf.folder import FolderBackend
from envbuild.store.gc import collect_garbage, remove_files
from envbuild.store.layout import LAYOUT, Store
from tests.resolve.conftest import base
from tests.support import quiet_context

OLD = time.time() - 400 * 86400
FILES = ("chapter/text.tex", "backup.tar", "x.partial", "plan.blob", "notes.whl")
CLEARED = ("tmp", "artifacts", "bases", "built", "layers", "images", "stubs")


@pytest.fixture
def thesis(tmp_path: Path) -> Path:
    """A folder of the user's, whose files look like what is cleared in a store."""
    folder = tmp_path / "thesis"
    (folder / "chapter").mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text("mine")
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (OLD, OLD))
    return folder


def is_whole(thesis: Path) -> bool:
    return all((thesis / name).is_file() for name in FILES)


@pytest.mark.parametrize("name", CLEARED)
def test_gc_and_verify_clear_nothing_through_a_link(
    name: str, thesis: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come after the store was looked at: who shares it may rename its folders at any time."""
    store = Store(tmp_path / "store")
    (store.root / LAYOUT).mkdir(parents=True)
    (store.root / LAYOUT / name).symlink_to(thesis)
    for removal in list(collect_garbage(store, keep_days=0)):
        remove_files(removal)
    assert is_whole(thesis)
    monkeypatch.setenv("ENVBUILD_STORE", str(store.root))
    run_cli(["store", "verify"])
    assert is_whole(thesis)


def test_nor_do_stubs_that_are_old(thesis: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    (store.root / LAYOUT).mkdir(parents=True)
    (store.root / LAYOUT / "stubs").symlink_to(thesis)
    kept_stubs(plan_stubs(base("six==1.16.0"), protected=set(), aliases={}), store)
    assert is_whole(thesis)


def test_nor_does_who_publishes_to_a_shelf(
    thesis: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = FolderBackend(tmp_path / "shelf")
    shelf.create()
    (shelf.root / "tmp").rmdir()
    (shelf.root / "tmp").symlink_to(thesis)
    # another member makes the link just after the folder was looked at
    monkeypatch.setattr(shelf, "_folder", lambda _: None)
    with pytest.raises(IntegrityError, match="is a link"):
        shelf._sweep()
    assert is_whole(thesis)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("name", ["", *CLEARED, "apt/bookworm-amd64", "apt/bookworm-amd64/chosen"])
def test_a_store_with_a_link_of_another_user_is_refused(
    name: str,
    thesis: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    link = tmp_path / "store" / LAYOUT / name
    link.parent.mkdir(parents=True)
    link.symlink_to(thesis)
    os.lchown(link, 64002, 64002)
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    assert run_cli(["store", "gc", "--keep", "0"]) == 6
    assert f"{link}: is a link that another user" in capsys.readouterr().err
    assert is_whole(thesis)


def test_nobody_waits_for_a_pipe_in_the_place_of_an_answer(
    tmp_path: Path, user_settings: Settings
) -> None:
    """As a member of the group puts it there."""
    context = quiet_context(user_settings)
    path = context.store.folder("metadata") / "uv-default-index.txt"
    os.mkfifo(path)
    assert _index_of_uv(context).startswith("https://")
    assert path.is_file()
    os.mkfifo(tmp_path / "note")
    assert _read_note(tmp_path / "note") == OtherWheels((), ())
