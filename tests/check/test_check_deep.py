"""Judges of the levels full and soak, on answers as the probes give them (recorded from real frameworks on a CPU and an H200)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from envbuild.check.answers import Answer, Compute, Computed, CudaDriver, Device, Driver, Nvml, Seen
from envbuild.check.checks.gpu import compute, devices
from envbuild.check.checks.gpu.devices import TOLERANCE
from envbuild.check.checks.sources import Survey
from envbuild.check.evidence import Evidence, Verdict
from envbuild.check.expected import Expected
from envbuild.check.plan import FULL
from envbuild.data import lookup

T = TypeVar("T")
RECORDED = Path(__file__).parents[1] / "recorded/check"
PROBES = sorted(RECORDED.glob("*_on_cpu.json"))
ON_H200 = ("torch_2.11.0", "jax_0.11.2", "cupy_14.2.0")
"""Answers of one NVIDIA H200, driver 580.159.04, Python 3.12.3, Linux 6.18 in a virtual machine."""


def evidence(
    *results: Computed,
    capability: tuple[int, int] = (8, 0),
    devices: int = 1,
    compiles: bool = False,
    seen: Seen | None = None,
    loaded: dict[str, tuple[str, ...]] | None = None,
    noise: tuple[str, ...] = (),
) -> Evidence:
    cards = tuple(Device(index=index, capability=capability) for index in range(devices))
    driver = Driver(
        cuda=CudaDriver(loaded=True, count=devices, devices=cards), nvml=Nvml(loaded=True)
    )
    answer = Compute(
        version="1", devices=("A100",) * devices, results=results, seen=seen, loaded=loaded or {}
    )
    return Evidence(
        expected=Expected(level="full"),
        framework=lookup.framework_of("torch"),
        driver=Answer(data=driver),
        compute=Answer(data=answer, noise=noise),
        sources=Survey(files=1, unread=(), suspects=(), compiles=compiles),
        gpu=True,
    )


def told(verdict: Verdict) -> tuple[str, str]:
    assert verdict.outcome != "failed" or verdict.hint
    return verdict.outcome, verdict.reason


def one(task: str, error: float | None = 1e-7, **more: object) -> Computed:
    return msgspec.convert(
        {"index": 0, "task": task, "device": "cuda:0", "error": error, **more}, Computed
    )


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (
            compute.check_precision(
                evidence(one("tf32", 3e-4), one("float16", 2e-3), one("bfloat16", 3e-3))
            ),
            (
                "passed",
                "products in lower precision and a copy of 64 MB came out right; greatest relative error 3.0e-03",
            ),
        ),
        (
            compute.check_precision(evidence(one("float16", 0.2))),
            ("failed", "torch on GPU 0, float16: the float16 is wrong: relative error 0.2"),
        ),
        (
            compute.check_precision(evidence(one("memory", 1e-9))),
            ("failed", "torch on GPU 0, memory: the memory is wrong: relative error 1e-09"),
        ),
        (
            compute.check_precision(
                evidence(
                    one("bfloat16", None, failed="not supported"), one("float16"), capability=(7, 0)
                )
            ),
            (
                "passed",
                "products in lower precision and a copy of 64 MB came out right; greatest relative error 1.0e-07",
            ),
        ),
        (
            compute.check_convolution(
                evidence(
                    one("convolution", None, failed="RuntimeError: CUDNN_STATUS_NOT_INITIALIZED")
                )
            ),
            ("failed", "torch on GPU 0, convolution: RuntimeError: CUDNN_STATUS_NOT_INITIALIZED"),
        ),
        (
            compute.check_convolution(evidence()),
            ("skipped", "torch's probe, or this GPU, has nothing of it"),
        ),
        (
            compute.check_training(evidence(one("training", None, losses=[0.5, 0.3, 0.1]))),
            ("passed", "the loss falls from 0.500 to 0.100 in 3 steps"),
        ),
        (
            compute.check_training(evidence(one("training", None, losses=[0.5, 0.5, 0.5]))),
            ("failed", "torch on GPU 0: the loss does not fall in 3 steps (0.5000 to 0.5000)"),
        ),
        (
            compute.check_training(evidence(one("training", None, losses=[0.5, float("nan")]))),
            ("failed", "torch on GPU 0: the loss does not fall in 2 steps (0.5000 to nan)"),
        ),
        (
            compute.check_training(
                evidence(one("training", None, losses=[0.5, 0.1], device="cpu"))
            ),
            ("failed", "torch on GPU 0: the training was computed elsewhere (cpu)"),
        ),
        (
            compute.check_compiled(evidence(one("compiled", None, failed="RuntimeError: no cc"))),
            (
                "skipped",
                "it does not work, and nothing in the project uses it: torch on GPU 0, compiled: RuntimeError: no cc",
            ),
        ),
        (
            compute.check_compiled(
                evidence(one("compiled", None, failed="RuntimeError: no cc"), compiles=True)
            ),
            ("failed", "torch on GPU 0, compiled: RuntimeError: no cc"),
        ),
        (compute.seen_by_driver(evidence()), ("skipped", "libnvidia-ml could not be asked")),
        (
            compute.seen_by_driver(evidence(seen=Seen(pid=True, processes=1, rise=600 << 20))),
            ("passed", "NVML lists the process; memory in use rose by 600 MiB"),
        ),
        (
            compute.seen_by_driver(evidence(seen=Seen(pid=False, processes=0, rise=600 << 20))),
            ("passed", "memory in use rose by 600 MiB (NVML cannot list processes here)"),
        ),
        (
            compute.seen_by_driver(evidence(seen=Seen(pid=False, processes=2, rise=1 << 20))),
            (
                "failed",
                "the driver saw nothing of it: the process is not listed, and memory in use rose by 1 MiB",
            ),
        ),
        (
            compute.one_prefix(
                evidence(loaded={"libcudnn.so": ("/a/libcudnn.so.8", "/b/libcudnn.so.9")})
            ),
            ("failed", "libcudnn was loaded 2 times: /a/libcudnn.so.8, /b/libcudnn.so.9"),
        ),
        (
            compute.one_prefix(evidence(loaded={"libcudnn.so": ("/a/libcudnn.so.8",)})),
            ("passed", "each of 1 CUDA libraries was loaded once"),
        ),
        (
            compute.check_speed(evidence(one("speed", None, seconds=0.001, cpu_seconds=0.1))),
            ("passed", "a product of 2048 x 2048 takes 100 times as long on the CPU"),
        ),
        (
            compute.check_speed(evidence(one("speed", None, seconds=0.03, cpu_seconds=0.1))),
            (
                "passed",
                "a product of 2048 x 2048 takes 3 times as long on the CPU (a small MIG slice, or another user on it?)",
            ),
        ),
        (
            compute.check_speed(evidence(one("speed", None, seconds=0.1, cpu_seconds=0.1))),
            ("failed", "GPU 0 computes a product of 2048 x 2048 only 1.0 times as fast as the CPU"),
        ),
        (
            compute.check_collective(
                evidence(
                    one("collective", 0.0, bandwidth=2.3e11),
                    devices=4,
                    noise=("n1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",),
                )
            ),
            ("passed", "4 GPUs add up right, 230 GB/s bus bandwidth over P2P"),
        ),
        (
            compute.check_collective(evidence(one("collective", 3.0), devices=2)),
            ("failed", "torch: the collective is wrong: relative error 3.0"),
        ),
        (
            compute.check_collective(evidence(devices=2)),
            ("skipped", "torch's probe does not use NCCL"),
        ),
        (
            compute.check_endurance(evidence(one("endurance", 1e-7, repeats=4000))),
            (
                "passed",
                "4000 products, one after the other, came out right; greatest relative error 1.0e-07",
            ),
        ),
        (
            compute.check_endurance(evidence(one("endurance", 0.5, repeats=17))),
            ("failed", "torch on GPU 0, endurance: the endurance is wrong: relative error 0.5"),
        ),
    ],
)
def test_each_answer_is_judged_in_words(verdict: Verdict, expected: tuple[str, str]) -> None:
    assert told(verdict) == expected


@pytest.mark.parametrize("path", PROBES, ids=lambda path: path.stem)
def test_what_real_frameworks_answer_is_within_the_tolerances(path: Path) -> None:
    """The probes' own code against each framework: all tasks but those that need a GPU, computed right."""
    answer = msgspec.json.decode(path.read_bytes(), type=Compute)
    done = {result.task for result in answer.results}
    assert {"product", "convolution", "endurance"} <= done <= {*FULL, "endurance"}
    for result in answer.results:
        assert result.failed is None or result.task == "compiled", result
        if result.error is not None:
            assert result.error <= compute.TOLERANCES.get(result.task, TOLERANCE), result
        if result.losses:
            assert result.losses[-1] < compute.FALLING * result.losses[0]


def test_a_fallback_to_the_cpu_is_never_taken_for_a_gpu() -> None:
    """The same recorded answers, judged as if they came from a GPU node."""
    assert len(PROBES) >= 5
    for path in PROBES:
        recorded = msgspec.json.decode(path.read_bytes(), type=Compute)
        base = evidence(*recorded.of("product", "convolution", "training", "speed"))
        assert compute.check_convolution(base).outcome == "failed"
        for judge, task in ((compute.check_training, "training"), (compute.check_speed, "speed")):
            assert judge(base).outcome == ("failed" if recorded.of(task) else "skipped"), (
                path.name,
                task,
            )


@pytest.mark.parametrize("name", ON_H200)
def test_a_real_gpu_passes_every_judge(name: str) -> None:
    """A judge skips only what the probe of that framework does not do."""

    def recorded(stem: str, kind: type[T]) -> Answer[T]:
        path = RECORDED / f"{stem}_on_h200.json"
        return Answer(data=msgspec.json.decode(path.read_bytes(), type=kind))

    base = replace(
        evidence(),
        framework=lookup.framework_of(name.partition("_")[0]),
        driver=recorded("driver_580.159.04", Driver),
        compute=recorded(name, Compute),
    )
    judged = {
        judge.__name__: judge(base)
        for judge in (
            devices.check_devices,
            devices.check_compute,
            compute.check_precision,
            compute.check_convolution,
            compute.check_training,
            compute.check_compiled,
            compute.seen_by_driver,
            compute.one_prefix,
            compute.check_speed,
            compute.check_endurance,
        )
    }
    skipped = {one for one, verdict in judged.items() if verdict.outcome == "skipped"}
    assert skipped == ({"check_convolution", "check_compiled"} if "cupy" in name else set())
    assert {v.outcome for one, v in judged.items() if one not in skipped} == {"passed"}, judged
    assert judged["check_devices"].reason == "NVIDIA H200 (capability 9.0)"
    driver = devices.driver_works(replace(base, framework=None))
    assert told(driver) == ("passed", "driver 580.159.04, supports CUDA 13.0")


def test_a_driver_that_the_loader_does_not_find_is_told_once() -> None:
    """So it is in an image without Apptainer's 99-runtimevars.sh; what follows from it is skipped."""
    cuda = CudaDriver(loaded=False, error="libcuda.so.1: cannot open", laid=True)
    base = replace(
        evidence(),
        driver=Answer(data=Driver(cuda=cuda, nvml=Nvml(loaded=False))),
        compute=Answer(data=Compute(version="2.11.0", devices=(), results=())),
    )
    verdict = devices.driver_works(base)
    assert verdict.outcome == "failed"
    assert "99-runtimevars.sh" in verdict.reason
    assert verdict.hint
    assert devices.check_devices(base).outcome == "skipped"
    assert devices.check_compute(base).outcome == "skipped"
