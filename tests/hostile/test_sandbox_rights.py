"""A sandbox lies open on the machine: no file of it lends its owner's rights to other users."""

from __future__ import annotations

import os
import platform
import stat
import tarfile
import tempfile
from collections.abc import Sequence
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
    os.mkfifo(tree / "pipe")
    (tree / "pipe").chmod(0o666)
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
        "pipe": 0o644,
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


ODD = (
    ("usr/bin/lent", tarfile.REGTYPE, 0o6755, 0),
    ("usr/share/pipe", tarfile.FIFOTYPE, 0o666, 0),
    ("usr/share/odd", tarfile.REGTYPE, 0o666, 1000),
    ("usr/share/open", tarfile.DIRTYPE, 0o777, 0),
    ("usr/share/shared", tarfile.DIRTYPE, 0o3777, 1000),
    ("usr/share/out", tarfile.SYMTYPE, 0o777, 0),
)
"""Path, type, mode and owner of what a base should not bring."""
DISK = ("usr/share/disk", tarfile.BLKTYPE, 0o666, 0)


def odd_layer(members: Sequence[tuple[str, bytes, int, int]]) -> bytes:
    out = b""
    for path, kind, mode, owner in members:
        info = tarfile.TarInfo(path)
        info.type, info.mode, info.uid, info.gid = kind, mode, owner, owner
        info.linkname = "/etc/shadow" if kind == tarfile.SYMTYPE else ""
        info.devmajor, info.devminor = (8, 0) if kind == tarfile.BLKTYPE else (0, 0)
        out += info.tobuf()
    return out + bytes(1024)


def hostile_base(project: Project, layer: bytes) -> None:
    """Write the layout of a base with such a layer, and the recipe on it."""
    python = interpreter("3.11")
    if python is None:
        pytest.skip("no Python 3.11 on this machine")
    base = image_of(programs(), python_tar(python.resolve(), "/usr"), layer)
    write_layout(base, project.folder / "layout")
    project.write("recipes/lent.toml", RECIPE)


ON_AMD64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="images for amd64")


@pytest.mark.live
@needs("apptainer")
@ON_AMD64
def test_of_a_base_that_brings_such_files(tmp_path: Path) -> None:
    project = Project(tmp_path)
    hostile_base(project, odd_layer(ODD[:1]))
    for words in (("lock", "lent"), ("make", "lent", "--mode", "sandbox")):
        project.succeed(*words)
    found = tmp_path / "lent.sandbox/usr/bin/lent"
    assert stat.S_IMODE(found.stat().st_mode) == 0o755


@pytest.mark.live
@needs("apptainer")
@ON_AMD64
@pytest.mark.parametrize("disk", [False, True])
def test_of_an_image_that_brings_such_files(tmp_path: Path, *, disk: bool) -> None:
    """A SIF from somebody else is the base: of a sandbox, and of another image."""
    project, shadow = Project(tmp_path), Path("/etc/shadow").stat()
    hostile_base(project, odd_layer((*ODD, DISK) if disk else ODD))
    over = RECIPE.replace('"lent"', '"over"').replace("oci:layout", "lent.sif")
    project.write("recipes/over.toml", over)
    project.succeed("lock", "lent")
    project.succeed("make", "lent", "--mode", "flat", "--no-check")
    project.succeed("lock", "over")
    project.succeed("make", "over", "--mode", "flat", "--no-check")
    made = project.run("make", "over", "--mode", "sandbox", "--no-check")
    tree = tmp_path / "over.sandbox"
    first, count = read_host().subuid or (0, 0)
    if made.code:
        assert disk, made.stderr
        assert made.code == 7
        assert not tree.exists()
    for path in tree.rglob("*"):
        found = path.lstat()
        assert found.st_uid == os.getuid() or first <= found.st_uid < first + count, path
        if os.getuid() not in (0, found.st_uid) and stat.S_IMODE(tree.stat().st_mode) == 0o700:
            continue  # a subordinate id's, which its user may not change and nobody else reaches
        is_folder = stat.S_ISDIR(found.st_mode)
        is_sticky = is_folder and found.st_mode & stat.S_ISVTX
        assert is_folder or not found.st_mode & 0o6000, path
        assert stat.S_ISLNK(found.st_mode) or is_sticky or not found.st_mode & 0o022, path
        is_device = stat.S_ISBLK(found.st_mode) or stat.S_ISCHR(found.st_mode)
        assert not (is_device and found.st_mode & 0o077), path
        if not path.is_symlink():
            assert "security.capability" not in os.listxattr(path), path
    assert Path("/etc/shadow").stat()[:8] == shadow[:8]
