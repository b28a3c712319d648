"""A small locked recipe, and users with a shelf: a folder or a bare git repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from envbuild.lock.digest import recipe_digest
from envbuild.lock.model import Lock, LockedBase, Packer, PythonPackage
from envbuild.lock.write import write_lock
from envbuild.recipe.read import read_recipe
from tests.project import Project

RECIPE = """\
[recipe]
name = "NAME"
summary = "A small recipe for shelves"

[base]
image = "docker://example.invalid/lab/torch:2.5"

[python]
dependencies = ["six==1.16.0"]

[check]
imports = ["six"]
script = "NAME/check.py"
"""
PACKAGE = PythonPackage(
    name="six", version="1.16.0", group="project", file="six-1.16.0-py2.py3-none-any.whl", size=11053,
    sha256="8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254", via=("(direct)",),
)  # fmt: skip


def lock_of(path: Path) -> Lock:
    """The lock of a recipe file, as if it had been resolved."""
    recipe, _ = read_recipe(path)
    base = LockedBase(
        reference=recipe.base.image or "", digest=f"sha256:{'1' * 64}", facts=f"sha256:{'2' * 64}", python="3.11.2",
        machine="x86_64", glibc="2.36", created="2024-11-01", epoch=1730419200, framework="torch 2.5.1", cuda="12.4.127",
    )  # fmt: skip
    return Lock(
        schema=1, name=recipe.name, platform="linux/amd64", recipe_digest=recipe_digest(recipe), proof="not run",
        direct=recipe.python.dependencies, base=base, packer=Packer(name="p", version="1", compressor="zstd", level=3),
        python=(PACKAGE,),
    )  # fmt: skip


class User(Project):
    """Somebody with a project folder, settings and a memory of his own."""

    def recipe(self, name: str, *, summary: str = "A small recipe for shelves", text: str = RECIPE) -> Path:
        """Write a recipe with its check script and lock."""
        text = text.replace("NAME", name).replace("A small recipe for shelves", summary)
        path = self.write(f"recipes/{name}.toml", text)
        self.write(f"recipes/{name}/check.py", "print('checked')\n")
        self.write(f"lockfiles/{name}.lock", write_lock(lock_of(path)))
        return path

    def ok(self, *arguments: str, **env: str) -> str:
        """Run a command that must succeed; return what it printed."""
        result = self.run(*arguments, timeout=120, **env)
        assert result.code == 0, result.stderr
        return result.stdout

    def refused(self, code: int, *arguments: str, **env: str) -> str:
        """Run a command that must fail with this code and without a traceback; return what it said."""
        result = self.run(*arguments, timeout=120, **env)
        assert result.code == code, (result.stdout, result.stderr)
        assert "Traceback" not in result.stderr
        return result.stderr


def user(folder: Path, shelf: str | None = None, *options: str) -> User:
    """A user, with the shelf ``lab`` added where one is given."""
    who = User(folder, folder / "store")
    who.env |= {"LOGNAME": folder.name, "GIT_CONFIG_NOSYSTEM": "1"}
    if shelf is not None:
        who.ok("shelf", "add", "lab", shelf, *options)
    return who


@pytest.fixture(params=["folder", "git"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place of either kind."""
    if request.param == "folder":
        return str(tmp_path / "shelf")
    if shutil.which("git") is None:
        pytest.skip("not installed here: git")
    return bare(tmp_path / "shelf.git")


def bare(path: Path) -> str:
    """An empty bare repository."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True, env={**os.environ, "LC_ALL": "C"})
    return str(path)


def entry_of(text: str) -> dict[str, object]:
    """Decode what ``shelf show --json`` prints."""
    return msgspec.json.decode(text, type=dict[str, object])
