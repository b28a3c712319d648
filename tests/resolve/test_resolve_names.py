"""Names that stand for others, and names that nothing for the base is published under."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from envbuild.errors import NoSolutionError
from envbuild.resolve.model import Resolution
from tests.resolve.conftest import SyntheticIndex, base, versions

Resolve = Callable[..., Resolution]
CUDA12 = base("six==1.16.0", cuda="12.4")


def test_source_only_package_comes_as_its_wheels_for_the_cuda_of_the_base(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.sdist(
        "cupy", "13.3.0", files={"PKG-INFO": "Metadata-Version: 2.1\nName: cupy\nVersion: 13.3.0\n"}
    )
    for name in ("cupy-cuda11x", "cupy-cuda12x"):
        index.wheel(name, "13.3.0")
    answer = resolve(CUDA12, "cupy>=13")
    assert versions(answer) == {"cupy-cuda12x": "13.3.0"}
    assert "cupy-cuda12x stands for cupy, which is source only" in answer.notes


def test_source_only_package_is_as_asked_where_its_wheels_do_not_reach(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("cupy", "9.6.0")
    index.wheel("cupy-cuda12x", "13.3.0")
    answer = resolve(CUDA12, "cupy==9.6.0")
    assert versions(answer) == {"cupy": "9.6.0"}
    assert answer.notes == ()


def test_source_only_package_without_a_known_cuda_is_as_asked(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("cupy", "13.3.0")
    index.wheel("cupy-cuda12x", "13.3.0")
    assert versions(resolve(base("six==1.16.0"), "cupy")) == {"cupy": "13.3.0"}


def test_every_requirement_without_a_file_for_the_machine_is_named(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    for name in ("decord", "onnxruntime-gpu"):
        index.wheel(name, "1.0", tag="py3-none-manylinux2014_x86_64")
    index.wheel("rich", "13.0")
    with pytest.raises(NoSolutionError) as caught:
        resolve(base(machine="aarch64"), "rich", "decord", "onnxruntime-gpu")
    assert (
        "decord==1.0 has no wheels for aarch64 with glibc 2.36, and no source" in caught.value.what
    )
    assert (
        "onnxruntime-gpu==1.0 has no wheels for aarch64 with glibc 2.36, and no source"
        in caught.value.what
    )
    hint = caught.value.hint or ""
    assert hint.startswith("leave out ")
    assert hint.endswith(", or take a base for another machine than aarch64")
    assert {"decord", "onnxruntime-gpu"} == set(hint[10:].partition(", or")[0].split(", "))


def test_project_that_is_on_no_index_is_told_where_it_is(resolve: Resolve) -> None:
    with pytest.raises(NoSolutionError) as caught:
        resolve(base(), "detectron2")
    assert (caught.value.hint or "").startswith(
        "leave out detectron2, or bring it otherwise: its project publishes"
    )


def test_group_that_another_release_brings_again_is_merged_again(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """contrib 4.10 cannot stand for opencv-python>=5, so an older reader comes, which wants the third of the group."""
    index.wheel("opencv-python", "4.10", "5.0")
    index.wheel("opencv-contrib-python", "4.10")
    index.wheel("opencv-python-headless", "4.10", "5.0")
    index.wheel(
        "reader",
        "3.0",
        requires=("opencv-contrib-python==4.10", "opencv-python>=5"),
        day="2024-03-01",
    )
    index.wheel(
        "reader",
        "2.0",
        requires=("opencv-contrib-python==4.10", "opencv-python-headless"),
        day="2024-02-01",
    )
    answer = resolve(base(), "reader")
    assert versions(answer) == {"opencv-contrib-python": "4.10", "reader": "2.0"}
    assert {one.name: one.alias_of for one in answer.provided} == {
        "opencv-python-headless": "opencv-contrib-python"
    }


def test_framework_whose_wheel_for_the_machine_has_no_cuda_is_told(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """torch up to 2.10 for aarch64; the newer ones bring CUDA there too."""
    index.wheel("nvidia-cudnn-cu12", "9.1", "9.2")
    index.wheel(
        "torch", "2.5.1", requires=("nvidia-cudnn-cu12==9.1 ; platform_machine == 'x86_64'",)
    )
    index.wheel(
        "torch", "2.15.0", requires=("nvidia-cudnn-cu12==9.2 ; platform_system == 'Linux'",)
    )
    told = "torch 2.5.1 has CUDA on x86_64 only: what is published for aarch64 computes on the CPU"
    assert told in resolve(base(machine="aarch64"), "torch==2.5.1").notes
    assert resolve(base(machine="aarch64"), "torch==2.15.0").notes == ()
    assert resolve(base(), "torch==2.5.1").notes == ()


def test_no_image_for_x86_64_is_recommended_for_another_machine(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("tensorflow", "2.15.1", tag="py3-none-manylinux2014_x86_64")
    with pytest.raises(NoSolutionError) as caught:
        resolve(base(machine="aarch64"), "tensorflow==2.15.*")
    hint = caught.value.hint or ""
    assert "docker://" not in hint
    assert hint.endswith("leave out tensorflow, or take a base for another machine than aarch64")


def test_preview_of_another_name_does_not_come_over_the_files_of_the_release(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("tensorboard", "2.20.0")
    index.wheel("tb-nightly", "2.21.0a20251023")
    index.wheel("basicsr", "1.4.2", requires=("tb-nightly",))
    beside = resolve(base(), "tensorboard", "basicsr")
    assert versions(beside) == {"tensorboard": "2.20.0", "basicsr": "1.4.2"}
    assert {one.name: one.alias_of for one in beside.provided} == {"tb-nightly": "tensorboard"}
    over = resolve(base("tensorboard==2.20.0"), "basicsr")
    assert versions(over) == {"basicsr": "1.4.2"}
    alone = resolve(base(), "basicsr")
    assert versions(alone) == {"tb-nightly": "2.21.0a20251023", "basicsr": "1.4.2"}
