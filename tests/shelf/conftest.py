"""Empty places of both kinds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.shelf.people import bare


@pytest.fixture(params=["folder", "git"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place that can become a shelf."""
    if request.param == "git" and shutil.which("git") is None:
        pytest.skip("not installed here: git")
    return str(tmp_path / "shelf") if request.param == "folder" else bare(tmp_path / "shelf.git")


@pytest.fixture
def ssh_to_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ssh run on this machine what it is asked to run on any other: hooks are a server's."""
    program = tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor asked; do :; done\nexec sh -c "$asked"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
