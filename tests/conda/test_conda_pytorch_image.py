"""PyTorch's own image, as near as it can be had here: its Dockerfile's folders and variables, and a public listing.

No registry with that image can be reached. The records of conda-meta are made of the listing, so what each package
requires is not in them.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from envbuild.base.facts import read_probe
from envbuild.base.gpu import conda_cuda
from envbuild.base.model import BaseFacts
from envbuild.base.oci.layers import Tree
from envbuild.base.oci.static import keep_file, read_static
from envbuild.errors import NoSolutionError
from envbuild.lock.cuda import cuda_of
from envbuild.lock.decide.conda_base import movable_packages
from tests.base.ociimages import Link, dist, tar_of
from tests.base.test_base_static import LIBC, a_python
from tests.conda.channels import Served
from tests.conda.test_conda_lock import Project

LISTED = Path(__file__).parents[1] / "recorded/conda/pytorch-2.4.0-cuda12.4.tsv"
ENVIRONMENT = {
    "PATH": "/opt/conda/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/bin:/bin",
    "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "PYTORCH_VERSION": "2.4.0",
}
SITE = "opt/conda/lib/python3.11/site-packages"


def listed() -> list[list[str]]:
    return [line.split("\t") for line in LISTED.read_text().splitlines()]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> BaseFacts:
    folder = tmp_path_factory.mktemp("image")
    files = {**LIBC, **a_python(at="opt/conda"), "opt/conda/conda-meta/history": ""}
    files["opt/conda/bin/python"] = Link("python3.11")
    for name, version, build, channel in listed():
        record = {"name": name, "version": version, "build": build, "subdir": "linux-64"}
        record["channel"] = f"https://mirror.invalid/{channel}/linux-64"
        files[f"opt/conda/conda-meta/{name}-{version}-{build}.json"] = json.dumps(record)
    for name, version in (("torch", "2.4.0"), ("torchvision", "0.19.0"), ("torchaudio", "2.4.0")):
        files |= dist(SITE, name, version)
        files[f"{SITE}/{name}-{version}.dist-info/INSTALLER"] = "conda"
    (folder / "layer").write_bytes(gzip.compress(tar_of(files), 1))
    tree = Tree(keep_file(ENVIRONMENT))
    tree.add_layer(folder / "layer", None, number=0, where="pytorch")
    told = read_static(tree, ENVIRONMENT, machine="x86_64", where="pytorch")
    digest = "sha256:" + "b" * 64
    return read_probe(told, image="docker://pytorch/pytorch", digest=digest, created="2024-07-24")


def test_it_is_read_as_a_conda_base(facts: BaseFacts) -> None:
    assert (facts.python, facts.python_path) == ("3.11.9", "/opt/conda/bin/python3")
    assert (facts.conda_prefix, facts.off_path) == ("/opt/conda", False)
    assert len(facts.conda) == len(listed())
    assert facts.framework == "torch 2.4.0"
    # cuda-version says 13.1 there: it bounds only packages that nothing of the framework is
    assert facts.cuda == "12.4"
    assert conda_cuda({"cuda-version": "13.1", "libcublas": "12.4.5.8"}) == "13.1"


def test_framework_and_cuda_never_move(facts: BaseFacts) -> None:
    assert movable_packages(facts) == {
        "libcufile",
        "libnpp",
        "libnvfatbin",
        "libnvjitlink",
        "libnvjpeg",
        "torchtriton",
    }


@pytest.fixture
def project(facts: BaseFacts, tmp_path: Path, channels: Served) -> Project:
    project = Project(tmp_path, channels)
    project.facts.write_bytes(msgspec.json.encode(facts))
    return project


def test_a_tool_beside_it_is_all_that_is_locked(project: Project) -> None:
    project.index.wheel("einops", "0.8.0")
    lock = project.lock("samtools", "pytorch", python=("einops",))
    assert [p.file for p in lock.conda] == ["libthing-2.1-0.conda", "samtools-1.21-0.conda"]
    assert (lock.conda_prefix, lock.base.framework, cuda_of(lock)) == (
        "/opt/conda",
        "torch 2.4.0",
        "12.4",
    )
    assert [p.name for p in lock.installed] == ["einops"]


def test_torch_of_an_index_never_comes_over_it(project: Project) -> None:
    project.index.wheel("torch", "2.9.0")
    project.index.wheel("needs-new", "1.0", requires=("torch>=2.9",))
    with pytest.raises(NoSolutionError, match=r"torch"):
        project.lock("samtools", python=("needs-new",))
    project.index.wheel("needs-old", "1.0", requires=("torch>=2.1",))
    lock = project.lock("samtools", python=("needs-old",))
    assert [p.name for p in lock.installed] == ["needs-old"]
    with pytest.raises(NoSolutionError, match="pytorch"):
        project.lock("pytorch >=2.7")
