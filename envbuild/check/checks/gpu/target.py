"""Checks of the node that an image is meant for, on whatever machine they run."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from envbuild.base.gpu_names import is_geforce
from envbuild.check.checks.environment import before_runtime, is_compat
from envbuild.check.checks.gpu.devices import code_of, format_capabilities
from envbuild.check.checks.gpu.toolkit import toolkit_of, toolkit_of_conda
from envbuild.check.evidence import Evidence, Verdict, failed, given, passed, skipped
from envbuild.check.target import Target
from envbuild.data import lookup
from envbuild.data.tables import load_cuda
from envbuild.store.units import join_numbers, listing


def target_architecture(evidence: Evidence) -> Verdict:
    """Check whether the framework and every other package have code for the GPU of the node."""
    target = _target(evidence)
    if evidence.framework is None or target.capability is None:
        return _judge_packages(evidence, target)
    (sass, ptx, exact), source = code_of(evidence)
    name, gpu = evidence.title, describe_target(target)
    shown = {"sass": list(sass), "ptx": list(ptx), "source": source, **_scanned(evidence)}
    if not sass and not ptx:
        return skipped(
            f"{name} has no GPU code that could be read, and its release is not in the table"
        )
    how = lookup.runs_on(target.capability, sass, ptx, exact)
    if how is None:
        portable = (
            f", portable code for {format_capabilities(ptx)}" if ptx else ", no portable code"
        )
        return failed(
            f"{name} has no code for {gpu}: machine code for {format_capabilities(sass)}{portable}",
            "take a release of it that was built for this GPU, or a node with another GPU",
            **shown,
        )
    others = _others_without(evidence, target)
    if others is not None:
        return others
    if how == "ptx" and _cannot_compile(evidence, target.capability):
        return failed(
            f"{name} has only portable code for {gpu}, and what it compiles from it is refused there "
            "(CUDA_ERROR_INVALID_PTX)",
            "take TensorFlow 2.21 or newer, or a node with an older GPU",
            **shown,
        )
    what = "machine code" if how == "sass" else "portable code"
    when = "" if how == "sass" else ", compiled at first use (minutes, once)"
    return passed(f"{name} has {what} for {gpu}{when}", **shown)


def _judge_packages(evidence: Evidence, target: Target) -> Verdict:
    """Judge the GPU code of an image without a known framework."""
    verdict = _others_without(evidence, target) or _conda_compiles(evidence, target)
    if verdict is not None:
        return verdict
    files = [one.path for one in given(evidence.code).files]
    if not files:
        return skipped("no known framework and no other GPU code is installed")
    gpu = describe_target(target)
    return passed(f"{listing(files)}: code for {gpu}", **_scanned(evidence))


def _conda_compiles(evidence: Evidence, target: Target) -> Verdict | None:
    """Judge CUDA's libraries of conda for the GPU of the node; None where there are none."""
    toolkit = toolkit_of_conda(evidence)
    row = next((row for row in load_cuda().gpu if row.capability == target.capability), None)
    if toolkit is None or row is None:
        return None
    gpu, shown = describe_target(target), {"toolkit": toolkit}
    if lookup.compiles_for(toolkit, row):
        return passed(f"CUDA {toolkit} of conda's packages has code for {gpu}", **shown)
    return failed(
        f"CUDA {toolkit} of conda's packages has no code for {gpu}",
        "lock again for that node: envbuild lock NAME --for SITE:PARTITION, or [target] gpu",
        **shown,
    )


def _cannot_compile(evidence: Evidence, capability: int) -> bool:
    """Tell whether TensorFlow's own compiler makes code that Blackwell GPUs refuse.

    Reported for 2.16.2 to 2.20 on RTX 50 (tensorflow#89272, #97387, #99592, #101746).
    """
    release = lookup.numbers(evidence.release or "")
    is_tensorflow = evidence.framework is not None and evidence.framework.name == "tensorflow"
    return is_tensorflow and (2, 10) <= release < (2, 21) and capability >= 100


def target_driver(evidence: Evidence) -> Verdict:
    """Check whether the node's driver is new enough for CUDA, portable code and the GPU itself."""
    target, toolkit = _target(evidence), toolkit_of(evidence)
    if target.driver is None:
        return skipped("no driver was named (--driver)")
    of_conda = toolkit_of_conda(evidence)
    if evidence.framework is None or toolkit is None:
        if of_conda is not None:
            return _conda_runs(target.driver, of_conda)
        return skipped(
            "no known framework is installed, or what it was built for could not be read"
        )
    name, supported = evidence.title, lookup.cuda_of_driver(target.driver)
    shown = {"driver": target.driver, "supports": supported, "built_for": toolkit}
    row = next((row for row in load_cuda().gpu if row.capability == target.capability), None)
    first = load_cuda().drivers.get(row.since) if row and row.since else None
    if first and lookup.numbers(target.driver) < lookup.numbers(first):
        return failed(
            f"driver {target.driver} does not know {describe_target(target)}, "
            f"which needs {first} or newer",
            "check what the node has: nvidia-smi",
            **shown,
        )
    needed = lookup.oldest_driver(toolkit)
    if needed and lookup.numbers(target.driver) < lookup.numbers(needed):
        return _old_driver(evidence, target, needed, shown)
    return _portable_code(evidence, target, supported, toolkit) or passed(
        f"driver {target.driver} (CUDA {supported}) runs {name}, built for CUDA {toolkit}", **shown
    )


def _old_driver(evidence: Evidence, target: Target, needed: str, shown: dict[str, Any]) -> Verdict:
    """Judge a driver that is too old; a newer libcuda of the image may serve in its place.

    "Forward Compatibility is applicable only for systems with: NVIDIA Data Center GPUs. Select NGC
    Server Ready SKUs of RTX cards. Jetson boards" (NVIDIA's CUDA compatibility guide).
    """
    assert evidence.framework is not None  # noqa: S101  (asked only where there is one)
    toolkit, driver = shown["built_for"], target.driver or ""
    old = (
        f"driver {driver} is too old for CUDA {toolkit} of {evidence.title}, "
        f"which needs {needed} or newer"
    )
    own = _own_libcuda(evidence)
    if own and lookup.numbers(own) >= lookup.numbers(needed):
        if not is_geforce(target.gpu or ""):
            return passed(
                f"{old}, and the image's own libcuda {own} comes before it: data-centre GPUs run "
                "with that, on the drivers that NVIDIA's guide names for it",
                **shown,
            )
        old = f"{old}; libcuda {own} of the image serves data-centre GPUs only"
    fitting = lookup.newest_toolkit(driver) or "of that driver"
    return failed(
        old,
        f"take a release of {evidence.framework.name} for CUDA {fitting} or older, or a node with a newer driver",
        **shown,
    )


def _own_libcuda(evidence: Evidence) -> str | None:
    """Return the release of a libcuda of the image that comes before the node's (cuda-compat)."""
    if evidence.libraries is None or evidence.libraries.data is None:
        return None
    found = evidence.libraries.data
    if not any(map(is_compat, before_runtime(list(found.library_path)))):
        return None
    # the folder's path may be a link: /usr/local/cuda/compat
    copies = [path for path in found.copies.get("libcuda.so*", ()) if is_compat(path)]
    releases = [PurePosixPath(path).name.removeprefix("libcuda.so.") for path in copies]
    return max(releases, key=lookup.numbers, default=None)


def _conda_runs(driver: str, toolkit: str) -> Verdict:
    """Judge CUDA's libraries of conda for the driver of the node."""
    needed, fitting = lookup.oldest_driver(toolkit), lookup.newest_toolkit(driver)
    shown = {"driver": driver, "toolkit": toolkit}
    if needed and lookup.numbers(driver) < lookup.numbers(needed):
        hint = "take a node with a newer driver"
        if fitting:
            again = f'write driver = "{driver}" under [target] and lock again'
            hint = f"{again} (CUDA {fitting} or older), or {hint}"
        return failed(
            f"driver {driver} is too old for CUDA {toolkit} of conda's packages, "
            f"which needs {needed} or newer",
            hint,
            **shown,
        )
    return passed(f"driver {driver} runs CUDA {toolkit} of conda's packages", **shown)


def _portable_code(
    evidence: Evidence, target: Target, supported: str | None, toolkit: str
) -> Verdict | None:
    """Return a failure where only portable code fits and the driver is older than what made it.

    "PTX code … is not supported by minor version compatibility" (NVIDIA's CUDA compatibility
    guide).
    """
    if target.capability is None:
        return None
    (sass, ptx, exact), _ = code_of(evidence)
    how = lookup.runs_on(target.capability, sass, ptx, exact)
    if how != "ptx" or (
        supported is not None and lookup.numbers(supported)[:2] >= lookup.numbers(toolkit)[:2]
    ):
        return None
    own = load_cuda().drivers.get(join_numbers(lookup.numbers(toolkit)[:2]))
    return failed(
        f"{evidence.title} has only portable code for {describe_target(target)}; "
        f"driver {target.driver} (CUDA {supported}) "
        f"cannot compile what CUDA {toolkit} made",
        f"take a node with driver {own or 'of that CUDA'} or newer, or a release built for this GPU",
        driver=target.driver,
        supports=supported,
        built_for=toolkit,
    )


def target_glibc(evidence: Evidence) -> Verdict:
    """Check whether the node's C library matters.

    The image brings its own; the driver's files are the node's.
    """
    target, own = _target(evidence), evidence.installed.glibc
    if target.glibc is None:
        return skipped("no C library was named (--glibc)")
    if lookup.numbers(own) < OLDEST_GLIBC:
        return failed(
            f"the image's glibc {own} is older than the driver's files need, which --nv brings in from the node",
            "take a base of 2014 or later (glibc 2.17)",
        )
    if lookup.numbers(target.glibc) > lookup.numbers(own):
        return passed(
            f"the image brings glibc {own}, older than the node's {target.glibc}: CUDA runs, but programs of the node "
            "that are bound into the image (MPI, profilers) may ask for the newer one"
        )
    return passed(f"the image brings its own glibc {own}; the node's {target.glibc} is not used")


OLDEST_GLIBC = (2, 17)
"""What CUDA's own libraries for Linux are built for (manylinux2014 tags of NVIDIA's wheels)."""


def describe_target(target: Target) -> str:
    """Write the GPU of a target for people: "A100 (capability 8.0)"."""
    capability = f"capability {format_capabilities((target.capability or 0,))}"
    known = target.gpu is not None and any(
        letter.isalpha() for letter in target.gpu.removeprefix("sm_")
    )
    return f"{target.gpu} ({capability})" if known else capability


def _target(evidence: Evidence) -> Target:
    target = evidence.expected.target
    assert target is not None  # noqa: S101  (the table asks for one)
    return target


def _scanned(evidence: Evidence) -> dict[str, Any]:
    """Return what the scan read, for the evidence; empty where none was made."""
    if evidence.code is None:
        return {}
    scan = given(evidence.code)
    rate = scan.bytes / 1e6 / max(scan.seconds, 1e-3)
    return {
        "bytes": scan.bytes,
        "seconds": scan.seconds,
        "MB_per_second": round(rate),
        "unread": list(scan.unread),
    }


def _others_without(evidence: Evidence, target: Target) -> Verdict | None:
    """Return a failure where other packages hold GPU code and none for the node's GPU."""
    if evidence.code is None or target.capability is None:
        return None
    own = evidence.framework.code if evidence.framework else ()
    others: list[str] = []
    for one in given(evidence.code).files:
        if lookup.matches(one.path, own):
            continue
        ways = [
            lookup.runs_on(target.capability, code.sass, code.ptx, code.exact)
            for code in one.regions
        ]
        if not any(ways):
            others.append(one.path)
    if not others:
        return None
    return failed(
        f"{listing(others)}: no code for {describe_target(target)}",
        "take a release of the package that was built for this GPU",
        without=others,
        **_scanned(evidence),
    )
