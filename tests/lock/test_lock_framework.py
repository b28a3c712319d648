"""What a framework brings keeps to the recipe's own bounds, and packages are built from source where it says so."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from envbuild.base.model import BaseFacts, Dist
from envbuild.errors import NoSolutionError, UsageError
from envbuild.lock.decide.decide import decide_lock
from envbuild.lock.decide.framework import require_framework
from envbuild.lock.decide.options import LockOptions
from envbuild.lock.model import Lock
from envbuild.lock.staleness import stale_reasons
from envbuild.plan.scripts import fetch_packages
from envbuild.recipe.model import AboutSection, BaseSection, CheckSection, Recipe, Source
from envbuild.recipe.read import read_recipe
from envbuild.resolve.stubs import write_wheel
from envbuild.settings import load_settings
from tests.resolve.conftest import SyntheticIndex
from tests.resolve.loopback import Server
from tests.support import quiet_context

BASE = '[recipe]\nname = "x"\n[base]\nbootstrap = "debian:bookworm"\ncpu = true\n'
FACTS = BaseFacts(image="debian:bookworm", python="3.11.2", machine="x86_64", glibc="2.36")


@pytest.fixture
def index(tmp_path: Path) -> SyntheticIndex:
    found = SyntheticIndex(tmp_path / "index")
    found.wheel("uv", version("uv"))
    found.wheel("cupy-cuda12x", "13.6.0", requires=("numpy>=1.22,<2.6",))
    found.wheel("numpy", "1.23.5", "2.4.6")
    found.wheel("chainer", "7.8.1", requires=("numpy",))
    return found


@pytest.fixture
def lock(tmp_path: Path, index: SyntheticIndex) -> Callable[[str], Lock]:
    """Lock the text of a recipe against a bare Debian on the made-up index."""
    return lock_with(tmp_path, index, f"file://{tmp_path}/cu118/simple")


def lock_with(tmp_path: Path, index: SyntheticIndex, cu118: str) -> Callable[[str], Lock]:
    """Return what locks the text of a recipe, with the address of the index called cu118."""
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ENVBUILD_INDEX": index.url}
    environment |= {"ENVBUILD_STORE": str(tmp_path / "store"), "UV_CACHE_DIR": str(tmp_path / "uv")}
    environment["ENVBUILD_INDEX_CU118"] = cu118
    settings = load_settings(environment, tmp_path)
    context = quiet_context(settings)

    def decide(text: str) -> Lock:
        path = tmp_path / "x.toml"
        path.write_text(text)
        recipe, read = read_recipe(path)
        source = Source(recipe=recipe, path=path, text=read, lock=tmp_path / "x.lock")
        found = decide_lock(source, LockOptions(), context, date(2024, 11, 21), facts=FACTS)
        assert stale_reasons(recipe, found) == ()
        return found

    return decide


def _versions(lock: Lock, group: str) -> dict[str, str]:
    return {package.name: package.version for package in lock.python if package.group == group}


def test_what_the_framework_requires_is_resolved_with_the_project(
    lock: Callable[[str], Lock],
) -> None:
    base = f'{BASE}framework = "cupy-cuda12x==13.*"\n[python]\n'
    alone = lock(f"{base}dependencies = []\n")
    assert _versions(alone, "framework") == {"cupy-cuda12x": "13.6.0", "numpy": "2.4.6"}
    coupled = lock(f'{base}dependencies = ["chainer"]\n')
    assert _versions(coupled, "framework") == {"cupy-cuda12x": "13.6.0"}
    assert _versions(coupled, "project") == {"chainer": "7.8.1", "numpy": "1.23.5"}, (
        "chainer ends at numpy 1.23"
    )
    bounded = lock(f'{base}dependencies = ["chainer", "numpy<1.24"]\n')
    assert _versions(bounded, "framework") == {"cupy-cuda12x": "13.6.0", "numpy": "1.23.5"}


def test_a_package_of_the_framework_moves_for_a_newer_direct_one(
    lock: Callable[[str], Lock], index: SyntheticIndex
) -> None:
    """As fsspec of torch for datasets: the newest of both would take a datasets of years before."""
    index.wheel(
        "torch",
        "2.5.1",
        requires=("fsspec", "triton==3.1.0", "nvidia-cudnn-cu12==9.1.0.70", "sympy"),
    )
    index.wheel("fsspec", "2024.9.0", "2024.12.0")
    index.wheel("triton", "3.1.0")
    index.wheel("nvidia-cudnn-cu12", "9.1.0.70", "9.5.0.50")
    index.wheel("sympy", "1.13.1")
    index.wheel("datasets", "2.14.4", requires=("fsspec",))
    index.wheel("datasets", "3.2.0", requires=("fsspec<=2024.9.0",))
    found = lock(f'{BASE}framework = "torch==2.5.*"\n[python]\ndependencies = ["datasets"]\n')
    held = {"torch": "2.5.1", "triton": "3.1.0", "nvidia-cudnn-cu12": "9.1.0.70", "sympy": "1.13.1"}
    assert _versions(found, "framework") == held
    assert _versions(found, "project") == {"datasets": "3.2.0", "fsspec": "2024.9.0"}
    assert found.held_back == ()
    assert {p.name: p.via for p in found.python if p.name == "fsspec"} == {
        "fsspec": ("datasets", "torch")
    }
    assert found.moved == ()
    assert found.provided == ()


def test_cuda_wheels_of_which_the_framework_takes_a_range_are_free(
    lock: Callable[[str], Lock], index: SyntheticIndex
) -> None:
    """As jax, whose cuDNN 9 may be any: torch, which pins one, is then possible beside it."""
    plugin = ("nvidia-cudnn-cu12>=9.1,<10 ; extra == 'with-cuda'",)
    index.wheel(
        "jax", "0.4.35", requires=("jax-cuda12-plugin[with-cuda]==0.4.35 ; extra == 'cuda12'",)
    )
    index.wheel("jax-cuda12-plugin", "0.4.35", requires=plugin)
    index.wheel("nvidia-cudnn-cu12", "9.1.0.70", "9.6.0.74")
    index.wheel("torch", "2.5.1", requires=("nvidia-cudnn-cu12==9.1.0.70",))
    alone = lock(f'{BASE}framework = "jax[cuda12]"\n')
    assert _versions(alone, "framework")["nvidia-cudnn-cu12"] == "9.6.0.74"
    both = lock(f'{BASE}framework = "jax[cuda12]"\n[python]\ndependencies = ["torch"]\n')
    assert _versions(both, "framework") == {"jax": "0.4.35", "jax-cuda12-plugin": "0.4.35"}
    assert _versions(both, "project") == {"nvidia-cudnn-cu12": "9.1.0.70", "torch": "2.5.1"}


def test_a_direct_bound_chooses_the_release_of_the_framework(
    lock: Callable[[str], Lock], index: SyntheticIndex
) -> None:
    index.wheel("torch", "2.2.0", "2.2.2")
    found = lock(f'{BASE}framework = "torch==2.2.*"\n[python]\ndependencies = ["torch==2.2.0"]\n')
    assert _versions(found, "framework") == {"torch": "2.2.0"}


def test_what_a_dependency_pins_chooses_another_release_of_the_line(
    lock: Callable[[str], Lock], index: SyntheticIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vllm 0.6.3, which pins torch 2.4.0, on framework = "torch==2.4.*"."""
    index.wheel("torch", "2.4.0", "2.4.1")
    index.wheel("vllm", "0.6.3", requires=("torch==2.4.0",))
    recipe = '{}framework = "torch{}"\n[python]\ndependencies = ["vllm"]\n'
    with monkeypatch.context() as patched:
        # where a release of the line fits, nobody looks for what else would help
        patched.setattr("envbuild.resolve.uv.refusal.suggest_changes", None)
        found = lock(recipe.format(BASE, "==2.4.*"))
    assert _versions(found, "framework") == {"torch": "2.4.0"}
    assert (
        found.notes[0]
        == "torch==2.4.0 is taken, not torch 2.4.1: the requirements have no solution with that one"
    )
    with pytest.raises(
        NoSolutionError, match=r"vllm needs torch==2.4.0; the recipe's framework brings torch 2.4.1"
    ):
        lock(recipe.format(BASE, "==2.4.1"))


def test_what_stands_in_the_way_of_every_release_of_a_line_is_told_first(
    lock: Callable[[str], Lock], index: SyntheticIndex
) -> None:
    """As vllm 0.5, which pins torch 2.4.0 and needs a package that is gone from the index."""
    index.wheel("torch", "2.4.0", "2.4.1")
    index.wheel("vllm", "0.5.4", requires=("torch==2.4.0", "airports"))
    with pytest.raises(NoSolutionError) as caught:
        lock(f'{BASE}framework = "torch==2.4.*"\n[python]\ndependencies = ["vllm"]\n')
    first, *others = caught.value.what.splitlines()[1:]
    assert first.startswith("- with any release of torch==2.4.*: ")
    assert "airports" in first
    assert others[0] == "- vllm needs torch==2.4.0; the recipe's framework brings torch 2.4.1"


def test_two_stacks_of_cuda_are_told_once(
    lock: Callable[[str], Lock], index: SyntheticIndex
) -> None:
    """As accelerate over TensorFlow 2.21 on Python 3.13: with any release of it the same two, told the other way round."""
    extra = " ; extra == 'and-cuda'"
    index.wheel("tensorflow", "2.21.0", "2.21.1", requires=(f"nvidia-cudnn-cu12>=9.3{extra}",))
    index.wheel("nvidia-cudnn-cu12", "9.28")
    index.wheel("nvidia-cudnn-cu13", "9.26")
    index.wheel("torch", "2.12.0", requires=("nvidia-cudnn-cu13",))
    index.wheel("accelerate", "1.0", requires=("torch>=2",))
    recipe = (
        '{}framework = "tensorflow[and-cuda]==2.21.*"\n[python]\ndependencies = ["accelerate"]\n'
    )
    with pytest.raises(NoSolutionError) as caught:
        lock(recipe.format(BASE))
    first, *others = caught.value.what.splitlines()[1:]
    assert first.startswith(
        "- nvidia-cudnn-cu13 9.26 (with torch 2.12.0) would write over files of nvidia-cudnn-cu12 9.28"
    )
    assert not any("would write over files of nvidia-cudnn-cu13" in line for line in others)


def test_a_pin_outside_the_line_of_the_framework_is_told_alone(
    lock: Callable[[str], Lock], index: SyntheticIndex
) -> None:
    index.wheel("torch", "2.3.0", "2.4.0", "2.4.1")
    index.wheel("vllm", "0.5.0", requires=("torch==2.3.0",))
    with pytest.raises(NoSolutionError) as caught:
        lock(f'{BASE}framework = "torch==2.4.*"\n[python]\ndependencies = ["vllm"]\n')
    assert "with any release" not in caught.value.what
    assert (
        "- vllm needs torch==2.3.0; the recipe's framework brings torch 2.4.1" in caught.value.what
    )


def test_another_build_of_the_framework_comes_from_a_named_index(
    lock: Callable[[str], Lock], index: SyntheticIndex, tmp_path: Path
) -> None:
    index.wheel("torch", "2.5.1")
    index.wheel("torchmetrics", "1.0", requires=("torch>=2",))
    SyntheticIndex(tmp_path / "cu118").wheel("torch", "2.5.1+cu118")
    lines = 'dependencies = ["torchmetrics", "torch==2.5.1+cu118"]\nindexes = ["cu118"]\n'
    found = lock(f'{BASE}framework = "torch==2.5.1+cu118"\n[python]\n{lines}')
    assert _versions(found, "framework") == {"torch": "2.5.1+cu118"}
    assert {package.index for package in found.python if package.name == "torch"} == {"cu118"}
    assert _versions(found, "project") == {"torchmetrics": "1.0"}


def test_an_index_of_the_frameworks_makers_is_read_as_they_write_it(
    index: SyntheticIndex, tmp_path: Path
) -> None:
    """Their page is no "simple" one: absolute links with %2B, Linux wheels without a day or size."""
    wheel = write_wheel(tmp_path, "torch", "2.5.1+cu118", ("runtime-cu11==11.8.89",))
    runtime = write_wheel(tmp_path, "runtime_cu11", "11.8.89", ())
    file = wheel.name.replace("py3-none-any", "cp311-cp311-linux_x86_64")
    server = Server()
    for project, path, shown in (
        ("torch", wheel, file),
        ("runtime-cu11", runtime, runtime.name),
    ):
        data, link = path.read_bytes(), f"whl/cu118/{shown.replace('+', '%2B')}"
        server.files[link] = data
        row = f'<a href="/{link}#sha256={hashlib.sha256(data).hexdigest()}">{shown}</a>'
        server.files[f"whl/cu118/{project}/"] = f"<!DOCTYPE html><body>{row}</body>".encode()
    lock = lock_with(tmp_path, index, f"{server.url}/whl/cu118")
    found = lock(
        f'{BASE}framework = "torch==2.5.1+cu118"\n[python]\ndependencies = []\nindexes = ["cu118"]\n'
    )
    rows = {package.name: (package.file, package.index) for package in found.python}
    assert rows["torch"] == (file, "cu118")
    assert rows["runtime-cu11"] == (runtime.name, "cu118")
    find_file: Callable[[str, str, str], str] = getattr(fetch_packages, "find_file")  # noqa: B009
    address = find_file(f"{server.url}/whl/cu118", "torch", file)
    assert address == f"{server.url}/whl/cu118/{file.replace('+', '%2B')}"


def test_a_bound_that_the_framework_excludes_is_told(lock: Callable[[str], Lock]) -> None:
    with pytest.raises(
        NoSolutionError, match=r"cupy-cuda12x needs numpy>=1.22,<2.6; you ask for numpy<1.22"
    ):
        lock(f'{BASE}framework = "cupy-cuda12x==13.*"\n[python]\ndependencies = ["numpy<1.22"]\n')


def test_from_source_takes_the_archive_and_is_part_of_the_digest(
    lock: Callable[[str], Lock], index: SyntheticIndex
) -> None:
    index.wheel("mpi4py", "4.1.2")
    pyproject = '[build-system]\nrequires = []\nbuild-backend = "own"\n'
    files = {
        "pyproject.toml": pyproject,
        "PKG-INFO": "Metadata-Version: 2.2\nName: mpi4py\nVersion: 4.1.2\n",
    }
    index.sdist("mpi4py", "4.1.2", files=files)
    wheel = lock(f'{BASE}[python]\ndependencies = ["mpi4py"]\n')
    built = lock(f'{BASE}[python]\ndependencies = ["mpi4py"]\nfrom-source = ["MPI4py"]\n')
    assert [package.file for package in wheel.python if package.name == "mpi4py"] == [
        "mpi4py-4.1.2-py3-none-any.whl"
    ]
    assert [package.file for package in built.python if package.name == "mpi4py"] == [
        "mpi4py-4.1.2.tar.gz"
    ]
    assert wheel.recipe_digest != built.recipe_digest


def test_a_name_that_nothing_brings_is_refused(lock: Callable[[str], Lock]) -> None:
    with pytest.raises(UsageError, match=r'from-source names "chainr".*did you mean "chainer"\?'):
        lock(f'{BASE}[python]\ndependencies = ["chainer"]\nfrom-source = ["chainr"]\n')


@pytest.mark.parametrize(
    ("wanted", "held", "fits"),
    [
        ("torch", {"torch": "2.1.0+cu121"}, True),
        ("torch>=2.4", {"torch": "2.4.0a0+nv24.06"}, True),
        ("torch>=2.4", {"torch": "2.1.0"}, False),
        ("tensorflow", {"tensorflow-gpu": "2.1.0"}, True),
        ("tensorflow", {"torch": "2.1.0"}, False),
        ("tensorflow", {}, False),
    ],
)
def test_a_base_without_the_framework_that_the_check_names(
    wanted: str, held: dict[str, str], fits: bool
) -> None:
    recipe = Recipe(
        recipe=AboutSection(name="x"),
        base=BaseSection(image="docker://lab.invalid/x:1"),
        check=CheckSection(framework=wanted),
    )
    dists = tuple(Dist(name=name, version=number) for name, number in held.items())
    facts = msgspec.structs.replace(FACTS, dists=dists)
    if fits:
        require_framework(recipe, facts, ())
        return
    with pytest.raises(NoSolutionError) as caught:
        require_framework(recipe, facts, ())
    assert (
        f'[check] framework names "{wanted}", and the base docker://lab.invalid/x:1 holds '
        in caught.value.what
    )
    assert "envbuild base suggest --framework" in (caught.value.hint or "")
    require_framework(recipe, facts, (wanted.split(">", maxsplit=1)[0],))
