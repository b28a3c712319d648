"""The GPU probes with the real frameworks, on a machine without a GPU: they work up to the device that is missing."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.check import plan
from envbuild.check.answers import Answer, Compute, Imports
from envbuild.check.checks.gpu import compute
from envbuild.check.checks.gpu.devices import TOLERANCE
from envbuild.check.expected import CheckBasis, derive_expected
from envbuild.check.probe_runner import ProbeRunner
from envbuild.data import lookup
from envbuild.run import Command, LocalRunner
from tests.check.tree import Tree, make_recipe

UV = Path(sys.executable).with_name("uv")
DAY = "2024-12-01"
FRAMEWORKS = {
    "tensorflow-cpu": ("3.11", "tensorflow-cpu==2.15.1"),
    "tensorflow-1": ("3.7", "tensorflow==1.15.5 protobuf<3.21"),
    "jax": ("3.11", "jax[cpu]==0.4.30"),
    "onnxruntime": ("3.11", "onnxruntime==1.20.1"),
    "cupy": ("3.11", "cupy-cuda12x==13.3.0"),
}
"""Python and what is installed, by a name of ours; PyTorch is tried in a real image (tests/lock/test_lock_torch.py)."""
PROBE = {
    "tensorflow-cpu": "tensorflow",
    "tensorflow-1": "tensorflow",
    "onnxruntime": "onnxruntime-gpu",
}
WHY = {
    "jax": "Unknown backend",
    "onnxruntime": "ONNX Runtime has no CUDAExecutionProvider",
    "cupy": "cudaErrorInsufficientDriver",
}
"""What a framework says of the GPU that is not there; TensorFlow says nothing and goes on."""
pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(not UV.exists(), reason="uv is not installed here"),
]


def interpreter(version: str) -> Path:
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    found = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python{version}"))
    if not found:
        pytest.skip(f"not installed here: CPython {version}")
    return found[-1]


@pytest.fixture(scope="module", params=sorted(FRAMEWORKS))
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Tree]:
    version, requirements = FRAMEWORKS[request.param]
    tree = Tree(
        tmp_path_factory.mktemp("framework") / "image", python=interpreter(version), version=version
    )
    argv = (
        str(UV),
        "pip",
        "install",
        "-q",
        "--exclude-newer",
        DAY,
        "--python",
        str(tree.root / "bin/python3"),
    )
    LocalRunner()(Command(argv=(*argv, *requirements.split()), env=dict(os.environ), timeout=600))
    return request.param, tree


def ask(name: str, tree: Tree, **parameters: object) -> Answer[Compute]:
    framework = lookup.framework_of(PROBE.get(name, name))
    assert framework is not None
    assert framework.probe is not None
    request = plan.compute_request(framework.probe, "soak", 1)
    request = replace(request, parameters={**request.parameters, "seconds": 1, **parameters})
    return (
        ProbeRunner(tree.root, tree, LocalRunner(), gpu=False)
        .ask((request,))
        .answer(request, Compute)
    )


def test_every_task_comes_out_right_on_the_cpu(installed: tuple[str, Tree]) -> None:
    name, tree = installed
    if name == "cupy":
        pytest.skip("CuPy computes on nothing but a GPU")
    answer = ask(name, tree, device="cpu").data
    assert answer is not None
    failed = {one.task: one.failed for one in answer.results if one.failed}
    assert set(failed) <= {"compiled"}, failed
    assert {"product", "convolution", "endurance"} <= {one.task for one in answer.results}
    for one in answer.results:
        assert one.error is None or one.error <= compute.TOLERANCES.get(one.task, TOLERANCE), one
        assert not one.losses or one.losses[-1] < compute.FALLING * one.losses[0]


def test_without_a_gpu_the_probe_says_so_and_ends(installed: tuple[str, Tree]) -> None:
    name, tree = installed
    answer = ask(name, tree)
    assert answer.data is not None, answer
    assert answer.data.devices == ()
    assert answer.data.results == ()
    assert WHY.get(name, "") in " ".join(answer.data.notes), answer.data.notes


def test_it_imports(installed: tuple[str, Tree]) -> None:
    """CuPy's import alone is all that can be tried of it here."""
    name, tree = installed
    recipe = make_recipe(FRAMEWORKS[name][1].split("=")[0].split("[")[0])
    expected = derive_expected(CheckBasis(recipe=recipe))
    request = plan.imports_request(expected)
    answer = (
        ProbeRunner(tree.root, tree, LocalRunner(), gpu=False)
        .ask((request,))
        .answer(request, Imports)
    )
    assert answer.data is not None, answer
    assert {module: one.error for module, one in answer.data.modules.items() if not one.ok} == {}
