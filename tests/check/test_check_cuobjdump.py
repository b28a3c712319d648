"""Regions of GPU code are read as NVIDIA's own cuobjdump reads them, from a published library of two CUDA families."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from envbuild.check.answers import Code
from envbuild.check.plan import ProbeRequest
from envbuild.check.probe_runner import ProbeRunner
from envbuild.run import LocalRunner
from tests.check.tree import Tree
from tests.sick.real.trees import CACHE, UV

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not UV.exists(), reason="not installed here: uv"),
]
WHEELS = (
    "nvidia-cuda-cuobjdump==13.5.37",
    "nvidia-nvjpeg==13.3.2.43",
    "nvidia-nvjpeg-cu12==12.4.0.76",
)
LIBRARIES = ("nvidia/cu13/lib/libnvjpeg.so.13", "nvidia/nvjpeg/lib/libnvjpeg.so.12")


def listed(cuobjdump: Path, library: Path, kind: str) -> Counter[int]:
    """Count what cuobjdump lists of one kind ("elf" or "ptx") by capability (times ten)."""
    done = subprocess.run(
        [str(cuobjdump), f"--list-{kind}", str(library)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Counter(int(number) for number in re.findall(r"\bsm_(\d+)\.", done.stdout))


def test_regions_are_counted_as_cuobjdump_counts_them(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "image")
    target = ("--no-deps", "--target", str(tree.site))
    # the cache of sick trees holds libraries without their code, to save space
    environment = {**os.environ, "UV_CACHE_DIR": str(CACHE / "whole")}
    subprocess.run([str(UV), "pip", "install", "-q", *target, *WHEELS], check=True, env=environment)
    cuobjdump = tree.site / "nvidia/cu13/bin/cuobjdump"
    request = ProbeRequest(
        name="fatbin_probe", parameters={"files": LIBRARIES, "limit": 60, "prefix": ""}
    )
    answer = (
        ProbeRunner(tree.root, tree, LocalRunner(), gpu=False).ask((request,)).answer(request, Code)
    )
    assert answer.data is not None, answer.fault
    assert {one.path for one in answer.data.files} == set(LIBRARIES)
    for file in answer.data.files:
        sass: Counter[int] = Counter()
        ptx: Counter[int] = Counter()
        for region in file.regions:
            sass.update(dict.fromkeys(region.sass, region.count))
            ptx.update(dict.fromkeys(region.ptx, region.count))
        library = tree.site / file.path
        assert sass == listed(cuobjdump, library, "elf")
        assert ptx == listed(cuobjdump, library, "ptx")
        assert len(sass) >= 10
