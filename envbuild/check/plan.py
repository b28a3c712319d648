"""Which probes answer what an image is expected to hold; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote

import msgspec

from envbuild.check.contaminated_home import CONDA, PATH_MODULE, USER_MODULE
from envbuild.check.expected import Expected, frameworks_patterns
from envbuild.check.model import Level
from envbuild.data import lookup
from envbuild.data.package_tables import load_conda, load_removed
from envbuild.data.tables import (
    EntryPoint,
    Framework,
    load_entry_points,
    load_frameworks,
    load_import_lines,
    load_sonames,
)
from envbuild.names import Texts
from envbuild.project.code.reads import Name
from envbuild.project.code.uses import ARGUMENTS
from envbuild.records import field, frozen_record

HASH_LIMIT = 4 * 1024 * 1024
"""Bytes up to which code is hashed at level "quick"; all else is compared by size, as is said."""
FULL = (
    "product", "memory", "convolution", "tf32", "float16", "bfloat16", "compiled", "training", "speed", "collective"
)  # fmt: skip
TASKS: dict[Level, Texts] = {
    "quick": ("product",),
    "full": FULL,
    "soak": (*FULL, "endurance"),
}
"""What a framework computes at each level (probes/shared/compute.py)."""
COMPUTE_LIMIT: dict[Level, float] = {"quick": 300.0, "full": 1200.0, "soak": 1200.0}
SOAK_SECONDS = 600.0
"""Seconds that every GPU is kept busy at level "soak"."""
_FAMILIES = (
    "cudart", "cudnn", "cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "cusparseLt", "nccl", "nvrtc",
    "nvJitLink",
)  # fmt: skip
FAMILIES = (*(f"lib{name}.so.*" for name in _FAMILIES), "libcuda.so*")
"""Libraries of which every copy in the image is listed."""


IMPORT_SECONDS = 180
"""For each module that is imported."""
IMPORT_PARTS = (
    "preamble",
    "distributions",
    "errors",
    "child",
    "beginnings",
    "calls",
    "bodies",
    "lines",
)
"""What the probe of imports needs of ``probes/shared/``."""
TOOLKITS = ("/usr/local/cuda*",)
"""Where images have a CUDA toolkit beside the wheels."""
OPENMP = ("libiomp5.so", "libomp.so*", "libomp-*.so*", "libiomp5-*.so*")
"""Libraries of LLVM's OpenMP: two of them end a process with "OMP: Error #15"."""
HOMES = ("/root",)
"""Home folders of an image into which a definition may have installed by mistake."""
OTHER_CODE = ("[!n]*/*.so", "n[!v]*/*.so", "*.so")
"""Every shared object but NVIDIA's wheels', which hold code for all GPUs of their toolkit."""


@frozen_record
class ProbeRequest:
    """A script to run in the image.

    ``limit`` in seconds, ``parts`` are prepended (``probes/shared/``).
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    parts: Texts = ("preamble",)
    limit: float = 120.0


def static_request(expected: Expected) -> ProbeRequest:
    """Ask what is installed; above "quick" every protected file is hashed."""
    tables = load_frameworks()
    modules = [item.module for item in tables.framework] + [
        item.module for item in tables.exclusive
    ]
    return ProbeRequest(
        name="static_probe",
        parameters={
            "protected": expected.protected,
            "hashed": frameworks_patterns(),
            "hash_limit": HASH_LIMIT,
            "hash_all": expected.level != "quick",
            "modules": sorted(set(modules)),
            "direct": expected.direct,
            "homes": HOMES,
            "frameworks": [item.module for item in tables.framework],
        },
        parts=("preamble", "distributions", "damage"),
        limit=600.0,
    )


def libraries_request() -> ProbeRequest:
    """Ask which shared libraries are found, and where those that any framework would open are."""
    opened = {
        item.module: {
            "openers": item.openers,
            "before": item.before,
            "names": lookup.opened_by(item),
        }
        for item in load_frameworks().framework
        if item.opens or item.linked
    }
    parameters = {
        "wanted": opened,
        "families": FAMILIES,
        "toolkits": TOOLKITS,
        "driver": load_sonames().driver,
        "optional": [row.object for row in load_sonames().optional],
    }
    parts = ("preamble", "elf", "loader", "symbols")
    return ProbeRequest(name="libraries_probe", parameters=parameters, parts=parts, limit=300.0)


def conda_request(expected: Expected) -> ProbeRequest:
    """Ask what the conda environment holds."""
    parameters = {
        "prefix": expected.conda_prefix,
        "locked": tuple(expected.conda),
        "openmp": OPENMP,
        "driver": load_sonames().driver,
    }
    parts = ("preamble", "elf", "loader")
    return ProbeRequest(name="conda_probe", parameters=parameters, parts=parts, limit=300.0)


def imports_request(
    expected: Expected,
    uses: Mapping[str, Texts] | None = None,
    *,
    gpu: bool = False,
    compiles: bool = False,
    written: Mapping[str, Texts] | None = None,
    needed: Iterable[Name] = (),
) -> ProbeRequest:
    """Ask whether the framework, the direct requirements and the recipe's own list import.

    ``uses`` are further modules with names of each: they are tried where a
    distribution in the image has them.  Above "quick", programs are tried that want a driver too,
    under one that can do nothing (stub_driver), unless this machine has a real one (``gpu``).
    ``compiles`` says that the project uses torch.compile or Triton, which have programs too;
    others are for names that the project takes, for packages that were asked for, or for what the
    project has in its text (``written``: the expression and what it found), or calls in each of its
    programs (``needed``).
    """
    used, found = dict(uses or {}), dict(written or {})
    stub = expected.level != "quick" and not gpu
    rows = _marked_entries(expected, found, stub=stub, compiles=compiles)
    environment = {row.sets: found[row.written][0] for row in rows if row.sets}
    calls = {row.name: _calls_of(row, needed) for row in rows}
    entries: list[EntryPoint] = []
    for row in rows:
        if row.calls and not calls[row.name]:
            continue
        is_used = not row.takes or bool({*row.takes} & {*used.get(row.module, ())})
        is_named = any(lookup.matches(name, row.dists) for name in expected.direct)
        imported = {name.partition(".")[0] for name in used}
        if row.used and not (is_named or row.module in imported or expected.alone):
            continue
        if is_used and (is_named or not row.asked):
            whole = not row.parts or is_named or row.module in used
            entries.append(msgspec.structs.replace(row, parts=not whole))
    frameworks = [item.module for item in _candidates(expected)]
    lines = [row for row in load_import_lines().line if gpu or not row.gpu]
    return ProbeRequest(
        name="import_probe",
        parameters={
            "frameworks": frameworks,
            "direct": None if expected.alone else expected.direct,
            "modules": expected.imports,
            "uses": used,
            "needed": sorted(expected.needed),
            "entries": msgspec.to_builtins(entries),
            "found": found,
            "calls": calls,
            "environment": environment,
            "lines": msgspec.to_builtins(lines),
            **_removed_methods(),
            "limit": IMPORT_SECONDS,
        },
        parts=(*IMPORT_PARTS, "stub_driver") if stub else IMPORT_PARTS,
        limit=IMPORT_SECONDS * (len(expected.direct) + len(expected.imports) + len(used) + 2)
        + 30.0,
    )


def _marked_entries(
    expected: Expected, found: Mapping[str, Texts], *, stub: bool, compiles: bool
) -> list[EntryPoint]:
    """Return the rows that are tried at this level and for this project; each mark narrows."""
    deep = expected.level != "quick"
    rows: list[EntryPoint] = []
    for row in load_entry_points().entry:
        if (row.full and not deep) or (row.driver and not stub):
            continue
        if (row.compiles and not compiles) or (row.written and row.written not in found):
            continue
        rows.append(row)
    return rows


def _removed_methods() -> dict[str, object]:
    """Return the methods that classes had once, and the class of what functions make."""
    rows = load_removed().removed
    made: dict[str, str] = {}
    for row in rows:
        made |= dict.fromkeys(row.made, row.holder)
    return {"removed": {row.holder: row.names for row in rows}, "made": made}


def _calls_of(entry: EntryPoint, needed: Iterable[Name]) -> list[str]:
    """Return the arguments of the calls that a row is for and each program makes, as written.

    Then come the name that is called, as a word without a name, and its outermost package as "@".
    """
    found: list[str] = []
    for module, name in sorted(needed) if entry.calls else ():
        called = f"{module}:{ARGUMENTS.sub('()', name)}"
        if any(fnmatchcase(called, pattern) for pattern in entry.calls):
            path, _, shape = name.rpartition("(")
            package = module.partition(".")[0]
            found.append(f"{shape.rstrip(')')},={quote(path, safe='')},@={package}")
    return found


def code_request(expected: Expected, *, gpu: bool) -> ProbeRequest | None:
    """Ask for which GPUs the framework holds code; above "quick", or without one, all packages.

    None where no GPU is in question.
    """
    deep = expected.level != "quick" and gpu
    if not deep and (expected.target is None or expected.target.capability is None):
        return None
    files: list[str] = []
    for item in _candidates(expected):
        files += item.code
    # nothing of a known framework stands for the other packages
    has_none = expected.framework is None and not expected.alone
    if expected.level != "quick" or has_none:
        files += OTHER_CODE
    limit = 240
    parameters = {
        "files": tuple(files),
        "prefix": expected.conda_prefix if has_none else "",
        # CUDA's own libraries are judged by their version
        "left_out": sorted(load_conda().libraries),
        "limit": limit,
    }
    return ProbeRequest(name="fatbin_probe", parameters=parameters, limit=limit + 30.0)


def plain_request() -> ProbeRequest:
    """Ask what of the caller comes in under a plain exec."""
    variables = ("PYTHONPATH", "LD_LIBRARY_PATH", *CONDA)
    return ProbeRequest(
        name="plain_probe",
        parameters={"modules": (USER_MODULE, PATH_MODULE), "variables": variables},
        limit=60.0,
    )


def driver_request() -> ProbeRequest:
    """Ask the driver."""
    return ProbeRequest(name="driver_probe", limit=60.0)


def compute_request(probe: str, level: Level, gpus: int) -> ProbeRequest:
    """Ask a framework, by its probe, to do a level's tasks on every GPU.

    ``gpus`` is how many the driver shows.
    """
    parameters = {"size": 1024, "tasks": TASKS[level], "seconds": SOAK_SECONDS, "gpus": gpus}
    limit = COMPUTE_LIMIT[level] + (SOAK_SECONDS * max(gpus, 1) if level == "soak" else 0)
    return ProbeRequest(
        name=probe, parameters=parameters, parts=("preamble", "compute"), limit=limit
    )


def _candidates(expected: Expected) -> tuple[Framework, ...]:
    """Return the expected framework, or all known ones where none is expected."""
    return (expected.framework,) if expected.framework else load_frameworks().framework
