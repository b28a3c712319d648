"""A framework without CUDA libraries is refused, with what would bring them, unless the recipe means the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from envbuild.base.model import BaseFacts, Dist
from envbuild.data.tables import load_cuda_sources
from envbuild.errors import NoSolutionError, UsageError
from envbuild.lock.decide.libraries import refuse_removal, require_cuda
from envbuild.names import DIRECT
from envbuild.recipe.model import AboutSection, BaseSection, PythonSection, Recipe, SystemSection
from envbuild.resolve.model import Found, FoundFile

DEBIAN = BaseFacts(image="debian:bookworm", python="3.11.2", machine="x86_64", glibc="2.36")
CUDA_IMAGE = BaseFacts(
    image="lab/cuda", python="3.10.12", machine="x86_64", glibc="2.35", cuda="11.8"
)


def found(name: str, version: str, *requires: str, via: tuple[str, ...] = (DIRECT,)) -> Found:
    file = FoundFile(
        file=f"{name}-{version}.whl", sha256="0" * 64, size=1, url="https://mirror.invalid/x"
    )
    return Found(name=name, version=version, file=file, via=via, requires=requires)


def recipe(framework: str | None = None, *, cpu: bool = False) -> Recipe:
    base = BaseSection(bootstrap="debian:bookworm", framework=framework, cpu=cpu)
    return Recipe(
        recipe=AboutSection(name="x"), base=base, python=PythonSection(dependencies=("x",))
    )


def wheels(*libraries: str) -> tuple[Found, ...]:
    return tuple(found(f"nvidia-{library}", "1.0", via=("torch",)) for library in libraries)


@pytest.mark.parametrize(
    ("package", "says", "helps"),
    [
        (
            found("tensorflow", "2.10.1"),
            "(cuBLAS, cuDNN), nor does the base",
            "docker://tensorflow/tensorflow:2.10.",
        ),
        (
            found("tensorflow", "2.15.1", "nvidia-cublas-cu12 ; extra == 'and-cuda'"),
            "holds no CUDA libraries",
            "write tensorflow[and-cuda], which brings them",
        ),
        (
            found("jax", "0.4.13"),
            "there is no jax-cuda*-plugin with it",
            'framework = "jax[cuda12]==0.4.*"',
        ),
        (found("torch", "2.5.1+cpu"), "+cpu is a build for the CPU", 'framework = "torch==2.5.*"'),
        (
            found("cupy-cuda11x", "13.6.0"),
            "NVRTC, the CUDA runtime",
            "nvidia-*-cu11 under [python]",
        ),
        (found("cupy", "14.2.0"), "NVRTC", 'framework = "cupy-cuda12x[ctk]=='),
        (found("mxnet-cu112", "1.9.1"), "holds no CUDA libraries", "nvidia-*-cu11 under [python]"),
        (
            found("paddlepaddle-gpu", "2.6.2"),
            "holds no CUDA libraries",
            "nvidia-*-cu11 under [python]",
        ),
        (found("mxnet", "1.9.1"), "for the CPU alone", "take mxnet-cu112"),
        (
            found(
                "onnxruntime-gpu",
                "1.23.2",
                "nvidia-cudnn-cu12 ; extra == 'cudnn'",
                "x ; extra == 'cuda'",
            ),
            "holds no CUDA libraries",
            "write onnxruntime-gpu[cuda,cudnn]",
        ),
    ],
)
def test_what_would_compute_on_the_cpu_is_refused(package: Found, says: str, helps: str) -> None:
    with pytest.raises(NoSolutionError) as caught:
        require_cuda(recipe(f"{package.name}==1"), DEBIAN, (package,))
    assert f"{package.name} {package.version} would compute on the CPU" in caught.value.what
    assert says in caught.value.what
    assert helps in (caught.value.hint or "")
    assert (caught.value.hint or "").endswith(
        "cpu = true under [base], if the image is for the CPU"
    )
    assert caught.value.where == f'[base] framework = "{package.name}==1"'
    assert require_cuda(recipe(cpu=True), DEBIAN, (package,)) == ()


@pytest.mark.parametrize(
    "packages",
    [
        (found("torch", "1.12.1"),),
        (found("torch", "2.0.1+cu118"),),
        (found("torch", "2.5.1"), *wheels("cublas-cu12", "cudnn-cu12")),
        (
            found("jax", "0.4.30"),
            found("jax-cuda12-plugin", "0.4.30"),
            *wheels("cublas-cu12", "cudnn-cu12"),
        ),
        (found("cupy-cuda13x", "14.2.0"), *wheels("cublas", "cuda-nvrtc", "cuda-runtime")),
        (found("tensorflow-cpu", "2.15.1"),),
        (found("numpy", "2.2.0"),),
    ],
)
def test_what_has_its_libraries_or_names_the_cpu_is_taken(packages: tuple[Found, ...]) -> None:
    assert require_cuda(recipe(), DEBIAN, packages) == ()


def test_the_cuda_of_an_image_counts() -> None:
    assert (
        require_cuda(
            recipe(), CUDA_IMAGE, (found("tensorflow", "2.10.1"), found("cupy-cuda11x", "13.6.0"))
        )
        == ()
    )


def test_beside_another_framework_or_for_another_package_it_is_a_note() -> None:
    torch = (found("torch", "2.5.1"), *wheels("cublas-cu12", "cudnn-cu12"))
    assert len(require_cuda(recipe("torch"), DEBIAN, (*torch, found("jax", "0.5.0")))) == 1
    dist = Dist(name="nvidia-cublas-cu12", version="12.4.5.8")
    held = BaseFacts(image="x", python="3.11.2", machine="x86_64", glibc="2.36", dists=(dist,))
    assert (
        len(require_cuda(recipe(), held, (found("tensorflow", "2.15.1", via=("keras-bert",)),)))
        == 1
    )


@pytest.mark.parametrize(
    ("version", "cudnn", "told"),
    [
        ("2.17.1", "9.1.0.70", "would compute on the CPU: it opens cuDNN 8, and cuDNN 9.1 is here"),
        ("2.19.0", "9.1.0.70", "needs cuDNN 9.3 or newer, and cuDNN 9.1 is here"),
        ("2.19.0", "9.3.0.75", None),
        ("2.20.0", "9.10.2.21", None),
    ],
)
def test_the_cudnn_of_another_framework_is_compared(
    version: str, cudnn: str, told: str | None
) -> None:
    wheel = found("nvidia-cudnn-cu12", cudnn, via=("torch",))
    torch = (found("torch", "2.5.1"), *wheels("cublas-cu12"), wheel)
    tensorflow = found("tensorflow", version)
    expected = (f"tensorflow {version} {told}",) if told else ()
    assert require_cuda(recipe("torch"), DEBIAN, (*torch, tensorflow)) == expected
    image = structs.replace(CUDA_IMAGE, cuda="12.4", cudnn=cudnn)
    assert require_cuda(recipe(), image, (*torch[:1], tensorflow)) == expected


@pytest.mark.parametrize(
    ("package", "cudnn", "says", "helps"),
    [
        (found("tensorflow", "2.15.1"), "9.1", "opens cuDNN 8, and cuDNN 9.1", "and-cuda]==2.15.*"),
        (found("tensorflow", "2.20.0"), "8.9", "opens cuDNN 9, and cuDNN 8.9", "tensorflow"),
        (found("jax", "0.4.30"), "8.9", "no jax-cuda*-plugin", "jax[cuda12]==0.4.*"),
    ],
)
def test_a_framework_alone_on_an_image_with_another_cudnn_is_refused(
    package: Found, cudnn: str, says: str, helps: str
) -> None:
    image = structs.replace(CUDA_IMAGE, cuda="12.4", cudnn=cudnn)
    with pytest.raises(NoSolutionError) as caught:
        require_cuda(recipe(), image, (package,))
    assert says in caught.value.what
    assert helps in (caught.value.hint or "")
    brought = replace(package, via=("keras-bert",))
    assert len(require_cuda(recipe(), image, (brought,))) == 1
    held = structs.replace(image, dists=(Dist(name="torch", version="2.5.1"),))
    assert len(require_cuda(recipe(), held, (package,))) == 1


def test_cupy_without_its_libraries_is_refused_beside_another_framework_too() -> None:
    packages = (found("torch", "1.10.2"), found("cupy-cuda113", "10.6.0"))
    with pytest.raises(NoSolutionError, match="cupy-cuda113"):
        require_cuda(recipe("torch"), DEBIAN, packages)
    brought = (packages[0], found("cupy-cuda113", "10.6.0", via=("spacy",)))
    assert len(require_cuda(recipe("torch"), DEBIAN, brought)) == 1


def test_a_framework_that_came_along_does_not_stand_for_that_of_the_base() -> None:
    """rknn-toolkit2 brings torch with CUDA 12, where paddle opens the libraries of 11."""
    paddle, torch = found("paddlepaddle-gpu", "2.6.2"), found("torch", "2.4.0", via=("rknn",))
    brought = (paddle, torch, *wheels("cublas-cu12", "cudnn-cu12"))
    with pytest.raises(NoSolutionError) as caught:
        require_cuda(recipe("paddlepaddle-gpu==2.6.2"), DEBIAN, brought)
    assert caught.value.where == '[base] framework = "paddlepaddle-gpu==2.6.2"'
    assert "its wheel holds no CUDA 11 libraries" in caught.value.what


def test_libraries_for_another_cuda_do_not_count() -> None:
    torch = (found("torch", "2.6.0"), *wheels("cublas-cu12", "cudnn-cu12"))
    paddle = found("paddlepaddle-gpu", "2.6.2")
    (note,) = require_cuda(recipe("torch"), DEBIAN, (*torch, paddle))
    assert note.endswith("its wheel holds no CUDA 11 libraries (cuBLAS, cuDNN), nor does the base")
    cupy = found("cupy-cuda12x", "13.6.0")
    with pytest.raises(NoSolutionError, match="holds no CUDA 12 libraries"):
        require_cuda(recipe(), CUDA_IMAGE, (cupy,))
    runtime = wheels("cuda-nvrtc-cu12", "cuda-runtime-cu12")
    assert require_cuda(recipe("torch"), DEBIAN, (*torch, *runtime, cupy)) == ()


def test_a_wheel_for_another_machine_does_not_hold_the_libraries() -> None:
    arm = BaseFacts(image="debian:bookworm", python="3.9.2", machine="aarch64", glibc="2.36")
    with pytest.raises(NoSolutionError, match="cuBLAS, cuDNN"):
        require_cuda(recipe("torch==1.12.*"), arm, (found("torch", "1.12.1"),))


def test_every_row_is_about_something() -> None:
    assert all(row.never or row.libraries for row in load_cuda_sources().framework)


@pytest.mark.parametrize(
    "line",
    [
        "pip uninstall -y torch",
        "python3 -m pip uninstall --yes tensorflow",
        "rm -rf /usr/lib/python3/dist-packages/torch",
    ],
)
def test_a_line_that_removes_the_framework_is_refused(line: str) -> None:
    harmful = structs.replace(recipe("torch==2.5.*"), system=SystemSection(post=("true", line)))
    with pytest.raises(UsageError) as told:
        refuse_removal(harmful)
    assert told.value.where == f"{harmful.name}: [system] post, line 2: {line}"
    refuse_removal(
        structs.replace(
            harmful, system=SystemSection(post=("pip uninstall -y wheel", "rm -rf /opt/old"))
        )
    )
