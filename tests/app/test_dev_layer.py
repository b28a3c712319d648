"""The development layer of an image: what its record says, and what real runs see of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.app.dev_layer import clear_layer, read_record, record_path
from envbuild.errors import IntegrityError
from tests.project import Project
from tests.support import needs

RECIPE = """\
# the course of 2026
[recipe]
name = "small"

[base]
bootstrap = "debian:bookworm"

[python]
dependencies = [
  "six==1.16.0",  # old and small
]
"""
MY_LIB = """\
[project]
name = "my-lib"
version = "0.3"
dependencies = ["six"]
[project.scripts]
my-lib = "my_lib:main"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose image is made."""
    project = Project(tmp_path_factory.mktemp("dev") / "a project")
    project.write("recipes/small.toml", RECIPE)
    result = project.run("make", "small", "--no-proof", "--no-check")
    assert result.code == 0, result.stderr
    return project


def python(project: Project, code: str, *options: str, name: str = "small") -> str:
    result = project.run("exec", *options, name, "--", "python3", "-c", code)
    return result.stdout.strip() if result.code == 0 else result.stderr


@pytest.mark.live
@needs("apptainer", "mmdebstrap")
class TestRealLayer:
    def test_a_package_is_tried_and_dropped(self, made: Project) -> None:
        before = (made.folder / "small.sif").read_bytes()
        added = made.run("add", "--dev", "small", "humanize==4.9.0")
        assert added.code == 0, added.stderr
        assert "humanize 4.9.0" in added.stdout
        code = "import humanize, six; print(humanize.__version__, six.__version__)"
        assert python(made, code) == "4.9.0 1.16.0"
        assert "No module named" in python(made, code, name="./small.sif")
        assert "humanize==4.9.0" in made.run("dev", "small").stdout
        assert made.run("dev", "small", "--clear").code == 0
        assert "No module named" in python(made, code)
        assert (made.folder / "small.sif").read_bytes() == before
        assert not list(made.folder.glob("*.dev*"))

    def test_a_package_for_one_run(self, made: Project) -> None:
        code = "import humanize; print(humanize.__version__)"
        assert python(made, code, "--with", "humanize==4.9.0") == "4.9.0"
        assert not list(made.folder.glob("*.dev*"))

    def test_a_project_is_used_from_its_folder(self, made: Project, tmp_path: Path) -> None:
        lib = tmp_path / "meine Bücher"
        (lib / "src/my_lib").mkdir(parents=True)
        (lib / "pyproject.toml").write_text(MY_LIB, "utf-8")
        module = lib / "src/my_lib/__init__.py"
        module.write_text("def main(): print('first')\n", "utf-8")
        (tmp_path / "link").symlink_to(lib)
        added = made.run("add", "--dev", "small", "-e", str(tmp_path / "link"))
        assert added.code == 0, added.stderr
        assert made.run("exec", "small", "--", "my-lib").stdout == "first\n"
        module.write_text("def main(): print('second')\n", "utf-8")
        assert made.run("exec", "small", "--", "my-lib").stdout == "second\n"
        lib.rename(tmp_path / "elsewhere")
        gone = made.run("exec", "small", "--", "true")
        assert gone.code == 125
        assert "the folder of my-lib" in gone.stderr
        made.run("dev", "small", "--clear")


def test_a_damaged_record_is_told_and_cleared(tmp_path: Path) -> None:
    path = record_path(tmp_path, "small")
    path.write_text('{"schema": 1, "image": "no digest"}')
    with pytest.raises(IntegrityError, match="cannot be read") as caught:
        read_record(path)
    assert caught.value.hint == "remove it: envbuild dev small --clear"
    assert clear_layer(tmp_path, "small") == [path]
    assert read_record(path) is None
