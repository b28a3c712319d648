"""Questions to the tables of frameworks, CUDA and shared libraries."""

from __future__ import annotations

import datetime as dt
import fnmatch
import itertools
import re
from collections.abc import Collection
from functools import cache

from envbuild.data.tables import (
    CudaSource,
    Framework,
    GpuModel,
    LibraryProvider,
    WheelBuild,
    load_cuda,
    load_cuda_sources,
    load_frameworks,
    load_releases,
    load_sonames,
)
from envbuild.names import Numbers, Texts
from envbuild.store.units import minor_version

NVCC_BASE = "a base with nvcc (pytorch/pytorch:…-devel, nvcr.io/nvidia/pytorch)"
"""What people are told to take where GPU code is compiled."""


def numbers(version: str) -> Numbers:
    """Return the leading numbers of a version, to compare: "12.5.1" gives (12, 5, 1)."""
    found = re.match(r"\d{1,9}(?:\.\d{1,9})*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def matches(name: str, patterns: Texts) -> bool:
    """Tell whether a name matches one of the shell patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def framework_of(dist: str) -> Framework | None:
    """Return the framework that a distribution (canonical name) holds, or that people call so."""
    for framework in load_frameworks().framework:
        if matches(dist, (*framework.dists, *framework.called)):
            return framework
    return None


def framework_held(names: Collection[str]) -> str | None:
    """Return the canonical name that is an image's framework: by name, then by pattern."""
    patterns: list[str] = []
    for row in load_frameworks().framework:
        patterns += row.dists
    for name in (*patterns, *sorted(names)):
        if name in names and matches(name, tuple(patterns)):
            return name
    return None


def framework_called(name: str, *, greater: bool = False) -> str | None:
    """Return the catalogue's framework (or greater one) that people call so, or None."""
    rows = (row for row in load_frameworks().framework if row.greater or not greater)
    return next((row.name for row in rows if name in row.called), None)


def is_framework(name: str, *, greater: bool = False) -> bool:
    """Whether a canonical name is a framework (or a greater one) that computes on the GPU."""
    for row in load_frameworks().framework:
        if (row.greater or not greater) and matches(name, (*row.dists, *row.parts)):
            return True
    return False


def build_of(framework: str, version: str) -> WheelBuild | None:
    """Return what a release was built for: its own row, else that of its release line."""
    rows = {row.version: row for row in load_frameworks().build if row.framework == framework}
    release = version.split("+", maxsplit=1)[0]
    return rows.get(release) or rows.get(minor_version(release))


def released(framework: str | None, version: str | None) -> dt.date | None:
    """Return the day on which a version's release line came out, None if unknown.

    A line that only its maker's images have (torch 1.14) is as old as the next one.
    """
    line = minor_version(version or "")
    days: dict[str, dt.date] = getattr(load_releases(), framework or "", {})
    later = (day for name, day in days.items() if numbers(name) >= (numbers(line) or (0,)))
    return min(later, default=None) if line else None


def cuda_libraries(toolkit: str) -> Texts:
    """Return the sonames that a toolkit's programs open; empty for an older toolkit."""
    wanted = (*numbers(toolkit), 0)[:2]  # "12" stands for all of 12
    fitting = [row for row in load_cuda().libraries if numbers(row.since) <= wanted]
    return max(fitting, key=lambda row: numbers(row.since)).names if fitting else ()


@cache
def opened_by(framework: Framework) -> Texts:
    """Return every soname that a release of a framework opens or links, for any toolkit."""
    names = set(itertools.chain.from_iterable(row.names for row in load_cuda().libraries))
    names |= {
        f"libcudnn.so.{numbers(row.cudnn)[0]}" for row in load_frameworks().build if row.cudnn
    }
    wanted = (*framework.opens, *framework.linked)
    return tuple(sorted(name for name in names if matches(name, wanted)))


def is_cuda_library(soname: str) -> bool:
    """Tell whether a library is one of NVIDIA's that wheels bring (data/sonames.toml)."""
    row = provider_of(soname)
    return row is not None and row.wheel is not None and row.wheel.startswith("nvidia-")


def toolkit_of_library(soname: str) -> int | None:
    """Return the CUDA family that a library is of, where its soname tells it."""
    found = re.fullmatch(
        r"lib(?:cudart|cublas|cublasLt|nvrtc|nvJitLink|nvblas)\.so\.(\d{1,9})[\d.]*", soname
    )
    return int(found[1]) if found else None


def wheel_for(wheel: str, toolkit: str | None) -> str:
    """Return the name of a CUDA wheel (with its version, if the table has one) for another toolkit.

    Since CUDA 13 the wheels of the toolkit have no suffix; cuDNN, NCCL and cuSPARSELt keep theirs.
    """
    found = re.fullmatch(r"(nvidia-[a-z-]+?)(?:-cu\d+)?((?:[=<>].*)?)", wheel)
    if found is None or toolkit is None:
        return wheel
    name, version = found.groups()
    major = numbers(toolkit)[0]
    keeps = name in ("nvidia-cudnn", "nvidia-nccl", "nvidia-cusparselt", "nvidia-nvshmem")
    return f"{name}-cu{major}{version}" if keeps or major < 13 else f"{name}{version}"


def oldest_driver(toolkit: str) -> str | None:
    """Return the oldest driver that runs machine code of a toolkit (None: not known)."""
    major, minor = (*numbers(toolkit), 0, 0)[:2]
    if str(major) in load_cuda().families and (major, minor) != (11, 0):
        return load_cuda().families[str(major)]
    return load_cuda().drivers.get(f"{major}.{minor}")


def cuda_of_driver(driver: str) -> str | None:
    """Return the newest toolkit that a driver came with or after (None: older than the table)."""
    drivers = load_cuda().drivers
    fitting = [toolkit for toolkit in drivers if numbers(drivers[toolkit]) <= numbers(driver)]
    return max(fitting, key=numbers, default=None)


def newest_toolkit(driver: str) -> str | None:
    """Return the newest toolkit whose machine code a driver runs (None: older than the table)."""
    needed = {toolkit: numbers(oldest_driver(toolkit) or "") for toolkit in load_cuda().drivers}
    fitting = [toolkit for toolkit in needed if needed[toolkit] <= numbers(driver)]
    return max(fitting, key=numbers, default=None)


def compiles_for(toolkit: str, gpu: GpuModel) -> bool:
    """Tell whether a toolkit compiles machine code for a GPU."""
    version = numbers(toolkit)
    if gpu.since is not None and version < numbers(gpu.since):
        return False
    return gpu.until is None or version < numbers(gpu.until)


def runs_on(capability: int, sass: Numbers, ptx: Numbers, exact: Numbers = ()) -> str | None:
    """Return how code runs on a GPU: "sass" (machine code), "ptx" (compiled), or None.

    Machine code runs on the same major capability and an equal or higher minor one; portable code
    on every GPU from its own capability up; ``exact`` code (sm_90a) on that very capability alone
    (CUDA programming guide, "Application Compatibility" and "Family-Specific and
    Architecture-Specific Features").
    """
    if capability in exact:
        return "sass"
    if any(code // 10 == capability // 10 and code <= capability for code in sass):
        return "sass"
    return "ptx" if any(code <= capability for code in ptx) else None


def from_driver(soname: str) -> bool:
    """Tell whether a library belongs to the driver of the machine and never to the image."""
    return matches(soname, load_sonames().driver)


def cuda_source(dist: str) -> CudaSource | None:
    """Return where the CUDA libraries of a distribution come from."""
    rows = (row for row in load_cuda_sources().framework if matches(dist, row.dists))
    return next(rows, None)


def from_rocm(soname: str) -> bool:
    """Tell whether a library is a part of AMD's ROCm."""
    return matches(soname, load_sonames().rocm)


def may_lack(path: str) -> str | None:
    """Return why a shared object's libraries may be missing, or None where they must not."""
    rows = load_sonames().optional
    return next((row.reason for row in rows if fnmatch.fnmatchcase(path, row.object)), None)


def provider_of(soname: str) -> LibraryProvider | None:
    """Return who has a library."""
    rows = load_sonames().provider
    return next((row for row in rows if fnmatch.fnmatchcase(soname, row.soname)), None)
