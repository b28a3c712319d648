"""Empty places of both kinds."""

from __future__ import annotations

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
