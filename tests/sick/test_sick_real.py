"""Faults made with real packages from the package index, in a virtual environment that stands for the image."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from envbuild.check.model import Report
from envbuild.run import Command, LocalRunner
from tests.base.interpreters import interpreter
from tests.check.tree import Tree, failures, make_recipe
from tests.support import needs

UV = Path(sys.executable).with_name("uv")
PYTHON = interpreter("3.11")
pytestmark = [
    pytest.mark.live,
    needs("uv")
    if not UV.exists()
    else pytest.mark.skipif(PYTHON is None, reason="not installed here: CPython 3.11"),
]


def real(root: Path, *requirements: str) -> Tree:
    """Install packages without their dependencies, one line after the other as a careless definition does."""
    assert PYTHON is not None
    tree = Tree(root, python=PYTHON, version="3.11")
    for line in requirements:
        uv = str(UV) if UV.exists() else "uv"
        argv = (
            uv,
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--python",
            str(tree.root / "bin/python3"),
            *line.split(),
        )
        LocalRunner()(Command(argv=argv, env=dict(os.environ), timeout=300))
    return tree


def reason(report: Report, check: str) -> str:
    return next(finding.reason for finding in report.findings if finding.check == check)


def test_numpy_2_under_an_old_wheel(tmp_path: Path) -> None:
    tree = real(tmp_path / "image", "numpy==2.0.2", "pandas==1.5.3 python-dateutil six pytz")
    found = failures(tree.check(make_recipe("pandas")))
    assert list(found) == ["companions", "direct-imports"]
    assert found["direct-imports"].startswith("import pandas: ValueError: numpy.dtype size changed")


def test_numpy_1_under_the_same_wheel(tmp_path: Path) -> None:
    tree = real(tmp_path / "image", "numpy==1.26.4", "pandas==1.5.3 python-dateutil six pytz")
    assert failures(tree.check(make_recipe("pandas", "numpy"))) == {}


def test_jax_without_its_plugin(tmp_path: Path) -> None:
    tree = real(
        tmp_path / "image",
        "jax==0.4.30 jaxlib==0.4.30 numpy==1.26.4 ml-dtypes==0.4.0 opt-einsum scipy==1.13.1",
    )
    assert failures(tree.check(make_recipe("jax"))) == {
        "cuda-match": "jax 0.4.30 is installed without its CUDA plug-in and computes on the CPU only"
    }


def test_small_onnxruntime_that_a_project_asked_for(tmp_path: Path) -> None:
    tree = real(tmp_path / "image", "onnxruntime==1.20.1 numpy==1.26.4")
    assert failures(tree.check(make_recipe("onnxruntime"))) == {}


def test_h5py_3_beside_tensorflow_2_1_is_known_without_installing_tensorflow(
    tmp_path: Path,
) -> None:
    tree = real(tmp_path / "image", "h5py==3.11.0 numpy==1.26.4")
    tree.install("tensorflow-gpu", "2.1.0", {"tensorflow/__init__.py": "__version__ = '2.1.0'\n"})
    found = failures(tree.check(make_recipe("h5py")))
    assert found["companions"] == "h5py 3.11.0 does not go with tensorflow 2.1.0: it wants h5py<3"


PLAIN = "opencv-python-headless==4.10.0.84"
CONTRIB = "opencv-contrib-python-headless==4.10.0.84"


def test_opencv_over_its_contrib_build(tmp_path: Path) -> None:
    tree = real(tmp_path / "image", "numpy==1.26.4", CONTRIB, PLAIN)
    report = tree.check(make_recipe("opencv-python-headless"))
    assert failures(report) == {
        "exclusive": "opencv-contrib-python-headless and opencv-python-headless are both installed; they share the "
        "files of cv2"
    }
    assert "import" in reason(report, "direct-imports")


def test_the_contrib_build_of_opencv_over_the_plain_one(tmp_path: Path) -> None:
    tree = real(tmp_path / "image", "numpy==1.26.4", PLAIN, CONTRIB)
    report = tree.check(make_recipe("opencv-python-headless"))
    assert failures(report) == {}
    assert reason(report, "exclusive") == (
        "opencv-contrib-python-headless and opencv-python-headless are of one release, and the files are "
        "opencv-contrib-python-headless's"
    )
