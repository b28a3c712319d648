from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from envbuild.errors import HostError
from envbuild.progress import Silent
from envbuild.store.layout import Store, remove_tree


def test_every_kind_has_its_place(store: Store) -> None:
    root = store.root / "v1"
    assert store.artifact("ab" * 32) == root / "artifacts" / "ab" / ("ab" * 32)
    assert store.base("sha256:ff") == root / "bases" / "sha256-ff.tar"
    assert store.facts("sha256:ff") == root / "facts" / "sha256-ff.json"
    assert store.image("sha256:ff") == root / "images" / "sha256-ff.sif"
    assert store.verdicts("sha256:ff") == root / "verdicts" / "sha256-ff"
    assert not store.root.exists(), "asking for a place creates nothing"
    assert store.folder("logs").is_dir()


@pytest.mark.parametrize("fails", [False, True])
def test_work_folders_vanish_whatever_happens(store: Store, fails: bool) -> None:
    with contextlib.suppress(RuntimeError), store.work("build") as folder:
        assert folder.parent == store.root / "v1" / "tmp"
        assert folder.name.startswith(f"build-{os.getpid()}-")
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_text("x")
        (folder / "deep").chmod(0o500)
        if fails:
            raise RuntimeError
    assert list((store.root / "v1" / "tmp").iterdir()) == []


def test_no_link_stands_where_a_new_file_is_written_beside_another(
    store: Store, tmp_path: Path
) -> None:
    """Code in an image may write into the project's folder before: no name is known to it."""
    precious, target = tmp_path / "precious", tmp_path / "small.sif"
    precious.write_text("mine")
    with store.beside(target) as first:
        first.write_text("image")
    first.symlink_to(precious)
    with store.beside(target) as second:
        second.write_text("image")
    assert precious.read_text() == "mine"


def test_a_link_in_the_place_of_a_lock_empties_nothing(store: Store, tmp_path: Path) -> None:
    """Older filelocks opened it with O_TRUNC (CVE-2025-68146)."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (store.folder("locks") / "key.lock").symlink_to(precious)
    with pytest.raises(HostError), store.lock("key", Silent()):
        pass
    assert precious.read_text() == "mine"


def test_a_lock_is_there_with_its_final_mode_before_it_is_opened(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two, another user of a group could not open it, and would give up."""
    (store.folder("locks")).chmod(0o2775)
    seen: list[int] = []

    def acquire(lock: FileLock, **_: object) -> None:
        seen.append(stat.S_IMODE(Path(lock.lock_file).stat().st_mode))

    monkeypatch.setattr(FileLock, "acquire", acquire)
    before = os.umask(0o077)
    try:
        with store.lock("key", Silent()):
            pass
    finally:
        os.umask(before)
    assert seen == [0o664]


def test_a_lock_has_its_final_mode_on_a_file_system_without_links(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the mask of who was first: the others of the group have to open it."""
    folder = store.folder("locks")
    folder.chmod(0o2775)

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    before = os.umask(0o077)
    try:
        with store.lock("key", Silent()):
            [lock] = folder.glob("*.lock")
            assert stat.S_IMODE(lock.stat().st_mode) == 0o664
    finally:
        os.umask(before)


def test_who_holds_a_lock_is_written_through_no_link(store: Store, tmp_path: Path) -> None:
    """Another member of the group may put a link in its place at any moment."""
    precious = tmp_path / "precious"
    precious.write_text("mine")

    def unlink(path: Path, *, missing_ok: bool = False) -> None:
        if missing_ok and path.suffix == ".holder" and not path.is_symlink():
            path.symlink_to(precious)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        with pytest.raises(HostError), store.lock("key", Silent()):
            pass
    assert precious.read_text() == "mine"


def test_removing_a_tree_does_not_follow_links(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(kept)
    remove_tree(tree)
    assert not tree.exists()
    assert (kept / "file").exists()


class _Listener(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard = threading.Event()

    def say(self, text: str) -> None:
        self.said.append(text)
        self.heard.set()


def test_a_lock_is_held_by_one_and_says_who_holds_it(store: Store) -> None:
    listener = _Listener()
    order: list[str] = []

    def second() -> None:
        with store.lock("sha256:ff", listener):
            order.append("second")

    thread = threading.Thread(target=second)
    with store.lock("sha256:ff", Silent()):
        thread.start()
        assert listener.heard.wait(5)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]
    assert listener.said == [
        f"waiting for process {os.getpid()} on {os.uname().nodename}, which makes the same thing"
    ]


def test_locks_of_other_keys_do_not_wait(store: Store) -> None:
    listener = _Listener()
    with store.lock("a", listener), store.lock("b", listener):
        assert listener.said == []


def test_a_file_in_the_way_is_named(store: Store) -> None:
    store.root.write_text("x")
    with (
        pytest.raises(HostError, match=r"store/v1/locks: cannot be used: Not a directory"),
        store.lock("a", Silent()),
    ):
        pass


@pytest.mark.parametrize(("mode", "taken"), [(0o777, False), (0o1777, True), (0o775, True)])
def test_no_work_is_done_where_any_user_may_exchange_its_folder(
    mode: int, taken: bool, tmp_path: Path
) -> None:
    """Programs are started there, such as what answers for the Python of a base."""
    shared = tmp_path / "scratch"
    shared.mkdir()
    shared.chmod(mode)
    ready = contextlib.nullcontext() if taken else pytest.raises(HostError, match="sticky")
    with ready, Store(tmp_path / "store").outside(shared) as folder:
        assert folder.is_dir()
    assert list(shared.iterdir()) == []


def test_nor_below_such_a_folder(tmp_path: Path) -> None:
    shared = tmp_path / "scratch"
    (shared / "mine").mkdir(parents=True)
    shared.chmod(0o777)
    with (
        pytest.raises(HostError, match=f"^{shared}: every user"),
        Store(tmp_path / "store").outside(shared / "mine"),
    ):
        pass
