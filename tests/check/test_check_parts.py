"""Parts of a package that one program needs and another one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.check.elf import shared_object
from tests.check.tree import Content, Tree, failures, make_recipe

LACKING = "raise ImportError('Failure finding libcublas.so.12')\n"
CUPY: dict[str, Content] = {
    "cupy/__init__.py": "",
    "cupy/cuda/__init__.py": "",
    "cupy/cuda/nvrtc.py": "def getVersion():\n    return 12, 1\n",
    "cupy/cuda/cublas.py": LACKING,
    "cupy/cuda/cufft.cpython-311-x86_64-linux-gnu.so": shared_object(["libcufft.so.11"]),
    "cupy/_environment.py": LACKING,
}
KNOWS_ITS_WHEELS = ("cupy-cuda12x>=12", "nvidia-cuda-nvrtc-cu12")


@pytest.mark.parametrize(
    ("direct", "project", "requires", "told"),
    [
        (("cudf-cu12",), "import cudf", KNOWS_ITS_WHEELS, False),
        (("cudf-cu12", "cupy-cuda12x"), "import cudf", KNOWS_ITS_WHEELS, True),
        (("cudf-cu12",), "import cudf, cupy\ncupy.ones(1)", KNOWS_ITS_WHEELS, True),
        (("cudf-cu12",), "import cudf", ("cupy-cuda12x>=12",), True),
        (("cudf-cu12",), "import cudf", ('cupy-cuda12x; extra == "gpu"', "nvidia-cuda-nvrtc-cu12"), True),
    ],
)  # fmt: skip
def test_parts_of_cupy_that_its_bringer_does_not_ask_for(
    direct: tuple[str, ...],
    project: str,
    requires: tuple[str, ...],
    told: bool,
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path / "i").install("cupy-cuda12x", "14.2.0", CUPY)
    tree.install("cudf-cu12", "25.8.0", {"cudf/__init__.py": ""}, requires=requires)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/train.py").write_text(f"{project}\n")
    found = failures(tree.check(make_recipe(*direct), project=tmp_path / "project"))
    assert "shared-libraries" not in found  # each of them is tried as CuPy opens it
    assert ("CuPy's libraries" in found.get("entry-points", "")) == told


@pytest.mark.parametrize(
    ("providers", "told"),
    [
        ("['TensorrtExecutionProvider', 'CUDAExecutionProvider']", True),
        ("[('TensorrtExecutionProvider', {'device_id': 0}), 'CUDAExecutionProvider']", True),
        ("['CUDAExecutionProvider', 'TensorrtExecutionProvider']", False),
        ("names if gpu else ['CPUExecutionProvider']", False),
    ],
)
def test_the_provider_that_a_project_asks_for_first(
    providers: str, told: bool, tmp_path: Path
) -> None:
    files: dict[str, Content] = {
        "onnxruntime/__init__.py": "def InferenceSession(path, providers):\n    pass\n",
        "onnxruntime/capi/libonnxruntime_providers_shared.so": shared_object([]),
        "onnxruntime/capi/libonnxruntime_providers_cuda.so": shared_object([]),
        "onnxruntime/capi/libonnxruntime_providers_tensorrt.so": shared_object(["libnvinfer.so.10"]),
    }  # fmt: skip
    tree = Tree(tmp_path / "i").install("onnxruntime-gpu", "1.22.0", files)
    project = tmp_path / "project"
    project.mkdir()
    code = "import onnxruntime as ort\n\nsession = ort.InferenceSession('m', "
    (project / "run.py").write_text(f"names = gpu = None\n{code}providers={providers})\n")
    found = failures(tree.check(make_recipe("onnxruntime-gpu"), project=project))
    assert ("libnvinfer.so.10" in found.get("entry-points", "")) == told


@pytest.mark.parametrize(
    ("wish", "told"), [("FLASHINFER", True), ("xformers", True), ("FLASH_ATTN", False)]
)
def test_the_attention_that_the_environment_names(wish: str, told: bool, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("vllm", "0.9.1", {"vllm/__init__.py": ""})
    tree.env["VLLM_ATTENTION_BACKEND"] = wish
    found = failures(tree.check(make_recipe("vllm")))
    assert ("VLLM_ATTENTION_BACKEND" in found.get("entry-points", "")) == told


def _project(root: Path, code: str) -> Path:
    (root / "project").mkdir()
    (root / "project/train.py").write_text(code)
    return root / "project"


ENGINE = "class Engine:\n    def __init__(self, device='cpu', use_gpu=False):\n        pass\n"
FATBIN = shared_object([]) + b"\0.nv_fatbin\0"


@pytest.mark.parametrize(
    ("call", "library", "requires", "told"),
    [
        ("Engine(device='GPU')", shared_object([]), (), "has no code for one"),
        ("Engine(use_gpu=True)", shared_object([]), (), "has no code for one"),
        ("Engine(device='cuda:0')", shared_object(["libcublas.so.12"]) + b"libcudart", (), "libcublas.so.12"),
        ("Engine(device='cuda:0')", FATBIN, (), None),
        ("Engine(device='cuda:0')", shared_object([]), ("torch",), None),  # it hands the device on
        ("Engine(device='cuda:0')", shared_object([]), ("loader",), None),  # so does a part of it
        ("Engine(device='cpu')", shared_object([]), (), None),
        ("Engine(device='cuda' if fast else 'cpu')", shared_object([]), (), None),
    ],
)  # fmt: skip
def test_a_build_for_the_cpu_that_is_asked_for_the_gpu(
    call: str, library: bytes, requires: tuple[str, ...], told: str | None, tmp_path: Path
) -> None:
    files: dict[str, Content] = {"engine/__init__.py": ENGINE, "engine/libengine.so": library}
    if requires == ("loader",):
        files["engine/loader.py"] = "def load(place):\n    import torch\n"
    tree = Tree(tmp_path / "i").install("engine", "1.0", files, requires=requires)
    if requires:
        tree.install("torch", "2.5.1", {"torch/__init__.py": ""})
    code = f"import sys\nfrom engine import Engine\n\nfast = sys.argv\nprint({call})\n"
    report = tree.check(make_recipe("engine"), project=_project(tmp_path, code))
    found = failures(report).get("entry-points", "")
    assert told in found if told else not found


@pytest.mark.parametrize(
    ("backend", "jax", "told"), [("jax", "", True), ("jax", "cuda", False), ("torch", "", False)]
)
def test_the_backend_that_a_project_sets_for_keras(
    backend: str, jax: str, told: bool, tmp_path: Path
) -> None:
    keras = "import importlib, os\nimportlib.import_module(os.environ['KERAS_BACKEND'])\n"
    tree = Tree(tmp_path / "i").install("keras", "3.8.0", {"keras/__init__.py": keras})
    tree.install("jax", "0.6.2", {"jax/__init__.py": ""})
    tree.install("jaxlib", "0.6.2", {"jaxlib/__init__.py": "", "jaxlib/version.py": f"# {jax}\n"})
    torch = {"torch/__init__.py": "", "torch/version.py": "cuda: Optional[str] = '12.4'\n"}
    tree.install("torch", "2.5.1", torch)
    code = f"import os\n\nos.environ['KERAS_BACKEND'] = '{backend}'\nimport keras\n"
    found = failures(tree.check(make_recipe("keras"), project=_project(tmp_path, code)))
    assert "direct-imports" not in found  # it is imported with the project's own setting
    assert ("sets KERAS_BACKEND to jax" in found.get("entry-points", "")) == told


@pytest.mark.parametrize(("opener", "told"), [(b"", False), (b"libextra.so\0", True)])
def test_a_library_that_no_object_names_is_opened_by_nobody(
    opener: bytes, told: bool, tmp_path: Path
) -> None:
    files: dict[str, Content] = {
        "engine/__init__.py": "",
        "engine/libextra.so.0": shared_object(["libcurand.so.10"]),
        "engine/_core.so": shared_object([]) + opener,
    }
    tree = Tree(tmp_path / "i").install("engine", "1.0", files)
    found = failures(tree.check(make_recipe("engine")))
    assert ("libcurand.so.10" in found.get("shared-libraries", "")) == told


@pytest.mark.parametrize(
    ("wheel", "version", "told"),
    [
        ("nvidia-cudnn-cu12", "9.15.1.9", False),
        ("nvidia-cudnn-cu12", "9.8.0.87", True),
        ("nvidia-cudnn-cu12", "10.0.0.1", True),
        ("nvidia-cublas-cu12", "12.9.1.4", False),
        ("nvidia-cublas-cu12", "12.4.5.8", True),
    ],
)
def test_a_newer_library_does_the_work_of_the_one_that_is_pinned(
    wheel: str, version: str, told: bool, tmp_path: Path
) -> None:
    pins = ("nvidia-cudnn-cu12==9.10.2.21", "nvidia-cublas-cu12==12.8.4.1")
    tree = Tree(tmp_path / "i").install("torch", "2.9.1", {"torch/__init__.py": ""}, requires=pins)
    found = failures(tree.install(wheel, version).check(make_recipe("torch")))
    assert ("companions" in found) == told
