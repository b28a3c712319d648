"""What a project asks the GPU for: packages, providers, code of its own, the compiler of a variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.check.model import Report
from tests.check.elf import shared_object
from tests.check.tree import Tree, failures, make_recipe
from tests.sick.faults import project, torch_files


def runtime(tree: Tree, *providers: str) -> Tree:
    """Install an ONNX Runtime that has these providers."""
    listed = [*providers, "CPUExecutionProvider"]
    text = f"def get_available_providers():\n    return {listed!r}\n"
    name = "onnxruntime-gpu" if providers else "onnxruntime"
    return tree.install(name, "1.22.0", {"onnxruntime/__init__.py": text})


def said(report: Report) -> str:
    return failures(report).get("entry-points", "")


@pytest.mark.parametrize("providers", [(), ("CUDAExecutionProvider",)])
def test_what_computes_with_onnxruntime_is_asked_for_cuda(
    providers: tuple[str, ...], tmp_path: Path
) -> None:
    tree = runtime(Tree(tmp_path / "i"), *providers)
    code = "import onnxruntime\ndef load(path, use_cuda=False):\n    return path\n"
    tree.install("speaker", "1", {"speaker/__init__.py": code}, requires=["onnxruntime<2"])
    text = "import speaker\nspeaker.load('voice.onnx', use_cuda=True)\n"
    found = said(tree.check(make_recipe("speaker"), project=project(tmp_path / "i", text)))
    assert ("which computes with onnxruntime, and this is its build for the CPU" in found) is (
        not providers
    )


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("load('m', provider='CUDAExecutionProvider')", True),
        ("load(params={'EngineConfig.onnxruntime.use_cuda': True})", True),
        ("load('m', providers=['CUDAExecutionProvider', 'CPUExecutionProvider'])", False),
        ("load(params={'EngineConfig.onnxruntime.use_cuda': False})", False),
    ],
)
def test_a_provider_that_is_asked_for_alone_is_there(call: str, told: bool, tmp_path: Path) -> None:
    tree = runtime(Tree(tmp_path / "i"))
    tree.install("reader", "1", {"reader/__init__.py": "def load(*a, **b):\n    return a\n"})
    text = f"from reader import load\n{call}\n"
    report = tree.check(make_recipe("reader"), project=project(tmp_path / "i", text))
    assert ("the project asks for CUDAExecutionProvider" in said(report)) is told


@pytest.mark.parametrize("has_code", [False, True])
def test_a_part_for_an_absent_framework_hands_nothing_on(has_code: bool, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "cloud/__init__.py": "def Device(name):\n    return name\n",
        "cloud/ml.py": "import torch\n",
        "cloud/core.so": shared_object(["libc.so.6"]) + (b"libcudart" if has_code else b""),
    }
    tree = Tree(tmp_path / "i").install("cloud", "1", files)
    text = "import cloud\ncloud.Device('CUDA:0')\n"
    report = tree.check(make_recipe("cloud"), project=project(tmp_path / "i", text))
    assert ("this build of it has no code for one" in said(report)) is (not has_code)


BUILDER = "CUDA_HOME = {home!r}\ndef is_ninja_available():\n    return True\ndef load(name, sources):\n    pass\n"
OWN = "from torch.utils.cpp_extension import load\nload('own', sources=['own.cpp', 'own.cu'])\n"


@pytest.mark.parametrize("has_nvcc", [False, True])
def test_code_of_the_project_needs_a_compiler_for_the_gpu(has_nvcc: bool, tmp_path: Path) -> None:
    home = tmp_path / "cuda"
    if has_nvcc:
        (home / "bin").mkdir(parents=True)
        (home / "bin/nvcc").write_text("")
    files = {
        **torch_files(),
        "torch/utils/__init__.py": "",
        "torch/utils/cpp_extension.py": BUILDER.format(home=str(home)),
    }
    tree = Tree(tmp_path / "i").install("torch", "2.5.1", files)
    compiler = tmp_path / "bin/c++"
    compiler.parent.mkdir()
    compiler.write_text("")
    compiler.chmod(0o755)
    tree.env["CXX"] = str(compiler)
    report = tree.check(make_recipe(framework="torch"), project=project(tmp_path / "i", OWN))
    assert ("and the image lacks nvcc" in said(report)) is (not has_nvcc)


@pytest.mark.parametrize("name", ["x86_64-conda-linux-gnu-cc", "gcc"])
def test_the_compiler_that_a_variable_names_is_there(name: str, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "i").install("torch", "2.5.1", torch_files())
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "gcc").write_text("")
    (folder / "gcc").chmod(0o755)
    tree.env["CC"] = str(folder / name)
    text = "import torch\n@torch.compile\ndef grow(x):\n    return x\n"
    report = tree.check(make_recipe(framework="torch"), project=project(tmp_path / "i", text))
    found = failures(report).get("compiler-tools", "")
    assert ("sets CC to a compiler that it does not have" in found) is (name != "gcc")
