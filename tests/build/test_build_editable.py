"""A project in its folder becomes a wheel of a path file; nothing of it is run."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from envbuild.build.packages.editable import has_modules, read_project, write_editable_wheel
from envbuild.errors import UsageError


def write_project(folder: Path, text: str, file: str = "pyproject.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text, "utf-8")
    return folder


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ('[project]\nname = "a"\n', "src"),
        ('[project]\nname = "a"\n[tool.setuptools]\npackage-dir = { "" = "lib" }\n', "lib"),
        ('[project]\nname = "a"\n[tool.setuptools.packages.find]\nwhere = ["lib"]\n', "lib"),
        ('[project]\nname = "a"\n[tool.hatch.build.targets.wheel]\npackages = ["lib/a"]\n', "lib"),
        ('[project]\nname = "a"\n[tool.setuptools]\npackage-dir = { "" = "../.." }\n', "src"),
        ('[project]\nname = "a"\n[tool.setuptools]\npackage-dir = { "" = 7 }\n', "src"),
    ],
)
def test_modules_are_found_where_the_builder_finds_them(
    tmp_path: Path, text: str, root: str
) -> None:
    folder = write_project(tmp_path / "p", text)
    (folder / "src").mkdir()
    (folder / "lib").mkdir()
    assert read_project(folder).root == folder / root


def test_the_wheel_holds_a_path_and_metadata_alone(tmp_path: Path) -> None:
    text = '[project]\nname = "My.Lib"\nversion = "1.0"\ndependencies = ["six>=1"]\n'
    text += '[project.scripts]\nrun = "my.lib:main"\n"bad name" = "x:y"\nodd = "os; import x"\n'
    project = read_project(write_project(tmp_path / "Bücher und mehr", text))
    assert project.requires == ("six>=1",)
    path = write_editable_wheel(project, tmp_path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    assert members["__editable__.my-lib.pth"] == f"{tmp_path}/Bücher und mehr\n"
    assert "Requires-Dist: six>=1\n" in members["my_lib-1.0.dist-info/METADATA"]
    commands = members["my_lib-1.0.dist-info/entry_points.txt"]
    assert commands == "[console_scripts]\nrun = my.lib:main\n"
    again = tmp_path / "again"
    again.mkdir()
    assert write_editable_wheel(project, again).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("file", "there"),
    [
        ("a.py", True),
        ("src/a/__init__.py", True),
        ("name/space/a.py", True),
        ("a.abi3.so", True),
        ("setup.py", False),
        ("tests/test_a.py", False),
        (".venv/lib/a.py", False),
        ("data/a.csv", False),
    ],
)
def test_a_project_without_a_module_is_known(tmp_path: Path, file: str, there: bool) -> None:
    folder = write_project(tmp_path / "p", '[project]\nname = "a"\n')
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).touch()
    assert has_modules(read_project(folder)) is there


def test_setup_py_is_read_and_not_run(tmp_path: Path) -> None:
    text = "from setuptools import setup\nopen('/nowhere/x', 'w')\nsetup(name='old', version='2')\n"
    project = read_project(write_project(tmp_path / "p", text, "setup.py"))
    assert (project.name, project.version) == ("old", "2")


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("p", "[tool.x]\n", "none that tells its name"),
        ("p", "[project\n", "is not valid TOML"),
        ("p\nq", '[project]\nname = "a"\n', "line end"),
    ],
)
def test_what_is_no_project_is_refused(tmp_path: Path, name: str, text: str, what: str) -> None:
    folder = write_project(tmp_path / name, text)
    with pytest.raises(UsageError, match=what):
        read_project(folder)


def test_a_file_is_no_project(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="takes the folder"):
        read_project(write_project(tmp_path, "x") / "pyproject.toml")
