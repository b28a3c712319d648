"""How far a build from a definition is: what its installer has unpacked."""

from __future__ import annotations

import hashlib
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild.build.modes.perform import BuildProgress
from envbuild.parts.from_tar import tar_contents
from tests.support import CountingStage


def building(tmp_path: Path) -> Any:
    return SimpleNamespace(
        lock=SimpleNamespace(python=("a", "b", "c", "d")), target=tmp_path / "tree", tmpdir=tmp_path
    )


def test_packages_are_counted_where_apptainer_builds(tmp_path: Path) -> None:
    stage = CountingStage()
    cache = tmp_path / "build-temp-1/rootfs/.envbuild/cache/archive-v0"
    with BuildProgress(building(tmp_path), stage).counting_packages():
        for name in ("one", "two"):
            (cache / name).mkdir(parents=True)
        while stage.done < 35:
            time.sleep(0.05)
    assert (stage.total, stage.done) == (100, 35)


def test_a_root_that_may_not_be_read_ends_no_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an ordinary user builds: the folder belongs to his subordinate ids meanwhile."""
    looked: list[Path] = []

    def closed(path: Path, _: str) -> list[Path]:
        looked.append(path)
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "glob", closed)
    stage = CountingStage()
    with BuildProgress(building(tmp_path), stage).counting_packages():
        while len(looked) < 2:
            time.sleep(0.05)
    assert stage.done == 0


def test_what_the_tools_print_tells_how_far_a_build_is(tmp_path: Path) -> None:
    stage = CountingStage()
    progress = BuildProgress(building(tmp_path), stage)
    told = []
    for line in (
        "INFO:    Running setup scriptlet",
        "INFO:    Running post scriptlet",
        "+ set -eu",
        "#5 [1/4] FROM scratch",
        "#8 [stage-0 2/4] COPY files /mnt",
        "STEP 3/4: RUN sh /install",
        "Step 4/4 : RUN sh /install",
        "#9 [5/4] RUN nonsense",
        "INFO:    Running setup scriptlet",
        "INFO:    Creating SIF file...",
    ):
        progress.read_line(line)
        told.append(stage.done)
    assert told == [2, 10, 10, 15, 30, 45, 60, 60, 60, 75]


def test_a_root_is_counted_by_the_bytes_of_its_tar(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        tar.add(tmp_path / "file", "usr/file")
    stage = CountingStage()
    path = tmp_path / "root.tar"
    list(tar_contents(path, hashlib.sha256(path.read_bytes()).hexdigest(), stage))
    assert 100_000 < stage.done <= path.stat().st_size
