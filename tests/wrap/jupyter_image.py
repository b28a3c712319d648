"""A real image with JupyterLab on a bare Debian, made once for live tests and kept in their store."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from tests.project import Project

RECIPE = """\
[recipe]
name = "nb"
summary = "JupyterLab and six"

[base]
bootstrap = "debian:bookworm"

[python]
dependencies = ["jupyterlab==4.4.10", "six==1.16.0"]

[run]
command = ["python", "-c", "print('the default command')"]
"""


@functools.cache
def _made() -> Path:
    """A folder with ``nb.sif``, its recipe and lock."""
    folder = Path(tempfile.mkdtemp(prefix="envbuild-jupyter-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    project = Project(folder)
    project.write("recipes/nb.toml", RECIPE)
    project.succeed("make", "nb", "--no-check", "--no-proof")
    return folder


def put_jupyter_image(folder: Path) -> None:
    """Put recipe, lock and image into a project's folder."""
    for name in ("recipes/nb.toml", "lockfiles/nb.lock", "nb.sif"):
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(_made() / name, target)
