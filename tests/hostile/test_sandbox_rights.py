"""A sandbox lies open on the machine: no file of it lends its owner's rights to other users."""

from __future__ import annotations

import os
import platform
import stat
import tarfile
import tempfile
from pathlib import Path

import pytest

from envbuild.build.modes.sandbox_rights import withdraw_rights
from envbuild.errors import IntegrityError
from envbuild.host import read_host
from tests.base.interpreters import interpreter
from tests.base.ociimages import image_of, programs, python_tar, write_layout
from tests.project import Project
from tests.support import needs

USER, SUBORDINATE = 65534, 231077

RECIPE = '[recipe]\nname = "lent"\n[base]\nimage = "oci:layout"\n[python]\ndependencies = []\n'


def modes(folder: Path) -> dict[str, int]:
    found = {path.name: path.lstat().st_mode for path in folder.rglob("*")}
    return {name: stat.S_IMODE(mode) for name, mode in found.items() if not stat.S_ISLNK(mode)}


def test_files_lose_what_acts_for_their_owner(tmp_path: Path) -> None:
    tree, own = tmp_path / "tree", tmp_path / "own"
    for folder in (tree / "shut", tree / "mail"):
        folder.mkdir(parents=True)
    for path, mode in (("su", 0o4755), ("wall", 0o3775), ("shut/su", 0o6711), ("plain", 0o646)):
        (tree / path).write_text("")
        (tree / path).chmod(mode)
    own.write_text("")
    own.chmod(0o4755)
    (tree / "out").symlink_to(own)
    os.mkfifo(tree / "pipe", 0o600)
    (tree / "mail").chmod(0o2777)
    (tree / "tmp").mkdir()
    (tree / "tmp").chmod(0o1777)
    tree.chmod(0o777)
    (tree / "shut").chmod(0o055)
    withdraw_rights(tree)
    assert modes(tree) == {
        "su": 0o711,  # the one in the folder that its owner could not enter
        "wall": 0o1755,
        "plain": 0o644,
        "pipe": 0o600,
        "mail": 0o2755,
        "shut": 0o755,
        "tmp": 0o1777,
    }
    assert stat.S_IMODE(tree.stat().st_mode) == 0o755
    assert stat.S_IMODE((tree / "su").stat().st_mode) == 0o755
    assert stat.S_IMODE(own.stat().st_mode) == 0o4755


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of other users")
def test_roots_sandbox_has_no_file_of_a_user(tmp_path: Path) -> None:
    files = {"user": USER, "subordinate": (read_host().subuid or (SUBORDINATE,))[0]}
    for name, number in files.items():
        (tmp_path / name).write_text("")
        os.chown(tmp_path / name, number, number)
    withdraw_rights(tmp_path)
    kept = files["subordinate"] if read_host().subuid else 0
    assert [(tmp_path / name).stat().st_uid for name in files] == [0, kept]


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes devices")
def test_devices_are_closed_and_capabilities_gone(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "disk", stat.S_IFBLK | 0o666, os.makedev(8, 0))
        (tmp_path / "program").write_text("")
        held = b"\1\0\0\2\xff\xff\xff\xff" + bytes(12)
        os.setxattr(tmp_path / "program", "security.capability", held)
    except OSError as error:
        pytest.skip(f"not possible here: {error}")
    withdraw_rights(tmp_path)
    assert stat.S_IMODE((tmp_path / "disk").stat().st_mode) == 0o600
    assert os.listxattr(tmp_path / "program") == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes folders of other users")
@pytest.mark.parametrize(
    ("mode", "group", "is_refused"),
    [
        (0o711, SUBORDINATE, True),
        (0o710, USER, True),
        (0o701, SUBORDINATE, True),
        (0o700, SUBORDINATE, False),
        (0o750, SUBORDINATE, False),
        (0o755, SUBORDINATE, False),
    ],
)
def test_a_folder_of_a_subordinate_id_that_hides_what_others_reach(
    mode: int, group: int, is_refused: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        tree.chmod(0o755)
        for path in (tree / "su", tree / "shut/su"):
            path.parent.mkdir(exist_ok=True)
            path.write_text("")
            os.chown(path, USER, USER)
            path.chmod(0o4755)
        os.chown(tree / "shut", SUBORDINATE, group)
        (tree / "shut").chmod(mode)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgroups([])
                os.setgid(USER)
                os.setuid(USER)
                withdraw_rights(tree)
                code = 0
            except IntegrityError as error:
                code = error.code
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (6 if is_refused else 0)
        if mode == 0o755:
            assert not (tree / "shut/su").stat().st_mode & stat.S_ISUID


@pytest.mark.live
@needs("apptainer")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the image is made for amd64")
def test_of_a_base_that_brings_such_files(tmp_path: Path) -> None:
    python = interpreter("3.11")
    if python is None:
        pytest.skip("no Python 3.11 on this machine")
    project = Project(tmp_path)
    lent = tarfile.TarInfo("usr/bin/lent")
    lent.mode = 0o6755
    hostile = lent.tobuf() + bytes(1024)
    base = image_of(programs(), python_tar(python.resolve(), "/usr"), hostile)
    write_layout(base, tmp_path / "layout")
    project.write("recipes/lent.toml", RECIPE)
    for words in (("lock", "lent"), ("make", "lent", "--mode", "sandbox")):
        result = project.run(*words)
        assert result.code == 0, result.stderr
    found = tmp_path / "lent.sandbox/usr/bin/lent"
    assert stat.S_IMODE(found.stat().st_mode) == 0o755
