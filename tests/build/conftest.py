"""The small project as an image, made once for all tests of images."""

from __future__ import annotations

import pytest

from envbuild.formats.sif_reader import read_sif
from tests.build.images import copy_of
from tests.project import Project, small_project


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The small project, locked and made once, with layers of its own."""
    folder = tmp_path_factory.mktemp("flat")
    folder.chmod(0o755)
    project = small_project(folder / "first")
    project.succeed("lock", "small")
    project.succeed("make")
    assert read_sif(project.folder / "small.sif").primary is not None
    return project


@pytest.fixture(scope="session")
def layered(first: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("layered")
    folder.chmod(0o755)
    project = copy_of(first, folder / "p", layers=True)
    made = project.succeed("make", "--mode", "layered")
    assert "layered  for turns on this machine" in made.stdout
    return project
