"""Run the commands that pages show, and compare what is printed with what they show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import Step, shape
from tests.project import shared_store


def shell(command: str, folder: Path, home: Path) -> str:
    """Run a command as a user with an empty HOME, and return all that it prints."""
    programs = Path(sys.executable).parent
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("ENVBUILD_", "XDG_", "UV_TOOL"))
    }
    path = f"{programs}:{os.environ['PATH']}"
    env = {**kept, "HOME": str(home), "PATH": path, "ENVBUILD_STORE": str(shared_store())}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    return done.stdout


def compare(step: Step, printed: str) -> None:
    """Every line that the page shows is among those printed, in that order; "…" stands for others."""
    have = iter([shape(line) for line in printed.splitlines()])
    for line in step.shown:
        if line and line != "…":
            assert any(shape(line) == other for other in have), (
                f"$ {step.command}\ndoes not print {line!r}:\n{printed}"
            )
