"""A base that is conda itself: its packages stay, and a lock has what is put over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envbuild.conda.model import GivenArchive
from envbuild.errors import NoSolutionError, UsageError
from envbuild.lock.model import Lock
from envbuild.lock.read import parse_lock
from envbuild.lock.write import write_lock
from envbuild.plan.definition import plan_definition
from envbuild.recipe.find import find_recipe
from tests.conda.channels import Served
from tests.conda.test_conda_lock import FACTS, Project

PREFIX = "/opt/conda"
SITE = f"{PREFIX}/lib/python3.12/site-packages"


def held(name: str, version: str, build: str = "0", *depends: str) -> dict[str, Any]:
    return {"name": name, "version": version, "build": build, "depends": depends}


PYTHON = held("python", "3.12.1", "h_old", "__glibc >=2.17")
GPU = (
    held("pytorch", "2.4.0", "py3.12_cuda12.1_cudnn9_0", "python 3.12.*", "pytorch-cuda 12.1.*"),
    held("pytorch-cuda", "12.1", "h_0", "__cuda >=12"),
    held("libcublas", "12.1.3", "h_0"),
)


class CondaBase(Project):
    """A project on a base whose Python is conda's."""

    def __init__(self, folder: Path, channels: Served) -> None:
        super().__init__(folder, channels)
        self.hold(PYTHON)

    def hold(self, *packages: dict[str, Any], dists: tuple[dict[str, Any], ...] = ()) -> None:
        """Say what the base holds."""
        self.describe(
            python="3.12.1",
            python_path=f"{PREFIX}/bin/python3",
            site=[SITE],
            conda_prefix=PREFIX,
            conda=packages,
            dists=dists,
        )

    def describe(self, **facts: Any) -> None:
        """Say what is known of the base."""
        self.facts.write_text(json.dumps({**FACTS, **facts}))


@pytest.fixture
def project(tmp_path: Path, channels: Served) -> CondaBase:
    return CondaBase(tmp_path, channels)


def files(lock: Lock) -> list[str]:
    return sorted(package.file for package in lock.conda)


def test_only_the_difference_is_locked(project: CondaBase) -> None:
    project.hold(PYTHON, held("libthing", "2.0", "own"))
    lock = project.lock("samtools", "tqdm", "python")
    assert files(lock) == ["samtools-1.21-0.conda", "tqdm-4.66.4-pyhd8ed1ab_0.conda"]
    assert {p.name: p.python for p in lock.conda} == {"samtools": None, "tqdm": "3.12"}
    assert (lock.conda_prefix, lock.python_path) == (PREFIX, f"{PREFIX}/bin/python3")
    assert parse_lock(write_lock(lock), "x") == lock


def test_a_package_makes_room_only_where_it_must(project: CondaBase) -> None:
    project.hold(PYTHON, held("libthing", "1.0", "own"), held("r-base", "3.6", "own", "libthing"))
    lock = project.lock("samtools")
    assert files(lock) == ["libthing-2.1-0.conda", "samtools-1.21-0.conda"]
    assert any("libthing 1.0 own of the base makes room for 2.1 0" in note for note in lock.notes)
    project.hold(PYTHON, held("libthing", "1.0", "own"), held("pin", "1", "0", "libthing <2"))
    with pytest.raises(NoSolutionError, match="libthing"):
        project.lock("samtools")


def test_the_framework_of_the_base_stays(project: CondaBase) -> None:
    project.hold(PYTHON, *GPU)
    lock = project.lock("pytorch", "samtools", as_of="2026-03-01")
    assert files(lock) == ["libthing-2.1-0.conda", "samtools-1.21-0.conda"]
    with pytest.raises(NoSolutionError, match="pytorch"):
        project.lock("pytorch >=2.7")


def test_python_stays(project: CondaBase) -> None:
    with pytest.raises(NoSolutionError, match=r"python 3\.12\.1 is locked"):
        project.lock("python 3.11.*")


def test_a_framework_for_the_cpu_is_not_taken_for_the_gpus(project: CondaBase) -> None:
    project.hold(PYTHON, held("pytorch", "2.4.0", "py3.12_cpu_0"))
    with pytest.raises(
        NoSolutionError, match=r"the base holds pytorch 2\.4\.0 as a build for the CPU"
    ):
        project.lock("pytorch")
    assert files(project.lock("samtools")) == ["libthing-2.1-0.conda", "samtools-1.21-0.conda"]


def test_what_pip_brought_into_the_base_keeps_its_version(project: CondaBase) -> None:
    project.hold(PYTHON, dists=({"name": "tqdm", "version": "4.60.0", "installer": "pip"},))
    with pytest.raises(NoSolutionError, match="tqdm"):
        project.lock("requests")
    project.hold(PYTHON, dists=({"name": "tqdm", "version": "4.66.4", "installer": "pip"},))
    assert "tqdm-4.66.4-pyhd8ed1ab_0.conda" in files(project.lock("requests"))


def test_conda_goes_over_no_framework_of_pip(project: CondaBase) -> None:
    project.hold(PYTHON, dists=({"name": "torch", "version": "2.7.1+cu126", "installer": "pip"},))
    with pytest.raises(
        NoSolutionError, match=r"install torch over the base's torch 2\.7\.1\+cu126"
    ):
        project.lock("pytorch * cuda126*")


def test_wheels_replace_nothing_of_conda(project: CondaBase) -> None:
    project.index.wheel("course", "1.0", requires=("tqdm>=5",))
    project.index.wheel("tqdm", "5.0")
    dists = ({"name": "tqdm", "version": "4.66.4", "installer": "conda"},)
    project.hold(PYTHON, held("tqdm", "4.66.4", "x", "python"), dists=dists)
    with pytest.raises(NoSolutionError, match="tqdm"):
        project.lock("samtools", python=("course",))
    lock = project.lock(python=("course",))
    assert [move.name for move in lock.moved] == ["tqdm"]
    assert lock.base.conda_prefix == PREFIX


def test_no_second_cuda_beside_the_bases(project: CondaBase) -> None:
    project.hold(PYTHON, *GPU)
    project.index.wheel("course", "1.0", requires=("nvidia-cublas-cu12==12.6",))
    project.index.wheel("nvidia-cublas-cu12", "12.6")
    with pytest.raises(NoSolutionError, match=r"conda brings libcublas 12\.1\.3"):
        project.lock(python=("course",))


def test_a_whole_list_of_another_tool_is_refused(project: CondaBase) -> None:
    archive = GivenArchive(name="samtools", version="1.21", build="0", file="samtools-1.21-0.conda")
    with pytest.raises(UsageError, match=r"a conda environment \(/opt/conda\), and --from gives"):
        project.lock("samtools", given=(archive,))


def test_an_environment_of_a_base_need_not_have_a_python(project: CondaBase) -> None:
    tool = held("libthing", "2.0", "own")
    project.describe(python="", conda_prefix="/usr/local", conda=[tool])
    lock = project.lock("samtools")
    assert files(lock) == ["samtools-1.21-0.conda"]
    assert (lock.python_version, lock.python_title, lock.python) == ("", "no Python", ())
    assert (lock.conda_prefix, parse_lock(write_lock(lock), "x")) == ("/usr/local", lock)
    with pytest.raises(UsageError, match="needs a Python, and neither"):
        project.lock("samtools", python=("tqdm",))


def test_a_python_is_put_into_the_base_s_environment(project: CondaBase) -> None:
    project.index.wheel("tqdm", "4.0")
    tool = held("libthing", "2.0", "own")
    project.describe(python="", conda_prefix="/usr/local", conda=[tool])
    lock = project.lock("samtools", "python 3.12.*", python=("tqdm",))
    assert lock.python_path == "/usr/local/bin/python3.12"
    assert (lock.base.python, lock.python_version) == ("", "3.12.4")
    assert "tqdm" in [package.name for package in lock.installed]
    assert "py-rattler" not in [package.name for package in lock.build_only]


def test_a_base_with_neither_python_nor_conda_takes_both(project: CondaBase) -> None:
    project.describe(python="")
    lock = project.lock("samtools")
    assert (lock.python_version, lock.conda_prefix) == ("", "/opt/env")
    lock = project.lock("python 3.12.*", "samtools")
    assert lock.python_path == "/opt/env/bin/python3.12"
    with pytest.raises(UsageError, match="the image has no Python on its PATH") as caught:
        project.lock()
    assert "conda's Python" in (caught.value.hint or "")


def test_the_definition_on_a_base_without_python_says_so(project: CondaBase) -> None:
    project.describe(python="")
    lock = project.lock("samtools")
    recipe = find_recipe("cell", project.settings).recipe
    text = "\n".join(plan_definition(recipe, lock).post)
    assert "the base has no Python to start py-rattler" in text
    assert plan_definition(recipe, lock).test == ("exit 0",)


def test_a_python_on_no_path_is_put_on_it(project: CondaBase) -> None:
    project.hold(PYTHON)
    facts = json.loads(project.facts.read_text())
    project.describe(**{**facts, "off_path": True})
    lock = project.lock()
    assert lock.base.off_path
    recipe = find_recipe("cell", project.settings).recipe
    assert plan_definition(recipe, lock).path == (f"{PREFIX}/bin",)
    project.hold(PYTHON)
    assert plan_definition(recipe, project.lock()).path == ()
