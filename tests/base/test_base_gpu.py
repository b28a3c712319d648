"""Which CUDA an image has, told from texts and file names as real images have them."""

from __future__ import annotations

from typing import Any

import pytest

from envbuild.base import gpu
from envbuild.base.model import AptPackage, Dist

TORCH = "from typing import Optional\n__version__ = '2.4.1+cu121'\ndebug = False\ncuda: Optional[str] = '12.1'\nhip: Optional[str] = None\n"
TORCH_OLD = "__version__ = '1.4.0'\ndebug = False\ncuda = '10.1'\ngit_version = '7f73f1d591afba823daa4a99a939217fb54d7688'\n"
TORCH_CPU = "__version__ = '2.4.1+cpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n"
TENSORFLOW = 'build_info = collections.OrderedDict([("cpu_compiler", "/usr/lib/llvm-17/bin/clang"), ("cuda_compute_capabilities", ["sm_60"]), ("cuda_version", "12.2"), ("cudnn_version", "8"), ("is_cuda_build", True)])'
TENSORFLOW_24 = "build_info = {'cuda_version': '11.0', 'cudnn_version': '8', 'is_cuda_build': True}"
TENSORFLOW_21 = "cuda_version_number = '10.1'\ncudnn_version_number = '7'\n"
VERSION_JSON = (
    '{"cuda": {"name": "CUDA SDK", "version": "12.3.20231019"}, "nvcc": {"version": "12.3.52"}}'
)


def package(name: str, version: str) -> AptPackage:
    return AptPackage(name=name, version=version, architecture="amd64")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({"torch": TORCH}, {"cuda": "12.1"}),
        ({"torch": TORCH_OLD}, {"cuda": "10.1"}),
        ({"torch": TORCH_CPU}, {}),
        ({"tensorflow": TENSORFLOW}, {"cuda": "12.2", "cudnn": "8"}),
        ({"tensorflow": TENSORFLOW_24}, {"cuda": "11.0", "cudnn": "8"}),
        ({"tensorflow": TENSORFLOW_21}, {"cuda": "10.1", "cudnn": "7"}),
        ({"tensorflow": TENSORFLOW, "torch": TORCH}, {"cuda": "12.2", "cudnn": "8"}),
        ({"torch": "cuda = exec('12.1')"}, {}),
        ({}, {}),
    ],
)
def test_what_the_framework_was_built_for(texts: dict[str, str], expected: dict[str, str]) -> None:
    assert gpu.built_for(texts) == expected


@pytest.mark.parametrize(
    ("dists", "libraries", "texts", "environment", "expected"),
    [
        (
            [Dist(name="nvidia-cuda-runtime-cu12", version="12.2.140")],
            ["/x/libcudart.so.11.8.89"],
            {},
            {},
            "12.2",
        ),
        ([Dist(name="nvidia_cuda_runtime", version="13.0.96")], [], {}, {}, "13.0"),
        ([Dist(name="nvidia-cuda-runtime-extra", version="9.9")], [], {}, {}, None),
        ([], [], {"cuda version.json": VERSION_JSON}, {"CUDA_VERSION": "11.0.3"}, "12.3"),
        ([], [], {"cuda version.json": "{broken"}, {"CUDA_VERSION": "11.0.3"}, "11.0"),
        ([], [], {"cuda version.json": "[]"}, {}, None),
        ([], [], {"cuda version.txt": "CUDA Version 10.1.243\n"}, {}, "10.1"),
        ([], ["/x/libcudart.so.11.0", "/y/libcudart.so.11.4.148"], {}, {}, "11.4"),
        ([], ["/x/libcudart.so.12"], {"torch": TORCH}, {}, "12.1"),
        ([], [], {}, {}, None),
    ],
)
def test_the_cuda_version(
    dists: list[Dist],
    libraries: list[str],
    texts: dict[str, str],
    environment: dict[str, str],
    expected: str | None,
) -> None:
    assert gpu.cuda_version(dists, libraries, texts, environment) == expected


HEADER = "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 9\n#define CUDNN_PATCHLEVEL 7\n"


CUDNN: list[tuple[dict[str, Any], str | None]] = [
    (
        {
            "dists": [Dist(name="nvidia-cudnn-cu12", version="8.9.4.25")],
            "apt": [package("libcudnn8", "7.0-1")],
        },
        "8.9.4.25",
    ),
    (
        {
            "libraries": ["/x/libcudnn.so.8.9.6"],
            "apt": [package("libcudnn8", "8.9.6.50-1+cuda12.2")],
        },
        "8.9.6.50",
    ),
    ({"apt": [package("libcudnn9-cuda-12", "9.1.0.70-1")]}, "9.1.0.70"),
    ({"apt": [package("libcudnn8-dev", "8.9.6.50-1")]}, None),
    ({"libraries": ["/x/libcudnn.so.8.9.6"]}, "8.9.6"),
    ({"libraries": ["/x/libcudnn.so.8"], "texts": {"cudnn header": HEADER}}, "8.9.7"),
    ({"environment": {"NV_CUDNN_VERSION": "8.0.4.30-1+cuda11.0"}}, "8.0.4.30"),
]


@pytest.mark.parametrize(("found", "expected"), CUDNN)
def test_the_cudnn_version(found: dict[str, Any], expected: str | None) -> None:
    nothing: dict[str, Any] = {
        "dists": [],
        "libraries": [],
        "texts": {},
        "environment": {},
        "apt": [],
    }
    assert gpu.cudnn_version(**{**nothing, **found}) == expected


def test_the_nccl_version() -> None:
    assert (
        gpu.nccl_version([Dist(name="nvidia-nccl-cu12", version="2.16.5")], [], {}, []) == "2.16.5"
    )
    assert gpu.nccl_version([], [], {}, [package("libnccl2", "2.19.3-1+cuda12.3")]) == "2.19.3"
    assert gpu.nccl_version([], [], {"NCCL_VERSION": "2.19.3-1"}, []) == "2.19.3"
    assert gpu.nccl_version([], [], {}, []) is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["numpy", "torch", "tensorflow"], "tensorflow 1.0"),
        (["Tensorflow_GPU"], "Tensorflow_GPU 1.0"),
        (["torch", "torchvision"], "torch 1.0"),
        (["cupy-cuda114", "numpy"], "cupy-cuda114 1.0"),
        (["numpy"], None),
    ],
)
def test_the_framework(names: list[str], expected: str | None) -> None:
    assert gpu.framework_of_dists([Dist(name=name, version="1.0") for name in names]) == expected


def test_only_a_stub_is_called_one() -> None:
    stub = "/usr/local/cuda/lib64/stubs/libcuda.so"
    found = [
        ("/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.535.1"),
        ("/x/libcuda.so.1", stub),
        (stub, stub),
    ]
    assert gpu.stub_paths(found) == ("/x/libcuda.so.1", stub)
