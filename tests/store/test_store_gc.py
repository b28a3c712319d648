"""What store gc removes, and above all what it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envbuild.progress import Silent
from envbuild.store import layout
from envbuild.store.gc import (
    DAY,
    Removal,
    collect_garbage,
    find_leftovers,
    mounted_below,
    remove_files,
    tree_size,
)
from envbuild.store.layout import LAYOUT, LEFT, Store
from envbuild.store.verify import is_sound, verify_artifacts
from tests.support import AS_ROOT

HOLDER = """
import sys, time
from pathlib import Path
from envbuild.store.layout import Store
with Store(Path(sys.argv[1])).work("build") as work, Store(Path(sys.argv[1])).beside(Path(sys.argv[2])) as partial:
    (work / "half").write_bytes(b"half")
    partial.write_bytes(b"half an image")
    print("ready", flush=True)
    time.sleep(60)
"""


def holder(store: Store, target: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", HOLDER, str(store.root), str(target)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def aged(path: Path, days: float, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    then = time.time() - days * DAY
    os.utime(path, (then, then))
    return path


def test_what_a_live_process_works_on_stays_and_what_a_killed_one_left_goes(
    tmp_path: Path, store: Store
) -> None:
    target = tmp_path / "out" / "image.sif"
    target.parent.mkdir()
    child = holder(store, target)
    try:
        assert list(find_leftovers(store)) == []
        partial = next(target.parent.iterdir())
        assert partial.name.endswith(LEFT)
    finally:
        child.kill()
        child.wait()
    assert child.stdout is not None
    child.stdout.close()
    found = list(find_leftovers(store))
    assert {removal.reason for removal in found} == {"its process has ended"}
    assert partial in [removal.path for removal in found]
    assert all(remove_files(removal) for removal in found)
    assert list((store.root / LAYOUT / "tmp").iterdir()) == []
    assert list(target.parent.iterdir()) == []


def test_a_folder_that_a_thread_wrote_into_while_it_was_removed(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C in ``lock``: it stayed in TMPDIR, and nobody knew of it."""
    monkeypatch.setattr(layout, "remove_tree", lambda path: (path / "late").mkdir())
    with store.outside(tmp_path) as folder:
        pass
    assert folder in [removal.path for removal in find_leftovers(store)]


def test_a_note_that_names_something_else_is_not_believed(tmp_path: Path, store: Store) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("data")
    for number, text in enumerate((str(precious), "relative.partial.sif", "\0", str(tmp_path))):
        (store.folder("tmp") / f"beside-1-{number}.held").write_text(text)
    for removal in list(find_leftovers(store)):
        remove_files(removal)
    assert precious.read_text() == "data"
    assert list((store.root / LAYOUT / "tmp").iterdir()) == []


def test_only_old_things_go_and_only_when_asked(store: Store) -> None:
    top = store.root / LAYOUT
    old = aged(top / "artifacts/ab/abc", 40)
    young = aged(top / "artifacts/ab/abd", 2)
    blob, index = aged(top / "layers/k.blob", 40), aged(top / "layers/k.index", 1)
    facts = aged(top / "facts/f.json", 400)
    assert list(collect_garbage(store)) == []
    assert [(r.path, r.reason) for r in collect_garbage(store, keep_days=30)] == [
        (old, "not used for 30 days")
    ]
    assert all(path.exists() for path in (young, blob, index, facts))
    os.utime(index, (0, 0))
    assert {r.path for r in collect_garbage(store, keep_days=30)} == {old, blob, index}


def test_interrupted_downloads_wait_a_week(store: Store) -> None:
    new = aged(store.root / LAYOUT / "artifacts/ab/abc.0.partial", 6)
    old = aged(store.root / LAYOUT / "artifacts/ab/abd.0.partial", 8)
    assert [removal.path for removal in collect_garbage(store)] == [old]
    assert new.exists()


def test_a_layer_without_its_index_goes_after_a_day(store: Store) -> None:
    aged(store.root / LAYOUT / "layers/new.blob", 0.5)
    lost = aged(store.root / LAYOUT / "layers/lost.blob", 1.5)
    assert [removal.path for removal in collect_garbage(store)] == [lost]


def test_an_empty_or_missing_store_has_nothing_to_collect(tmp_path: Path) -> None:
    assert list(collect_garbage(Store(tmp_path / "nowhere"), keep_days=0)) == []
    assert tree_size(tmp_path / "nowhere") == 0


def test_hashing_again_finds_a_flipped_bit(store: Store) -> None:
    import hashlib

    data = b"content" * 1000
    for flipped in (False, True):
        sha256 = hashlib.sha256(data + bytes([flipped])).hexdigest()
        path = store.artifact(sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data + bytes([1 if not flipped else 0]) if flipped else data + b"\0")
    assert sorted(is_sound(item, lambda _: None) for item in verify_artifacts(store)) == [
        False,
        True,
    ]


def test_the_lock_tells_who_holds_it(store: Store) -> None:
    with store.lock("sha256:abc", Silent()):
        text = (store.root / LAYOUT / "locks" / "sha256-abc.holder").read_text()
    assert text == f"process {os.getpid()} on {os.uname().nodename}\n"


def test_a_folder_with_something_mounted_in_it_stays(tmp_path: Path) -> None:
    """A bind mount of the same file system, as a bootstrap that outlived its killed parent has them."""
    outside, left = tmp_path / "outside", tmp_path / "left over"
    outside.mkdir()
    (outside / "precious").write_text("data")
    (left / "in").mkdir(parents=True)
    done = subprocess.run(
        [*AS_ROOT, "mount", "--bind", str(outside), str(left / "in")],
        check=False,
        capture_output=True,
    )
    if done.returncode:
        pytest.skip("this user may not mount")
    try:
        assert mounted_below(left)
        assert not remove_files(Removal(path=left, size=0, reason="test"))
        assert (outside / "precious").read_text() == "data"
    finally:
        subprocess.run([*AS_ROOT, "umount", str(left / "in")], check=True)
    assert remove_files(Removal(path=left, size=0, reason="test"))
    assert not left.exists()
    assert (outside / "precious").exists()


def test_mounts_elsewhere_do_not_matter(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    lines = [
        f"36 35 98:0 / {tmp_path}-other/x rw shared:1 - ext4 /dev/a rw",
        f"37 35 98:0 / {tmp_path}/a\\040b rw - tmpfs t rw",
    ]
    table.write_text("\n".join(lines))
    assert mounted_below(tmp_path / "a b", table)
    assert not mounted_below(tmp_path / "a", table)
    assert not mounted_below(tmp_path / "a b", tmp_path / "none")
