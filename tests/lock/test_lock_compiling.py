"""What the source archives of a lock need to be built: told, and the framework that a setup.py imports is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.base.model import AptPackage, BaseFacts
from envbuild.lock.decide.base_description import BaseDescription
from envbuild.lock.decide.compiling import with_compiling
from envbuild.recipe.model import AboutSection, BaseSection, Recipe, SystemSection
from envbuild.resolve.model import Found, FoundFile, Resolution
from envbuild.store.layout import Store
from tests.resolve.conftest import sdist_bytes

DEBIAN = BaseFacts(image="debian:bookworm", python="3.11.2", machine="x86_64", glibc="2.36")
SETUP = "import torch\nfrom torch.utils.cpp_extension import CUDAExtension\n"


def found(name: str, *via: str, file: str = "x-1.0.whl", sha256: str = "0" * 64) -> Found:
    wheel = FoundFile(file=file, sha256=sha256, size=1, url="https://mirror.invalid/x")
    return Found(name=name, version="1.0", file=wheel, via=via)


def compile_with(
    tmp_path: Path,
    files: dict[str, str],
    *apt: str,
    name: str = "ext",
    build: str = "",
    wheel: str = "numpy",
) -> Resolution:
    store = Store(tmp_path / "store")
    path = store.artifact("a" * 64)
    path.parent.mkdir(parents=True)
    path.write_bytes(sdist_bytes(f"{name}-1.0", files))
    facts = BaseFacts(
        image="x", python="3.11.2", machine="x86_64", glibc="2.36",
        apt=tuple(AptPackage(name=one, version="1", architecture="amd64") for one in apt),
    )  # fmt: skip
    torch = (found("torch", "(direct)"), found("triton", "torch"), found(wheel, "other"))
    package = found(name, "(direct)", file=f"{name}-1.0.tar.gz", sha256="a" * 64)
    resolution = Resolution(packages=(package, *torch))
    base = BaseDescription(
        facts=facts, digest="", epoch=0, framework=Resolution(packages=torch), under=facts
    )
    recipe = Recipe(
        recipe=AboutSection(name="x"),
        base=BaseSection(bootstrap="debian:bookworm"),
        system=SystemSection(build_packages=tuple(filter(None, (build,)))),
    )
    return with_compiling(resolution, recipe, base, resolution.packages, store)


def test_an_archive_without_its_code_for_the_gpu_cannot_be_compiled(tmp_path: Path) -> None:
    setup = SETUP + 'CUDAExtension(name="ext", sources=["csrc/ext_fwd.cu"])\n'
    (note,) = compile_with(tmp_path, {"setup.py": setup}).notes
    assert note.startswith("ext 1.0 cannot be compiled: its archive lacks csrc/ext_fwd.cu.")


def test_an_extension_for_the_gpu_names_nvcc_and_has_torch_at_hand(tmp_path: Path) -> None:
    made = compile_with(tmp_path, {"setup.py": SETUP, "csrc/kernel.cu": "__global__"})
    (note,) = made.notes
    assert note.startswith(
        "ext 1.0 is compiled for the GPU when the image is built: it needs nvcc, and the base has none. "
        "Take a base with nvcc (pytorch/pytorch:…-devel, nvcr.io/nvidia/pytorch)"
    )
    assert [package.name for package in made.build] == ["torch", "triton"]


def test_a_base_with_nvcc_is_enough(tmp_path: Path) -> None:
    made = compile_with(tmp_path, {"setup.py": SETUP, "csrc/kernel.cu": ""}, "cuda-nvcc-12-4")
    assert made.notes == ()


@pytest.mark.parametrize("wheel", ["nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc"])
def test_a_wheel_that_is_called_nvcc_is_not_enough(wheel: str, tmp_path: Path) -> None:
    made = compile_with(tmp_path, {"setup.py": SETUP, "csrc/kernel.cu": ""}, wheel=wheel)
    (note,) = made.notes
    assert "the base has none" in note


def test_cuda_code_that_nothing_compiles_is_no_matter(tmp_path: Path) -> None:
    made = compile_with(tmp_path, {"setup.py": "import setuptools\n", "examples/kernel.cu": ""})
    assert made.notes == ()
    assert made.build == ()


def test_the_compilers_that_init_knows_of_are_told(tmp_path: Path) -> None:
    made = compile_with(tmp_path, {"setup.py": ""}, "g++", "make", name="dlib", build="cmake")
    (note,) = made.notes
    assert (
        note
        == "dlib 1.0 is compiled when the image is built: add python3-dev to [system] build-packages"
    )


@pytest.mark.parametrize(("apt", "notes"), [((), 1), (("cuda-nvcc-12-4",), 0)])
def test_what_compiles_when_it_runs_needs_nvcc(
    apt: tuple[str, ...], notes: int, tmp_path: Path
) -> None:
    files = {"setup.py": "setup(ext_modules=[])\n", "csrc/adam.cpp": ""}
    made = compile_with(tmp_path, files, *apt, name="deepspeed")
    said = (
        "deepspeed 1.0 compiles its operators (FusedAdam, CPUAdam) with nvcc when it runs, and the "
        "base has none: take a base with nvcc (pytorch/pytorch:…-devel, nvcr.io/nvidia/pytorch), "
        "and g++ and ninja-build of [system]"
    )
    assert list(made.notes) == [said][:notes]


C_SETUP = "from setuptools import Extension, setup\nsetup(ext_modules=[Extension('x', ['x.c'])])\n"
RUST = '[build-system]\nrequires = ["maturin>=1"]\nbuild-backend = "maturin"\n'


@pytest.mark.parametrize(
    ("files", "apt", "tools"),
    [
        pytest.param({"setup.py": C_SETUP, "x.c": ""}, (), "gcc, g++, python3-dev", id="c"),
        pytest.param(
            {"pyproject.toml": RUST, "src/lib.rs": ""}, (), "cargo, gcc, libc6-dev", id="rust"
        ),
        pytest.param({"setup.py": C_SETUP, "x.c": ""}, ("gcc-12",), "", id="has-a-compiler"),
        pytest.param({"pyproject.toml": RUST}, ("gcc",), "cargo, libc6-dev", id="rust-beside-gcc"),
        pytest.param({"setup.py": C_SETUP}, (), "", id="no-source"),
        pytest.param({"setup.py": "", "x.c": ""}, (), "", id="nothing-compiles-it"),
    ],
)
def test_a_base_without_the_compiler_of_an_archive_is_told(
    files: dict[str, str], apt: tuple[str, ...], tools: str, tmp_path: Path
) -> None:
    said = f"ext 1.0 is compiled when the image is built: add {tools} to [system] build-packages"
    assert list(compile_with(tmp_path, files, *apt).notes) == ([said] if tools else [])
