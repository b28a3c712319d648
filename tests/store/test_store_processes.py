"""Real processes that race, are killed and interrupted; real file systems that are full or read-only."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.context import Context
from envbuild.errors import HostError, SpaceError
from envbuild.net.fetch import Artifact, fetch_artifacts
from envbuild.net.partial import partial_path
from envbuild.progress import Silent
from envbuild.settings import Settings
from envbuild.store.layout import Store
from tests.store.server import Page, Server, until
from tests.support import AS_ROOT, ScriptedRunner, may_be_root

ROOT = Path(__file__).parents[2]
BODY = os.urandom(400_000)
WHEEL = "demo-1.0-py3-none-any.whl"


def _child(server: Server, folder: Path, item: Artifact) -> subprocess.Popen[str]:
    argv = [
        sys.executable,
        "-m",
        "tests.store.child",
        server.index,
        str(folder),
        item.file,
        str(item.size),
        item.sha256,
    ]
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _end(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = child.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    return child.returncode, out, err


def _arrived(store: Store, item: Artifact) -> int:
    path = partial_path(store.artifact(item.sha256))
    return path.stat().st_size if path.exists() else 0


def _is_right(store: Store, item: Artifact) -> bool:
    path = store.artifact(item.sha256)
    left = [other for other in path.parent.iterdir() if other != path]
    return not left and hashlib.sha256(path.read_bytes()).hexdigest() == item.sha256


def test_two_processes_that_want_the_same_file_download_it_once(
    server: Server, tmp_path: Path
) -> None:
    item = server.offer(WHEEL, BODY, drip=(20_000, 0.02))
    children = [_child(server, tmp_path / "shared", item) for _ in range(2)]
    assert [_end(child) for child in children] == [(0, "", ""), (0, "", "")]
    assert server.ranges_asked(WHEEL) == [None]
    assert _is_right(Store(tmp_path / "shared"), item)


def test_a_process_takes_over_from_a_killed_one(
    server: Server, settings: Settings, tmp_path: Path
) -> None:
    store = Store(tmp_path / "shared")
    item = server.offer(WHEEL, BODY, drip=(2_000, 0.6))
    first = _child(server, store.root, item)
    until(lambda: _arrived(store, item) > 0)
    second = _child(server, store.root, item)
    until(lambda: sum(asked.path == "/simple/demo/" for asked in server.asked) == 2)
    first.kill()
    assert _end(first)[0] == -signal.SIGKILL
    server.pages[f"/files/{WHEEL}"].drip = None
    assert _end(second) == (0, "", "")
    first_range, second_range = server.ranges_asked(WHEEL)
    assert first_range is None
    assert second_range is not None
    assert int(second_range.removeprefix("bytes=").rstrip("-")) > 0
    assert _is_right(store, item)


@pytest.mark.parametrize("page", [Page(body=BODY, drip=(2_000, 0.6)), Page(body=BODY, hang=True)])
def test_an_interrupt_ends_a_fetch_at_once_and_it_can_be_continued(
    server: Server, settings: Settings, tmp_path: Path, page: Page
) -> None:
    store = Store(tmp_path / "shared")
    item = server.offer(WHEEL, BODY)
    server.pages[f"/files/{WHEEL}"] = page
    child = _child(server, store.root, item)
    until(lambda: bool(server.ranges_asked(WHEEL)) and (page.hang or _arrived(store, item) > 0))
    child.send_signal(signal.SIGINT)
    assert _end(child) == (130, "", "")
    arrived = _arrived(store, item)
    server.pages[f"/files/{WHEEL}"] = Page(body=BODY)
    fetch_artifacts(
        [item], Context(settings=settings, runner=ScriptedRunner({}), store=store, report=Silent())
    )
    assert server.ranges_asked(WHEEL)[-1] == (f"bytes={arrived}-" if arrived else None)
    assert _is_right(store, item)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = [*AS_ROOT, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if not may_be_root() or shutil.which("mount") is None:
        pytest.skip("only root, or a user with sudo, can mount a small file system")
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run([*AS_ROOT, "umount", str(folder)], check=True)


def test_a_disk_that_fills_up_while_a_file_arrives(
    server: Server, settings: Settings, small_disk: Path
) -> None:
    store = Store(small_disk / "store")
    hog = small_disk / "hog"
    item = server.offer(WHEEL, BODY, before=lambda: hog.write_bytes(b"x" * 800_000))

    def get() -> None:
        fetch_artifacts(
            [item],
            Context(settings=settings, runner=ScriptedRunner({}), store=store, report=Silent()),
        )

    with pytest.raises(SpaceError) as caught:
        get()
    assert (
        str(caught.value) == f"{partial_path(store.artifact(item.sha256))}: the file system is full"
    )
    assert (
        caught.value.hint
        == "free space there, or point TMPDIR or ENVBUILD_STORE to a larger file system"
    )
    arrived = _arrived(store, item)
    assert 0 < arrived < len(BODY)
    hog.unlink()
    server.pages[f"/files/{WHEEL}"].before = None
    get()
    assert server.ranges_asked(WHEEL)[-1] == f"bytes={arrived}-"
    assert _is_right(store, item)


def test_a_file_that_will_not_fit_is_told_first(
    server: Server, settings: Settings, small_disk: Path
) -> None:
    item = dataclasses.replace(server.offer(WHEEL, BODY), size=3_000_000)
    with pytest.raises(
        SpaceError, match=r"disk/v1/artifacts: 3\.0 MB are to be downloaded, 1\.0 MB are free$"
    ):
        fetch_artifacts(
            [item],
            Context(
                settings=settings,
                runner=ScriptedRunner({}),
                store=Store(small_disk),
                report=Silent(),
            ),
        )
    assert server.asked == []


def test_a_read_only_store(server: Server, settings: Settings, small_disk: Path) -> None:
    item = server.offer(WHEEL, BODY)
    subprocess.run([*AS_ROOT, "mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(HostError) as caught:
        fetch_artifacts(
            [item],
            Context(
                settings=settings,
                runner=ScriptedRunner({}),
                store=Store(small_disk),
                report=Silent(),
            ),
        )
    assert (
        str(caught.value) == f"{small_disk}/v1/artifacts: cannot be written: Read-only file system"
    )
