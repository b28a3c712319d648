"""A driver made of C.  Trees are no containers: homes and toolkits that a probe sees are the machine's, so none is looked at."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from envbuild.check import plan
from envbuild.run import Command, LocalRunner


@pytest.fixture(autouse=True)
def nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look into no home folder and no toolkit outside a tree."""
    monkeypatch.setattr(plan, "HOMES", ())
    monkeypatch.setattr(plan, "TOOLKITS", ())


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the fake driver: a folder with libcuda.so.1 and libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    source = Path(__file__).with_name("fake_driver.c")
    library = folder / "libcuda.so.1"
    LocalRunner()(Command(argv=("cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source))))
    shutil.copy(library, folder / "libnvidia-ml.so.1")
    return folder
