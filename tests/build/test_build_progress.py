"""How far a build from a definition is: what its installer has unpacked."""

from __future__ import annotations

import hashlib
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from envbuild.build.modes.perform import _counting_packages
from envbuild.parts.from_tar import tar_contents
from tests.support import CountingStage


def test_packages_are_counted_where_apptainer_builds(tmp_path: Path) -> None:
    request: Any = SimpleNamespace(
        lock=SimpleNamespace(python=("a", "b", "c")), target=tmp_path / "tree", tmpdir=tmp_path
    )
    stage = CountingStage()
    cache = tmp_path / "build-temp-1/rootfs/.envbuild/cache/archive-v0"
    with _counting_packages(request, stage):
        for name in ("one", "two"):
            (cache / name).mkdir(parents=True)
        while stage.done < 2:
            time.sleep(0.05)
    assert (stage.total, stage.done) == (6, 2)


def test_a_root_is_counted_by_the_bytes_of_its_tar(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        tar.add(tmp_path / "file", "usr/file")
    stage = CountingStage()
    path = tmp_path / "root.tar"
    list(tar_contents(path, hashlib.sha256(path.read_bytes()).hexdigest(), stage))
    assert 100_000 < stage.done <= path.stat().st_size
