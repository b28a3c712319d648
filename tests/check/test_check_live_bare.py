"""Images in which hardly anything can run are judged, not stumbled over."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from envbuild.run import LocalRunner
from envbuild.runtime import BuildOptions
from tests.project import Project
from tests.support import needs
from tests.tiny_image import open_folder, runtime, sandbox, tiny_image

pytestmark = [pytest.mark.live, needs("apptainer", "mksquashfs")]


def without_shell() -> Path:
    root, target = open_folder() / "bare", open_folder() / "bare.sif"
    shutil.copytree(sandbox(), root, symlinks=True)
    (root / "bin/sh").unlink()
    text = open_folder() / "bare.def"
    text.write_text(f"Bootstrap: localimage\nFrom: {root}\n", encoding="utf-8")
    LocalRunner()(runtime().build_command(target, text, open_folder(), BuildOptions(timeout=600)))
    return target


@pytest.mark.parametrize(
    "make", [tiny_image, without_shell], ids=["no Python", "no Python and no shell"]
)
def test_an_image_without_the_programs_that_a_check_starts(make: object, tmp_path: Path) -> None:
    assert callable(make)
    checked = Project(tmp_path / "p", tmp_path / "store").run("check", str(make()), "--json")
    assert checked.code == 1, checked.stderr
    report = json.loads(checked.stdout)
    assert report["verdict"] == "failed"
    assert {
        one["check"]: one["reason"] for one in report["findings"] if one["outcome"] == "failed"
    } == {"start": "the image has no program python3"}
    assert "the check failed: start" in checked.stderr
    assert "Traceback" not in checked.stderr
