"""What a killed build leaves outside of the store is found again, and nothing else is taken for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.host import ID_COUNT, read_host
from envbuild.store.gc import find_leftovers, remove_files
from envbuild.store.layout import HELD, OUTSIDE, Store
from tests.hosts import ROOT_ONLY, Bench, Lack
from tests.support import needs
from tests.tiny_image import open_folder

KILLED = """
import os, sys
from pathlib import Path
from envbuild.store.layout import Store
with Store(Path(sys.argv[1])).outside(Path(sys.argv[2])) as folder:
    (folder / "build-temp-1").mkdir()
    (folder / "build-temp-1/file").write_text("x" * 100)
    os.kill(os.getpid(), 9)
"""


def test_a_killed_builds_folder_in_tmpdir_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    store, temporary = Store(tmp_path / "store"), tmp_path / "tmp"
    temporary.mkdir()
    subprocess.run([sys.executable, "-c", KILLED, str(store.root), str(temporary)], check=False)
    (left,) = temporary.iterdir()
    assert left.name.startswith(OUTSIDE)
    found = list(find_leftovers(store))
    assert [(one.path, one.size) for one in found if one.size] == [(left, 100)]
    assert all(map(remove_files, found))
    assert list(temporary.iterdir()) == []


@ROOT_ONLY
@pytest.mark.parametrize(("uid", "is_ours"), [(300005, True), (400000, False)])
def test_a_folder_that_a_build_handed_to_subordinate_ids(
    uid: int, is_ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build of root's in the mode fakeroot writes as ids that own nothing else."""
    host = replace(read_host(), subuid=(300000, ID_COUNT))
    monkeypatch.setattr("envbuild.store.gc.read_host", lambda: host)
    store, mine = Store(tmp_path / "store"), tmp_path / f"{OUTSIDE}1-x"
    mine.mkdir()
    os.chown(mine, uid, uid)
    (store.folder("tmp") / f"outside-1{HELD}").write_text(str(mine))
    found = {one.path for one in find_leftovers(store)}
    assert (mine in found) is is_ours


def test_a_folder_that_is_in_use_is_left(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with store.outside(tmp_path) as folder:
        assert list(find_leftovers(store)) == []
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


@pytest.mark.parametrize("name", ["home", f"{OUTSIDE}link", ".bashrc"])
def test_a_note_that_names_something_else_is_not_believed(name: str, tmp_path: Path) -> None:
    store, mine = Store(tmp_path / "store"), tmp_path / name
    if "link" in name:
        (tmp_path / "home").mkdir()
        mine.symlink_to(tmp_path / "home")
    else:
        mine.mkdir()
    (store.folder("tmp") / f"outside-1{HELD}").write_text(str(mine))
    assert [one.path.suffix for one in find_leftovers(store)] == [HELD]


def lead_elsewhere(note: Path) -> None:
    """Let a link name what would be a note, in a folder of its own."""
    (note.parents[3] / "note").write_text(str(note.parents[3] / f"{OUTSIDE}1"))
    note.symlink_to(note.parents[3] / "note")


@pytest.mark.parametrize("put", [lead_elsewhere, os.mkfifo])
def test_a_note_that_is_no_file_is_not_waited_for(
    put: Callable[[Path], None], tmp_path: Path
) -> None:
    """Another member of the group may put anything there."""
    store = Store(tmp_path / "store")
    (tmp_path / f"{OUTSIDE}1").mkdir()
    put(store.folder("tmp") / f"outside-1{HELD}")
    assert list(find_leftovers(store)) == []


def test_a_note_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    note = store.folder("tmp") / f"outside-1{HELD}"
    with note.open("wb") as file:
        file.truncate(1 << 40)
    assert [one.path for one in find_leftovers(store)] == [note]


@pytest.mark.live
@ROOT_ONLY
@needs("unshare", "newuidmap")
def test_files_of_a_users_subordinate_ids_are_cleared() -> None:
    folder = open_folder() / "subordinate"
    bench = Bench(folder, kept=())
    maps = "--map-users=200000,1,65536 --map-groups=200000,1,65536"
    left = "$ENVBUILD_STORE/v1/tmp/capture-1-x"
    script = (
        f"mkdir -p {left}/upper/etc && touch {left}/upper/etc/file && "
        f"unshare --user --map-root-user {maps} sh -c 'chmod 700 {left}/upper && chown -R 5:5 {left}/upper'"
    )
    try:
        made = bench.start(Lack(), "sh", "-c", script)
        assert made.code == 0, made.stderr
        assert (bench.home / "store/v1/tmp/capture-1-x/upper").stat().st_uid == 200004
        cleared = bench.run(Lack(), "store", "gc")
        assert (cleared.code, cleared.stdout[:28]) == (0, "1 file or folder removed, 0 ")
        assert not list((bench.home / "store/v1/tmp").iterdir())
    finally:
        shutil.rmtree(folder)
