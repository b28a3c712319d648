"""Look into source archives for what compiling takes: framework, nvcc, headers."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Collection
from itertools import chain
from pathlib import Path

from packaging.utils import canonicalize_name

from envbuild.base.model import BaseFacts
from envbuild.data.lookup import NVCC_BASE, is_framework
from envbuild.data.package_tables import SystemNeeds, load_names
from envbuild.errors import IntegrityError
from envbuild.limits import reading
from envbuild.lock.decide.base_description import BaseDescription
from envbuild.names import Texts
from envbuild.recipe.model import Recipe
from envbuild.records import frozen_record, replace
from envbuild.resolve.model import Found, Resolution
from envbuild.store.layout import Store
from envbuild.tarread import archive_members

SETUP_BYTES = 400_000
GPU_BUILD = re.compile(r"CUDAExtension|nvcc|CUDA_HOME|CUDAToolkit|FORCE_CUDA")
KERNEL = re.compile(r"""["']([\w./-]+\.cu)["']""")
SOURCES = (".c", ".cc", ".cpp", ".cxx", ".pyx", ".f", ".f90")
C_BUILD = re.compile(r"Extension\(|ext_modules|cffi_modules|skbuild|scikit.build|mesonpy|pybind11")
RUST_BUILD = re.compile(r"maturin|setuptools.rust|rust_extensions")
C_COMPILER = re.compile(r"(gcc|g\+\+|clang|build-essential)(-[\d.]+)?")
C_TOOLS = ("gcc", "g++", "python3-dev")
RUST_TOOLS = ("cargo", "gcc", "libc6-dev")
NOTHING = SystemNeeds()
IMPORTS = re.compile(r"^[ \t]*(?:import|from)\s+([A-Za-z_]\w*)", re.MULTILINE)


@frozen_record
class _Compiling:
    """What building one archive takes; ``imports`` are frameworks that its setup.py imports.

    ``lacks`` is code for the GPU that its setup.py names and the archive has not; ``tools`` are
    Debian packages of the compilers that it calls.
    """

    package: Found
    nvcc: bool
    tools: Texts
    imports: Texts
    lacks: str | None = None


def with_compiling(
    resolution: Resolution,
    recipe: Recipe,
    base: BaseDescription,
    brought: Collection[Found],
    store: Store,
) -> Resolution:
    """Return a resolution with what its source archives need to be built.

    ``brought`` is all that the lock brings.  Resolving has put the archives into the store; nothing
    of them is run.
    """
    archives = (
        (package, store.artifact(package.file.sha256))
        for package in resolution.packages
        if package.is_sdist
    )
    found = [_look_into(package, path) for package, path in archives if path.is_file()]
    notes = _compile_notes(found, recipe, base.under or base.facts)
    names = _at_hand(found, brought) if base.framework else frozenset()
    return replace(
        resolution,
        notes=(*resolution.notes, *notes),
        build=(*resolution.build, *(package for package in brought if package.name in names)),
    )


def _compile_notes(found: Collection[_Compiling], recipe: Recipe, facts: BaseFacts) -> Texts:
    """Return what a build will miss: nvcc, a compiler, or known Debian packages.

    Wheels bring no nvcc: nvidia-cuda-nvcc-cu11 and -cu12 hold ptxas alone, and nvidia-cuda-nvcc 13
    has it where no build looks (read in the wheels 11.8.89, 12.8.93 and 13.0.88).
    """
    debian = {
        *recipe.system.packages,
        *recipe.system.build_packages,
        *(package.name for package in facts.apt),
    }
    has_nvcc = any(
        name.startswith(("cuda-nvcc", "cuda-compiler", "nvidia-cuda-toolkit")) for name in debian
    )
    known = load_names().system
    notes = []
    for one in found:
        named = f"{one.package.name} {one.package.version}"
        if one.lacks:
            notes.append(
                f"{named} cannot be compiled: its archive lacks {one.lacks}.  Its setup.py downloads "
                "its makers' wheel, and a build has no network: take another release, or their "
                "wheels by an index of your own ([python] indexes)"
            )
        elif one.nvcc and not has_nvcc:
            notes.append(
                f"{named} is compiled for the GPU when the image is built: it needs nvcc, and "
                f"the base has none. Take {NVCC_BASE}, or its makers' wheels by an index of "
                "your own ([python] indexes)"
            )
        row = known.get(one.package.name, NOTHING)
        if row.compiles and not has_nvcc:
            notes.append(
                f"{named} compiles {row.compiles} with nvcc when it runs, and the base has none: "
                f"take {NVCC_BASE}, and {' and '.join(row.packages)} of [system]"
            )
        # what compiles when it runs compiles nothing before
        found_out = () if one.nvcc or row.compiles else _missing_tools(one, recipe, debian)
        gone = [name for name in row.build or found_out if name not in debian]
        if gone:
            names = ", ".join(gone)
            notes.append(
                f"{named} is compiled when the image is built: add {names} to [system] "
                "build-packages"
            )
    return tuple(notes)


def _missing_tools(one: _Compiling, recipe: Recipe, debian: Collection[str]) -> Texts:
    """Return the compilers of an archive, where a Debian base has none."""
    bootstrap = recipe.base.bootstrap is not None
    has_compiler = one.tools == C_TOOLS and any(map(C_COMPILER.fullmatch, debian))
    if has_compiler or not (bootstrap or debian):
        return ()
    # an image's Python mostly has its headers
    return tuple(name for name in one.tools if bootstrap or name != C_TOOLS[-1])


def _at_hand(found: Collection[_Compiling], brought: Collection[Found]) -> frozenset[str]:
    """Return what has to be there for these builds: frameworks, and what those require."""
    known = {package.name for package in brought}
    todo = [name for name in chain.from_iterable(one.imports for one in found) if name in known]
    seen: set[str] = set()
    # what a framework requires has to be there with it
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += [package.name for package in brought if name in package.via]
    return frozenset(seen)


def _look_into(package: Found, path: Path) -> _Compiling:
    try:
        with reading("this source archive cannot be read", path.name):
            names, setup = _archive_members(path)
    except IntegrityError:
        names, setup = (), ""  # resolving has read it, or said why not
    code = {name for name in names if name.endswith(".cu")}
    named = KERNEL.findall(setup)
    lacks = next((one for one in named if not code), None)
    nvcc = bool(code or lacks) and GPU_BUILD.search(setup) is not None
    in_c = C_BUILD.search(setup) and any(name.endswith(SOURCES) for name in names)
    tools = C_TOOLS if in_c else ()
    tools = RUST_TOOLS if RUST_BUILD.search(setup) else tools
    imports = sorted({canonicalize_name(name) for name in IMPORTS.findall(setup)})
    return _Compiling(
        package=package,
        nvcc=nvcc,
        tools=tools,
        imports=tuple(name for name in imports if is_framework(name)),
        lacks=lacks if nvcc else None,
    )


def _archive_members(path: Path) -> tuple[Texts, str]:
    """Return the names in an archive, and the text of its own setup.py (or pyproject.toml)."""
    names, texts = [], []
    for name, read_member in archive_members(path, as_zip=zipfile.is_zipfile(path)):
        names.append(name)
        content = read_member(SETUP_BYTES) if _is_setup(name) else None
        if content is not None:
            texts.append(content.decode("utf-8", "replace"))
    return tuple(names), "\n".join(texts)


def _is_setup(name: str) -> bool:
    return name.count("/") == 1 and name.endswith(("/setup.py", "/pyproject.toml"))
