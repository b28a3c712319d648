"""A sick tree of real wheels is judged in an image, flat or in layers, as it is in its folder."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from tests.base.interpreters import interpreter
from tests.check.tree import failures
from tests.project import Project
from tests.sick.real.cases import SICK
from tests.sick.real.judge import check_tree
from tests.sick.real.trees import UV, make_tree
from tests.support import needs

PYTHON = interpreter("3.11")
RECIPE = """\
[recipe]
name = "sick"

[base]
bootstrap = "debian:bookworm"

[python]
dependencies = ["packaging"]

[files]
"site" = "/usr/local/lib/python3.11/dist-packages"
"bin" = "/usr/local/bin"
"""
pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    needs("apptainer", "mksquashfs", "mmdebstrap"),
    pytest.mark.skipif(not UV.exists(), reason="not installed here: uv"),
    pytest.mark.skipif(PYTHON is None, reason="not installed here: CPython 3.11"),
]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("pandas 1.5 under numpy 2", "flat"),
        ("pandas 1.5 under numpy 2", "layered"),
        ("onnxruntime-gpu 1.20 without CUDA", "flat"),
    ],
)
def test_the_verdict_of_an_image_is_that_of_its_tree(name: str, mode: str, tmp_path: Path) -> None:
    assert PYTHON is not None
    case = next(one for one in SICK if one.name == name)
    tree = make_tree(case.tree, PYTHON)
    project = Project(tmp_path / "p")
    shutil.copytree(tree.site, project.folder / "site", symlinks=True)
    copy_programs(tree.site, project.folder / "bin")
    (project.folder / "recipes").mkdir()
    (project.folder / "recipes/sick.toml").write_text(RECIPE)
    for words in (("lock", "sick"), ("make", "sick", "--mode", mode, "--no-check")):
        project.succeed(*words)
    away = tmp_path / "away.sif"
    (project.folder / "sick.sif").rename(away)
    checked = Project(tmp_path / "q").run("check", str(away), "--json")
    report = json.loads(checked.stdout)
    seen = {one["check"]: one["reason"] for one in report["findings"] if one["outcome"] == "failed"}
    assert report["verdict"] == "failed"
    assert seen == failures(check_tree(case, tree, alone=True))


def copy_programs(site: Path, target: Path) -> None:
    """Copy the programs that packages name among their files: a tree without them lacks files."""
    target.mkdir()
    for record in site.glob("*.dist-info/RECORD"):
        with record.open(newline="") as text:
            names = [row[0] for row in csv.reader(text)]
        for name in names:
            if name.startswith("../../../bin/"):
                shutil.copy(site / name, target)
