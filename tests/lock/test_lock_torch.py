"""A torch case for real: resolved, proved by import, written to a ``.sif``, trained with, and asked by the GPU probes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import tomli

from envbuild.check import plan
from envbuild.check.answers import Compute
from envbuild.check.probe_runner import ProbeRunner
from envbuild.data import lookup
from envbuild.run import LocalRunner
from envbuild.runtime_search import find_runtime
from envbuild.settings import load_settings
from tests.project import Project
from tests.support import needs

RECIPE = """\
[recipe]
name = "vision"

[base]
bootstrap = "debian:bookworm"
framework = "torch==2.5.1"

[python]
dependencies = ["torchvision", "tqdm"]
"""
USE = """\
import torch, torchvision
torch.manual_seed(0)
model = torchvision.models.squeezenet1_1(num_classes=2)
seen = torch.rand(2, 3, 64, 64)
step = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model.eval()(seen), torch.tensor([0, 1]))
    step.zero_grad(); loss.backward(); step.step(); losses.append(loss.item())
assert losses[-1] < losses[0], losses
print("TORCH", torch.__version__, "VISION", torchvision.__version__, "CUDA", torch.version.cuda)
"""
RANKS = """\
import torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(value)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: sum {value.item():.0f}")
"""
pytestmark = [pytest.mark.live, pytest.mark.slow, needs("apptainer", "mmdebstrap", "mksquashfs")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The image, whose packages and parts stay in the tests' store; the 3 GB file itself does not stay."""
    project = Project(tmp_path_factory.mktemp("torch") / "p")
    project.write("recipes/vision.toml", RECIPE)
    project.succeed("lock", "vision", "--prove", timeout=1200)
    built = project.succeed("make", "vision", "--no-check", timeout=600)
    assert "the store has this image already" in built.stderr, "the proof has built it"
    yield project
    (project.folder / "vision.sif").unlink()


def test_the_lock_says_that_it_imports(made: Project) -> None:
    lock = tomli.loads((made.folder / "lockfiles/vision.lock").read_text())
    assert lock["proof"] == "imported"
    groups = {(package["name"], package["group"]): package["version"] for package in lock["python"]}
    assert groups["torch", "framework"] == "2.5.1"
    assert groups["torchvision", "project"] == "0.20.1", "the one release that goes with it"
    assert ("torch", "project") not in groups


def test_the_image_trains(made: Project) -> None:
    used = made.run("exec", "vision", "--", "python3", "-c", USE)
    assert "TORCH 2.5.1+cu124 VISION 0.20.1+cu124 CUDA 12.4" in used.stdout, used.stderr


def test_torchrun_starts_two_ranks_inside_the_image(made: Project) -> None:
    """PyTorch's own launcher and its gloo, as a job of two tasks on this machine."""
    made.write("ranks.py", RANKS)
    job = (
        "--gpus",
        "0",
        "--launcher",
        "torchrun",
        "--tasks",
        "2",
        "--cpus",
        "1",
        "--wait",
        "--",
        "python",
        "ranks.py",
    )
    ran = made.succeed("submit", "./vision.sif", "--on", "local", *job, timeout=300)
    for rank in (0, 1):
        assert f"rank {rank} of 2: sum 3" in ran.stdout


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_gpu_probe_works_up_to_the_device(made: Project, device: str) -> None:
    """On the CPU every task comes out right; asked for a GPU that is not there, it says so and ends."""
    settings, runner = load_settings(made.env, made.folder), LocalRunner()
    inside = ProbeRunner(
        Path(made.folder / "vision.sif"), find_runtime(settings, runner), runner, gpu=False
    )
    torch = lookup.framework_of("torch")
    assert torch is not None
    assert torch.probe is not None
    request = plan.compute_request(torch.probe, "full", 1)
    request = replace(request, parameters={**request.parameters, "device": device})
    answer = inside.ask((request,)).answer(request, Compute)
    assert answer.data is not None, answer
    if device == "cpu":
        failed = {one.task: one.failed for one in answer.data.results if one.failed}
        assert set(failed) <= {"compiled"}, failed
        assert {"product", "training", "convolution", "bfloat16"} <= {
            one.task for one in answer.data.results
        }
    else:
        assert answer.data.devices == ()
        assert "Found no NVIDIA driver" in " ".join(answer.data.notes)
