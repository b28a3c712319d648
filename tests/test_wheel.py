"""What people install: recipes, locks and data travel in the wheel, so that an empty folder is enough."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

import pytest
import uv

from envbuild.run import Command, LocalRunner

ROOT = Path(__file__).parents[1]
RUN = LocalRunner()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    RUN(
        Command(
            argv=(
                uv.find_uv_bin(),
                "build",
                "--wheel",
                "--quiet",
                "--out-dir",
                str(folder),
                str(ROOT),
            ),
            timeout=300,
        )
    )
    return next(folder.glob("envbuild-*.whl"))


@pytest.mark.live
def test_every_recipe_lock_and_data_file_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("recipes", "lockfiles"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"envbuild/shipped/{path.relative_to(ROOT)}" in names
    for path in (ROOT / "envbuild" / "data").rglob("*.toml"):
        assert str(path.relative_to(ROOT)) in names
    assert "envbuild/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


@pytest.mark.live
def test_the_installed_wheel_works_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    venv, home, folder = tmp_path / "venv", tmp_path / "home", tmp_path / "empty"
    home.mkdir()
    folder.mkdir()
    RUN(Command(argv=(uv.find_uv_bin(), "venv", "--quiet", str(venv)), timeout=120))
    python = str(venv / "bin" / "python")
    install = (uv.find_uv_bin(), "pip", "install", "--quiet", "--python", python, str(wheel))
    RUN(Command(argv=install, timeout=300))
    env = {
        **{
            k: v for k, v in os.environ.items() if not k.startswith(("ENVBUILD_", "XDG_", "PYTHON"))
        },
        "HOME": str(home),
    }
    program = str(venv / "bin" / "envbuild")
    listed = RUN(Command(argv=(program, "list"), cwd=folder, env=env))
    assert re.search(r"^keras-bert\b.*\bfits\b", listed.stdout, re.MULTILINE)
    definition = RUN(Command(argv=(program, "def", "keras-bert"), cwd=folder, env=env)).stdout
    here = RUN(
        Command(argv=(python, "-m", "envbuild", "def", "keras-bert"), cwd=ROOT, env=env)
    ).stdout
    assert definition == here
    checked = RUN(Command(argv=(program, "lock", "keras-bert", "--check"), cwd=folder, env=env))
    assert checked.code == 0
    assert list(folder.iterdir()) == []
