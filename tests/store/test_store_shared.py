"""A lab's store by use: two users of one group, each with umask 077, in a folder with the setgid bit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from envbuild.errors import EnvbuildError
from envbuild.progress import Silent
from envbuild.settings import load_settings
from envbuild.shelf.git import GitBackend
from envbuild.store.atomic import commit_file, write_text
from envbuild.store.layout import Store
from tests.store.server import until
from tests.support import quiet_context

LAB = 64001
USERS = (64002, 64003)
PRELUDE = """
import hashlib, os, sys, time
os.umask(0o077)
from pathlib import Path
from envbuild.progress import Silent
from envbuild.store.atomic import commit_file, write_bytes
from envbuild.store.layout import Store
store = Store(Path(sys.argv[1]))
class Say(Silent):
    def say(self, text):
        print(text, flush=True)
def keep(data):
    with store.work("test") as work:
        (work / "file").write_bytes(data)
        commit_file(work / "file", store.artifact(hashlib.sha256(data).hexdigest()))
    write_bytes(store.own(store.record("sha256:key")), data, mode=0o444)
"""


@pytest.fixture
def lab() -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can be two other users")
    folder = Path(tempfile.mkdtemp(prefix="envbuild-lab-"))
    os.chown(folder, 0, LAB)
    folder.chmod(0o2775)
    yield folder
    shutil.rmtree(folder)


def as_user(user: int, code: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    # this checkout may lie where only root may read
    rights = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search")
    argv = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={LAB}", *rights, "--"]
    return subprocess.Popen(
        [*argv, sys.executable, "-c", PRELUDE + code, str(folder), *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_what_one_user_made_another_may_use_replace_and_clear(lab: Path) -> None:
    for user in USERS:
        child = as_user(user, "keep(b'one')\nwith store.lock('k', Say()): keep(b'two')", lab)
        assert (child.communicate(timeout=60)[0], child.returncode) == ("", 0)
    folders = [path for path in (lab / "v1").rglob("*") if path.is_dir()]
    assert folders
    assert {(path.stat().st_gid, oct(path.stat().st_mode & 0o7777)) for path in folders} == {
        (LAB, "0o2775")
    }
    files = [path for path in (lab / "v1/artifacts").rglob("*") if path.is_file()]
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {"0o444"}
    assert {path.stat().st_uid for path in files} <= set(USERS)


def test_a_lock_of_another_user_is_waited_for_and_taken_over_when_that_one_is_killed(
    lab: Path,
) -> None:
    first = as_user(
        USERS[0], "with store.lock('k', Say()): print('held', flush=True); time.sleep(60)", lab
    )
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    second = as_user(USERS[1], "with store.lock('k', Say()): print('mine', flush=True)", lab)
    assert second.stdout is not None
    try:
        told = second.stdout.readline()
        assert (
            told
            == f"waiting for process {first.pid} on {os.uname().nodename}, which makes the same thing\n"
        )
        first.send_signal(signal.SIGKILL)
        assert second.stdout.readline() == "mine\n"
        assert second.wait(timeout=60) == 0
    finally:
        for child in (first, second):
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
    until(lambda: not (lab / "v1/locks/k.holder").exists())


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o777])
def test_nobody_else_writes_to_ones_own_store_whatever_the_umask(mode: int, tmp_path: Path) -> None:
    """Of many sites the umask is 002, and the first group of a user that of the lab."""
    tmp_path.chmod(mode)
    before = os.umask(0)
    try:
        store = Store(tmp_path / "cache/envbuild")
        with store.work("test") as work:
            (work / "file").write_bytes(b"one")
            commit_file(work / "file", store.artifact("a" * 64))
        with store.lock("key", Silent()):
            write_text(store.own(store.record("sha256:key")), "{}")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path / "mirror's"),
        }
        settings = load_settings(environment, tmp_path)
        with pytest.raises(EnvbuildError):
            GitBackend("file:///nothing/here.git", quiet_context(settings)).refresh()
    finally:
        os.umask(before)
    tops = (store.root, tmp_path / "mirror's/envbuild")
    found = {path for top in tops for path in (top, *top.rglob("*")) if path.is_dir()}
    assert found >= {store.root, store.root / "v1/artifacts/aa", tops[1] / "shelves"}
    closed = {path for path in found if not path.stat().st_mode & 0o077}
    reached = {path for path in found if not closed & set(path.parents)}
    assert {path for path in reached if path.stat().st_mode & 0o022} == set()
