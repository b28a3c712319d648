"""Checks of what a framework computes beyond one product (levels full and soak)."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from envbuild.check.answers import Computed
from envbuild.check.checks.gpu.devices import (
    TOLERANCE,
    cure_of,
    fault_of,
    read_capability,
    result_shown,
)
from envbuild.check.evidence import Evidence, Verdict, failed, given, passed, skipped
from envbuild.store.units import listing

TOLERANCES = {"tf32": 5e-3, "float16": 1e-2, "bfloat16": 5e-2, "convolution": 1e-2, "memory": 0.0}
"""Relative errors (Frobenius norm) that count as right.

Seen on CPUs for a product of 256 x 256: float16 3e-4 (PyTorch) to 2e-3 (TensorFlow), bfloat16 3e-3;
TensorFloat-32 keeps 10 bits as float16 does.  Convolution: cuDNN may choose TensorFloat-32 where it
cannot be switched off. """
NEEDS_CAPABILITY = {"tf32": 80, "bfloat16": 80}
FALLING = 0.9
"""Part of the first loss that the last of twenty must be below."""
SLOW, SUSPECT = 2.0, 5.0
"""How many times a GPU must beat the CPU: below the first it fails, below the second that is
noted."""
RISE = 32 << 20
"""Bytes by which the memory in use must rise where NVML cannot list the process (MIG, another PID
namespace)."""


def check_precision(evidence: Evidence) -> Verdict:
    """Judge products in lower precision, each where the GPU has it."""
    results = [
        one
        for one in _done(evidence, "tf32", "float16", "bfloat16", "memory")
        if _has(evidence, one)
    ]
    return _right(evidence, results, "products in lower precision and a copy of 64 MB")


def check_convolution(evidence: Evidence) -> Verdict:
    """Judge a convolution, which cuDNN computes."""
    return _right(evidence, _done(evidence, "convolution"), "a convolution of 2 x 8 x 34 x 34")


def check_training(evidence: Evidence) -> Verdict:
    """Check whether the loss of a small model falls in twenty steps."""
    results, name = _done(evidence, "training"), _name(evidence)
    shown = {"results": [result_shown(one) for one in results]}
    if not results:
        return skipped(f"{name}'s probe has no training step")
    failure = _first_failure(name, results, shown)
    if failure is not None:
        return failure
    for one in results:
        if not one.losses or not one.losses[-1] < FALLING * one.losses[0]:
            losses = "none"
            if one.losses:
                losses = f"{one.losses[0]:.4f} to {one.losses[-1]:.4f}"
            return failed(
                f"{name} on GPU {one.index}: the loss does not fall in {len(one.losses)} steps ({losses})",
                "run it again; a GPU that computes wrongly is broken: tell the staff of the cluster",
                **shown,
            )
    first = results[0].losses
    return passed(
        f"the loss falls from {first[0]:.3f} to {first[-1]:.3f} in {len(first)} steps", **shown
    )


def check_compiled(evidence: Evidence) -> Verdict:
    """Judge code that the framework compiles itself (XLA, torch.compile).

    It is a failure where the project uses it.
    """
    results = _done(evidence, "compiled")
    if not results:
        return skipped(f"{_name(evidence)}'s probe compiles nothing")
    verdict = _right(evidence, results, "a compiled product")
    if verdict.outcome != "failed" or _compiles(evidence):
        return verdict
    return skipped(
        f"it does not work, and nothing in the project uses it: {verdict.reason}", verdict.hint
    )


def seen_by_driver(evidence: Evidence) -> Verdict:
    """Check whether NVML lists the process that computed, or at least its memory."""
    seen = given(evidence.compute).seen
    if seen is None:
        return skipped("libnvidia-ml could not be asked")
    shown = {"pid": seen.pid, "processes": seen.processes, "rise": seen.rise}
    if seen.pid:
        return passed(
            f"NVML lists the process; memory in use rose by {seen.rise >> 20} MiB", **shown
        )
    if seen.rise >= RISE:
        return passed(
            f"memory in use rose by {seen.rise >> 20} MiB (NVML cannot list processes here)",
            **shown,
        )
    return failed(
        f"the driver saw nothing of it: the process is not listed, and memory in use rose by {seen.rise >> 20} MiB",
        "it computed elsewhere than on this node's GPUs; look at the findings above",
        **shown,
    )


def one_prefix(evidence: Evidence) -> Verdict:
    """Check whether every CUDA library was loaded once."""
    loaded = given(evidence.compute).loaded
    twice = {family: paths for family, paths in loaded.items() if len(paths) > 1}
    if twice:
        family, paths = next(iter(twice.items()))
        return failed(
            f"{family.removesuffix('.so')} was loaded {len(paths)} times: {listing(paths)}",
            "take one of them out of LD_LIBRARY_PATH or out of the image; two releases in one process crash at random",
            loaded=loaded,
        )
    if not loaded:
        return skipped("which libraries were loaded could not be read")
    return passed(f"each of {len(loaded)} CUDA libraries was loaded once", loaded=loaded)


def check_speed(evidence: Evidence) -> Verdict:
    """Check whether the GPU is faster than the CPU of its node."""
    results, name = _done(evidence, "speed"), _name(evidence)
    shown = {"results": [result_shown(one) for one in results]}
    if not results:
        return skipped(f"{name}'s probe measures no speed")
    failure = _first_failure(name, results, shown)
    if failure is not None:
        return failure
    slowest = min(results, key=_ratio)
    ratio = _ratio(slowest)
    if ratio < SLOW:
        return failed(
            f"GPU {slowest.index} computes a product of 2048 x 2048 only {ratio:.1f} times as fast as the CPU",
            "somebody else may be using it (nvidia-smi), or it is a small MIG slice; else tell the cluster's staff",
            **shown,
        )
    note = " (a small MIG slice, or another user on it?)" if ratio < SUSPECT else ""
    return passed(
        f"a product of 2048 x 2048 takes {ratio:.0f} times as long on the CPU{note}", **shown
    )


def check_collective(evidence: Evidence) -> Verdict:
    """Check whether all GPUs of the node add up through NCCL, and how fast."""
    count = len(given(evidence.compute).devices)
    if count < 2:
        return skipped("there is one GPU only")
    results = _done(evidence, "collective")
    if not results:
        return skipped(f"{_name(evidence)}'s probe does not use NCCL")
    one = results[0]
    noise = evidence.compute.noise if evidence.compute else ()
    ways = sorted({line.rpartition(" via ")[2].split("/")[0] for line in noise if " via " in line})
    shown = {"results": [result_shown(one)], "transport": ways}
    fault = fault_of(one, 0.0)
    if fault:
        return failed(
            f"{_name(evidence)}: {fault}",
            "NCCL_DEBUG=INFO tells more; /dev/shm may be too small, and MIG slices cannot use NCCL",
            output=list(noise),
            **shown,
        )
    way = f" over {', '.join(ways)}" if ways else ""
    return passed(
        f"{count} GPUs add up right, {(one.bandwidth or 0.0) / 1e9:.0f} GB/s bus bandwidth{way}",
        **shown,
    )


def check_endurance(evidence: Evidence) -> Verdict:
    """Check whether every one of thousands of products was right."""
    results = _done(evidence, "endurance")
    repeats = sum(one.repeats or 0 for one in results)
    return _right(evidence, results, f"{repeats} products, one after the other,")


def _right(evidence: Evidence, results: list[Computed], what: str) -> Verdict:
    """Judge results by their tolerance; ``what`` they are, for people."""
    name = _name(evidence)
    shown = {"results": [result_shown(one) for one in results]}
    if not results:
        return skipped(f"{name}'s probe, or this GPU, has nothing of it")
    for one in results:
        fault = fault_of(one, TOLERANCES.get(one.task, TOLERANCE))
        if fault:
            return failed(f"{name} on GPU {one.index}, {one.task}: {fault}", cure_of(one), **shown)
    worst = max(one.error or 0.0 for one in results)
    return passed(f"{what} came out right; greatest relative error {worst:.1e}", **shown)


def _done(evidence: Evidence, *tasks: str) -> list[Computed]:
    return list(given(evidence.compute).of(*tasks))


def _has(evidence: Evidence, one: Computed) -> bool:
    """Tell whether the GPU has a task's number format.

    Where the driver did not say, it is tried.
    """
    driver = evidence.driver.data if evidence.driver else None
    found = (
        [device for device in driver.cuda.devices if device.index == one.index] if driver else []
    )
    return not found or read_capability(found[0]) >= NEEDS_CAPABILITY.get(one.task, 0)


def _name(evidence: Evidence) -> str:
    assert evidence.framework is not None  # noqa: S101  (the table asks for a framework's answer)
    return evidence.framework.name


def _compiles(evidence: Evidence) -> bool:
    assert evidence.framework is not None  # noqa: S101  (the table asks for a framework's answer)
    used = evidence.sources is not None and evidence.sources.compiles
    return used or evidence.framework.always_compiles


def _first_failure(name: str, results: list[Computed], shown: dict[str, Any]) -> Verdict | None:
    """Return the failure of results without a matrix: one failed, or was computed elsewhere."""
    for one in results:
        fault = fault_of(structs.replace(one, error=0.0), 0.0)
        if fault:
            return failed(f"{name} on GPU {one.index}: {fault}", cure_of(one), **shown)
    return None


def _ratio(one: Computed) -> float:
    return (one.cpu_seconds or 0.0) / max(one.seconds or 0.0, 1e-9)
