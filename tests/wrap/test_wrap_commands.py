"""Which commands an image has for a module: those of conda packages stand in their records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from envbuild.app.wrap.module import _check_own
from envbuild.errors import UsageError
from envbuild.wrap.modulefile import render_default

SCRIPTS = resources.files("envbuild.wrap").joinpath("scripts")
SHELL = SCRIPTS.joinpath("list_commands.sh").read_text("utf-8")
PYTHON = SCRIPTS.joinpath("list_commands.py").read_text("utf-8")


@pytest.mark.parametrize("with_python", [True, False])
def test_commands_of_a_conda_package(tmp_path: Path, *, with_python: bool) -> None:
    """With and without a Python in the image; what is no file of its bin is no command."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "grep", "sort", "sed", "paste"):
        (tools / name).symlink_to(f"/bin/{name}")
    for name in ("samtools", "plot-bamstats"):
        (tools / name).touch(0o755)
    if with_python:
        (tools / "python3").symlink_to(sys.executable)
    files = ["bin/samtools", "bin/plot-bamstats", "bin/a/b", "share/bin/x", "lib/libhts.so"]
    record = tmp_path / "samtools-1.21-0.json"
    record.write_text(json.dumps({"files": files, "paths_data": {"paths": ["bin/samtools"]}}))
    words = ("sh", "-c", SHELL, PYTHON, "no-such-package", str(record), "/no/record.json")
    env = {**os.environ, "PATH": str(tools)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    found = set(json.loads(done.stdout)) - {"python3"}
    assert found == {"samtools", "plot-bamstats"}


def test_a_module_is_written_again_and_a_default_of_others_stays(tmp_path: Path) -> None:
    default = tmp_path / ".version"
    default.write_text(render_default("1"))
    _check_own(default)
    default.write_text('#%Module1.0\nset ModulesVersion "1"\n')
    with pytest.raises(UsageError, match="envbuild did not make it"):
        _check_own(default)
    (tmp_path / "1.lua").write_text("-- somebody else's\n")
    with pytest.raises(UsageError, match="envbuild did not make it"):
        _check_own(default)
