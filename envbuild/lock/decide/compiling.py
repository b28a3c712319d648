"""Look into source archives for what compiling takes: framework, nvcc, headers."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from packaging.utils import canonicalize_name

from envbuild.base.model import BaseFacts
from envbuild.data.lookup import is_framework
from envbuild.data.package_tables import load_names
from envbuild.lock.decide.base_description import BaseDescription
from envbuild.recipe.model import Recipe
from envbuild.resolve.model import Found, Resolution
from envbuild.store.layout import Store

SETUP_BYTES = 400_000
GPU_BUILD = re.compile(r"CUDAExtension|nvcc|CUDA_HOME|CUDAToolkit|FORCE_CUDA")
IMPORTS = re.compile(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiling:
    """What building one archive takes; ``imports`` are frameworks that its setup.py imports."""

    package: Found
    nvcc: bool
    imports: tuple[str, ...]


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
    notes = compile_notes(found, recipe, base.under or base.facts, brought)
    names = at_hand(found, brought) if base.framework else frozenset()
    return replace(
        resolution,
        notes=(*resolution.notes, *notes),
        build=(*resolution.build, *(package for package in brought if package.name in names)),
    )


def compile_notes(
    found: Collection[Compiling], recipe: Recipe, facts: BaseFacts, brought: Collection[Found]
) -> tuple[str, ...]:
    """Return what a build will miss: nvcc, or known Debian packages."""
    debian = {
        *recipe.system.packages,
        *recipe.system.build_packages,
        *(package.name for package in facts.apt),
    }
    has_nvcc = any(
        name.startswith(("cuda-nvcc", "cuda-compiler", "nvidia-cuda-toolkit")) for name in debian
    )
    has_nvcc = has_nvcc or any(package.name.startswith("nvidia-cuda-nvcc") for package in brought)
    known = load_names().system
    notes = []
    for one in found:
        named = f"{one.package.name} {one.package.version}"
        if one.nvcc and not has_nvcc:
            notes.append(
                f"{named} is compiled for the GPU when the image is built: it needs nvcc, and "
                "the base has none. "
                "Take a base with nvcc (a -devel image), or its makers' wheels by an index of your "
                "own "
                "([python] indexes)"
            )
        row = known.get(one.package.name)
        gone = [name for name in row.build if name not in debian] if row else []
        if gone:
            names = ", ".join(gone)
            notes.append(
                f"{named} is compiled when the image is built: add {names} to [system] "
                "build-packages"
            )
    return tuple(notes)


def at_hand(found: Collection[Compiling], brought: Collection[Found]) -> frozenset[str]:
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


def _look_into(package: Found, path: Path) -> Compiling:
    try:
        names, setup = _archive_members(path)
    except (OSError, tarfile.TarError, zipfile.BadZipFile):
        names, setup = (), ""  # resolving has read it, or said why not
    nvcc = any(name.endswith(".cu") for name in names) and GPU_BUILD.search(setup) is not None
    imports = sorted({canonicalize_name(name) for name in IMPORTS.findall(setup)})
    return Compiling(
        package=package,
        nvcc=nvcc,
        imports=tuple(name for name in imports if is_framework(name)),
    )


def _archive_members(path: Path) -> tuple[tuple[str, ...], str]:
    """Return the names in an archive, and the text of its own setup.py (or pyproject.toml)."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = tuple(archive.namelist())
            own = [name for name in names if _is_setup(name)]
            texts = [archive.open(name).read(SETUP_BYTES) for name in own]
    else:
        with tarfile.open(path) as tar:
            members = tar.getmembers()
            names = tuple(member.name for member in members)
            files = [
                tar.extractfile(member)
                for member in members
                if _is_setup(member.name) and member.isfile()
            ]
            texts = [file.read(SETUP_BYTES) for file in files if file is not None]
    return names, "\n".join(text.decode("utf-8", "replace") for text in texts)


def _is_setup(name: str) -> bool:
    return name.count("/") == 1 and name.endswith(("/setup.py", "/pyproject.toml"))
