"""Nothing new lies over the files of what the base protects, and a second CUDA is never silent."""

from __future__ import annotations

from envbuild.resolve.conflict.overlap import find_overlaps
from envbuild.resolve.stubs import Stub, Stubs
from tests.resolve.conftest import SyntheticIndex, base, versions
from tests.resolve.test_resolve_uv import Resolve, error_of

JAX = base(
    "jax==0.4.35",
    "jaxlib==0.4.35",
    "nvidia-cudnn-cu12==9.6.0.74",
    requires={"jax": ("jaxlib==0.4.35",)},
)


def held(name: str, version: str) -> Stubs:
    return Stubs({name: Stub(name=name, version=f"{version}+base", real=version, hard=True)})


def test_cuda_wheels_of_one_library_for_two_cudas_overlap() -> None:
    found = find_overlaps({"nvidia-cudnn-cu11": "8.5.0.96"}, held("nvidia-cudnn-cu12", "9.6.0.74"))
    assert [(one.name, one.other, one.protected) for one in found] == [
        ("nvidia-cudnn-cu11", "nvidia-cudnn-cu12", True)
    ]
    assert find_overlaps({"nvidia-cublas": "13.1"}, held("nvidia-cublas-cu12", "12.4")) == ()
    assert find_overlaps({"nvidia-cufft-cu11": "1"}, held("nvidia-cudnn-cu12", "9.1")) == ()


def test_libraries_of_cutlass_for_two_cudas_lie_apart() -> None:
    """nvidia-cutlass-dsl 4.6 brings both, each in a folder of its own; vllm of today requires it."""
    names = ("nvidia-cutlass-dsl-libs-cu12", "nvidia-cutlass-dsl-libs-cu13")
    assert find_overlaps(dict.fromkeys(names, "4.6.2"), Stubs({})) == ()


def test_of_two_new_ones_the_newer_cuda_stays() -> None:
    found = find_overlaps({"nvidia-nccl-cu11": "2.14.3", "nvidia-nccl-cu12": "2.21.5"}, Stubs({}))
    assert [(one.name, one.other, one.protected) for one in found] == [
        ("nvidia-nccl-cu11", "nvidia-nccl-cu12", False)
    ]


def test_a_release_with_another_cuda_is_refused(index: SyntheticIndex, resolve: Resolve) -> None:
    """As torch on a jax base: 2.5 pins another cuDNN 9, and uv went back to 2.0, whose cuDNN 8 is named -cu11."""
    index.wheel("torch", "2.5.1", requires=("nvidia-cudnn-cu12==9.1.0.70",))
    index.wheel("torch", "2.0.1", requires=("nvidia-cudnn-cu11==8.5.0.96",))
    index.wheel("nvidia-cudnn-cu11", "8.5.0.96")
    error = error_of(resolve, JAX, "torch")
    assert (
        "- nvidia-cudnn-cu11 8.5.0.96 (with torch 2.0.1) would write over files of the base's nvidia-cudnn-cu12 "
        "9.6.0.74: libraries of the same names for another CUDA or cuDNN"
    ) in error.what


def test_what_wants_another_cuda_than_a_chosen_framework_gives_way(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """accelerate brings the newest torch, for CUDA 13; TensorFlow 2.21 takes a range of CUDA 12."""
    cudnn = "nvidia-cudnn-cu12>=9.3,<10 ; extra == 'and-cuda'"
    facts = base("tensorflow==2.21.0", requires={"tensorflow": (cudnn,)})
    index.wheel("nvidia-cudnn-cu12", "9.10.2.21", "9.15.0.1")
    index.wheel("nvidia-cudnn-cu13", "9.15.0.1")
    index.wheel("torch", "2.9.1", requires=("nvidia-cudnn-cu12==9.10.2.21",))
    index.wheel("torch", "2.11.0", requires=("nvidia-cudnn-cu13",))
    index.wheel("accelerate", "1.0", requires=("torch>=2",))
    asked = {"framework": "tensorflow[and-cuda]==2.21.*", "protect": ("tensorflow",)}
    answer = versions(resolve(facts, "accelerate", **asked))
    assert answer == {"accelerate": "1.0", "torch": "2.9.1", "nvidia-cudnn-cu12": "9.10.2.21"}


def test_an_older_release_without_the_files_is_only_proposed(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("torch", "2.0.1", requires=("nvidia-cudnn-cu11==8.5.0.96",))
    index.wheel("torch", "1.12.1")
    index.wheel("nvidia-cudnn-cu11", "8.5.0.96")
    error = error_of(resolve, JAX, "torch")
    assert (
        error.hint
        == "ask for torch==1.12.1, which has no such files\nor make an image of its own for torch"
    )
    assert versions(resolve(JAX, "torch==1.12.1")) == {"torch": "1.12.1"}


def test_what_brings_the_files_is_left_out_where_that_costs_nothing(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    index.wheel("helper", "2.0", requires=("backend",))
    index.wheel("backend", "1.0")
    index.wheel("backend", "2.0", requires=("nvidia-cudnn-cu11",))
    index.wheel("nvidia-cudnn-cu11", "8.5.0.96")
    assert versions(resolve(JAX, "helper")) == {"helper": "2.0", "backend": "1.0"}


def test_a_pin_that_cannot_give_way_moves_the_other_one_of_a_coupling(
    index: SyntheticIndex, resolve: Resolve
) -> None:
    """opencv-python 4.8 was compiled for numpy 1, and names no upper bound of numpy."""
    index.wheel("opencv-python", "4.8.0.76", "4.11.0.86", requires=("numpy>=1.21",))
    index.wheel("numpy", "1.26.4", "2.2.2")
    assert versions(resolve(base(), "opencv-python==4.8.0.76"))["numpy"] == "1.26.4"
    assert versions(resolve(base(), "opencv-python"))["numpy"] == "2.2.2"
    error = error_of(resolve, base(), "opencv-python==4.8.0.76", "numpy>=2")
    assert "opencv-python>=4.10.0.84 goes with numpy 2.2.2" in error.what
