"""What was done in a sandbox: compared with its note, told as recipe lines; the tree itself is a folder of the test."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from envbuild.app.sandbox import describe_changes
from envbuild.base.model import AptPackage, BaseFacts, Dist
from envbuild.build.modes.sandbox import (
    NOTE,
    ManualChanges,
    SandboxNote,
    VersionChange,
    find_manual_changes,
    packing_sandbox,
    read_note,
    recipe_lines,
)
from envbuild.context import open_context
from envbuild.errors import UsageError
from envbuild.lock.model import Packer
from envbuild.progress import Silent
from envbuild.settings import load_settings
from tests.support import ScriptedRunner

SITE = "/usr/lib/python3/dist-packages"


def facts(dists: dict[str, tuple[str, tuple[str, ...]]], apt: dict[str, str]) -> BaseFacts:
    return BaseFacts(
        image="x",
        python="3.11.2",
        machine="x86_64",
        glibc="2.36",
        site=(SITE,),
        dists=tuple(Dist(name=n, version=v, requires=r) for n, (v, r) in dists.items()),
        apt=tuple(AptPackage(name=n, version=v, architecture="amd64") for n, v in apt.items()),
    )


def note(**changes: object) -> SandboxNote:
    made = SandboxNote(
        recipe="app",
        lock="sha256:" + "1" * 64,
        python="/usr/bin/python3",
        packer=Packer(name="mksquashfs", version="4.5", compressor="zstd", level=3),
        dists={"six": "1.15.0", "gone": "1.0"},
        apt={"libc6": "2.36-9"},
        files={},
    )
    return msgspec.structs.replace(made, **changes)


def write(folder: Path, path: str, text: str = "") -> None:
    target = folder / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def test_everything_done_by_hand_is_told_once(tmp_path: Path) -> None:
    for path in (
        f"{SITE}/cv2/x.py",
        "/usr/bin/tool",
        "/opt/mine",
        "/var/log/apt/x",
        "/tmp/x",
        "/opt/a/__pycache__/x.pyc",
    ):
        write(tmp_path, path)
    write(tmp_path, "/usr/lib/libGL.so.1")
    write(tmp_path, "/var/lib/dpkg/info/libgl1:amd64.list", "/usr/lib/libGL.so.1\n")
    write(
        tmp_path,
        "/var/lib/apt/extended_states",
        "Package: libglvnd0\nArchitecture: amd64\nAuto-Installed: 1\n\n",
    )
    now = facts(
        {
            "six": ("1.16.0", ()),
            "opencv-python": ("4.10.0.84", ("numpy>=1.21", 'six; extra == "x"')),
            "numpy": ("2.1.0", ()),
        },
        {"libc6": "2.36-9", "libgl1": "1.6.0-1", "libglvnd0": "1.6.0-1"},
    )
    done = find_manual_changes(tmp_path, note(), now)
    assert done == ManualChanges(
        dists=(
            VersionChange("gone", "1.0", None),
            VersionChange("numpy", None, "2.1.0"),
            VersionChange("opencv-python", None, "4.10.0.84"),
            VersionChange("six", "1.15.0", "1.16.0"),
        ),
        apt=(
            VersionChange("libgl1", None, "1.6.0-1"),
            VersionChange("libglvnd0", None, "1.6.0-1"),
        ),
        files=("/opt/mine",),
        direct=("opencv-python", "six"),
        asked_for=("libgl1",),
    )
    assert recipe_lines(done) == (
        "[python]",
        "dependencies = [",
        '  "opencv-python==4.10.0.84",',
        '  "six==1.16.0",',
        "]",
        "[system]",
        'packages = ["libgl1"]',
    )
    assert "  ~ six 1.15.0 -> 1.16.0\n" in describe_changes(done)
    assert "  - gone 1.0\n" in describe_changes(done)


def test_nothing_done_is_told_as_such(tmp_path: Path) -> None:
    write(tmp_path, "/opt/x", "1")
    state = (tmp_path / "opt/x").stat()
    known = note(dists={}, apt={}, files={"/opt/x": (state.st_size, state.st_mtime_ns)})
    done = find_manual_changes(tmp_path, known, facts({}, {}))
    assert describe_changes(done) == "nothing was changed by hand"
    assert recipe_lines(done) == ()
    write(tmp_path, "/opt/x", "longer")
    assert find_manual_changes(tmp_path, known, facts({}, {})).files == ("/opt/x",)
    (tmp_path / "opt/x").unlink()
    assert find_manual_changes(tmp_path, known, facts({}, {})).files == ("/opt/x",)


def test_a_file_name_cannot_steer_the_terminal() -> None:
    done = ManualChanges(dists=(), apt=(), files=("/opt/\x1b[31mred",), direct=(), asked_for=())
    assert "\x1b" not in describe_changes(done)


def test_a_folder_that_is_no_sandbox_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_note(tmp_path)
    assert caught.value.what == "is not a sandbox of envbuild"
    assert caught.value.hint == "make one: envbuild make NAME --mode sandbox"
    (tmp_path / NOTE).write_text("{")
    with pytest.raises(UsageError, match="is damaged: "):
        read_note(tmp_path)


def test_no_name_of_a_folder_adds_a_line_to_a_definition(tmp_path: Path) -> None:
    """A section %setup would run on this machine."""
    folder = tmp_path / "a\n%setup\nid"
    folder.mkdir()
    context = open_context(load_settings({"HOME": str(tmp_path)}), ScriptedRunner({}), Silent())
    with (
        pytest.raises(UsageError, match="would add lines to a definition"),
        packing_sandbox(folder, tmp_path / "a.sif", note(), context),
    ):
        pass
