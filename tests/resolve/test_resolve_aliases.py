"""Which distribution stands for which, by data."""

from __future__ import annotations

import pytest
from packaging.utils import canonicalize_name

from envbuild.data.package_tables import load_aliases
from envbuild.resolve.aliases import caution_about, doubled_modules, merge_aliases, stand_ins
from envbuild.resolve.stubs import first_match


def test_names_are_canonical() -> None:
    names = {*stand_ins(), *(name for names in stand_ins().values() for name in names)}
    assert all(
        name.replace("*", "x") == canonicalize_name(name.replace("*", "x")) for name in names
    )


def test_nothing_stands_for_itself() -> None:
    assert [name for name, others in stand_ins().items() if name in others] == []


@pytest.mark.parametrize(
    ("wanted", "held", "real"),
    [
        ("cupy", {"cupy-cuda92"}, "cupy-cuda92"),
        ("cupy-cuda11x", {"cupy-cuda12x"}, "cupy-cuda12x"),
        ("mxnet", {"mxnet-cu112", "numpy"}, "mxnet-cu112"),
        ("mxnet-cu101", {"mxnet-cu112"}, "mxnet-cu112"),
        ("mxnet-cu112", {"mxnet"}, None),
        ("onnxruntime", {"onnxruntime-gpu"}, "onnxruntime-gpu"),
        ("onnxruntime-gpu", {"onnxruntime"}, None),
        ("paddlepaddle", {"paddlepaddle-gpu"}, "paddlepaddle-gpu"),
        ("faiss-cpu", {"faiss-gpu-cu12"}, "faiss-gpu-cu12"),
        ("faiss-gpu", {"faiss-gpu-cu12"}, "faiss-gpu-cu12"),
        ("tensorflow", {"tensorflow-gpu", "tensorflow-cpu"}, "tensorflow-gpu"),
        ("tensorflow-gpu", {"nvidia-tensorflow"}, "nvidia-tensorflow"),
        ("opencv-contrib-python", {"opencv-python"}, "opencv-python"),
        ("torch", {"numpy"}, None),
    ],
)
def test_who_stands_for_whom(wanted: str, held: set[str], real: str | None) -> None:
    assert first_match(stand_ins().get(wanted, ()), held) == real


def test_what_a_stand_in_lacks_is_told() -> None:
    assert caution_about("opencv-contrib-python", "opencv-python") == (
        "opencv-python stands for opencv-contrib-python: cv2's contrib modules are missing"
    )
    assert caution_about("cupy-cuda11x", "cupy-cuda12x") == (
        "cupy-cuda12x stands for cupy-cuda11x: the same modules, built for another CUDA"
    )
    assert caution_about("tensorflow", "tensorflow-gpu") is None


def test_members_of_one_group() -> None:
    assert doubled_modules({"opencv-python", "opencv-contrib-python", "rich"}) == (
        ("cv2", ("opencv-contrib-python", "opencv-python")),
    )
    assert doubled_modules({"opencv-python", "rich"}) == ()


@pytest.mark.parametrize(
    ("new", "asked", "expected"),
    [
        ({"opencv-python", "opencv-contrib-python"}, (), {"opencv-python": "opencv-contrib-python"}),
        ({"opencv-python", "opencv-python-headless"}, ("opencv-python-headless",), {"opencv-python": "opencv-python-headless"}),
        ({"opencv-python", "opencv-python-headless"}, (), {"opencv-python-headless": "opencv-python"}),
        (
            {"opencv-python", "opencv-contrib-python", "opencv-python-headless"},
            ("opencv-python",),
            {"opencv-python": "opencv-contrib-python", "opencv-python-headless": "opencv-contrib-python"},
        ),
        ({"onnxruntime", "onnxruntime-gpu"}, ("onnxruntime",), {"onnxruntime": "onnxruntime-gpu"}),
        ({"nvidia-cudnn-cu11", "nvidia-cudnn-cu12"}, (), {}),
        ({"rich", "numpy"}, ("rich",), {}),
    ],
)  # fmt: skip
def test_one_new_member_stands_for_the_others(
    new: set[str], asked: tuple[str, ...], expected: dict[str, str]
) -> None:
    assert merge_aliases(new, asked) == expected


def test_every_group_names_members_that_data_protects_or_merges() -> None:
    assert set(load_aliases().lossy) <= set(stand_ins())
