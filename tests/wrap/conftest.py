"""A project with an image in name only, and a container runtime that notes how it was called."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner, Result
from tests.support import SIF, run_here

RECIPE = """\
[recipe]
name = "tiny"
summary = "it's [exec touch pwned] $(touch pwned) \\"quoted\\" {{x}}"
[base]
bootstrap = "debian:bookworm"
[run]
command = ["python", "it's $HOME.py"]
caches = [".own"]
"""
RUNTIME = """\
#!/bin/sh
case "$1 $*" in
--version*) echo apptainer version 1.4.5 ;;
*importlib.util*) exit 0 ;;
*importlib.metadata*) echo '["python", "python3", "ls", "tool", "../evil", "in-image", "two words"]' ;;
*)
  for word; do printf '<%s>\\n' "$word"; done
  env | grep APPTAINERENV | sort
  exit 7
  ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder with a recipe, an image in name only, and a runtime that notes how it was called."""
    folder = tmp_path / "project"
    (folder / "recipes").mkdir(parents=True)
    (folder / "recipes/tiny.toml").write_text(RECIPE)
    (folder / "tiny.sif").write_bytes(SIF)
    for name in ("bin", "tmp"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin/apptainer"
    program.write_text(RUNTIME)
    program.chmod(0o755)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    top = folder.parent
    path = f"{top / 'bin'}:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(top), "TMPDIR": str(top / "tmp"), **more}


def envbuild(folder: Path, *words: str) -> Result:
    return run_here(folder, environment(folder), *words)


def envbuild_apart(folder: Path, *words: str) -> Result:
    """Run a verb whose command takes the place of its process."""
    argv = (sys.executable, "-m", "envbuild", *words)
    command = Command(argv=argv, cwd=folder, env=environment(folder), timeout=60)
    return LocalRunner()(command, check=False)


def call(program: Path, *words: str, cwd: Path, **more: str) -> Result:
    env = environment(program.parents[5] / "project", **more) if "PATH" not in more else dict(more)
    command = Command(argv=(str(program), *words), cwd=cwd, env=env, timeout=20)
    return LocalRunner()(command, check=False)


def inside(result: Result) -> list[str]:
    """Return the words that the runtime got behind the image."""
    words = re.findall(r"^<(.*)>$", result.stdout, re.MULTILINE)
    place = next(place for place, word in enumerate(words) if word.endswith(".sif"))
    return words[place + 1 :]
