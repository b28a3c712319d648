"""Wheels of source archives: built once inside the base, without a network, and kept."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from importlib import resources
from pathlib import Path
from typing import Any

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from envbuild import limits
from envbuild.build.in_base.container import BaseContainer
from envbuild.build.in_base.exchange import (
    GIVEN,
    INSIDE,
    give_file,
    make_open,
    open_exchange,
    open_tree,
    result_names,
    take_file,
)
from envbuild.data.lookup import NVCC_BASE
from envbuild.data.tables import load_failures
from envbuild.errors import IntegrityError, ToolFailedError, UsageError
from envbuild.limits import reading
from envbuild.lock.model import PythonPackage
from envbuild.names import Texts
from envbuild.parts.cache import part_key
from envbuild.progress import Stage
from envbuild.records import frozen_record
from envbuild.store.atomic import os_errors_as
from envbuild.store.hashing import hash_bytes
from envbuild.store.layout import Store
from envbuild.store.sealed import commit_sealed, is_sealed, sealed_hash
from envbuild.tarread import archive_members
from envbuild.toml import parse_toml

INSTALLER = "uv"
"""Locked as a tool of the written definition; building needs none of it."""
PYPROJECT = re.compile(r"[^/]*/pyproject\.toml")
"""Its path in an archive that has one top folder."""
WHEEL_LIMIT = 1 << 34
"""Bytes of a wheel that was built, at most.

Four times what a zip without its 64-bit extension can hold.
"""


@frozen_record
class BuildNeeds:
    """What building depends on beside the archive.

    The digest of the root it runs in, the packages, the epoch.
    """

    root: str
    packages: tuple[PythonPackage, ...]
    epoch: int


def wheel_key(package: PythonPackage, needs: BuildNeeds) -> str:
    """Return the key of the wheel that a source archive gives."""
    script = (
        resources.files("envbuild.build.in_base.scripts").joinpath("build_wheel.py").read_bytes()
    )
    return part_key(
        "sdist",
        sdist=package.sha256,
        root=needs.root,
        packages=sorted(p.sha256 for p in needs.packages),
        epoch=needs.epoch,
        script=hash_bytes(script),
    )


def build_wheels(
    packages: Sequence[PythonPackage],
    needs: BuildNeeds,
    inside: BaseContainer,
    store: Store,
    stage: Stage,
) -> dict[str, Texts]:
    """Build the wheels of source archives and keep them under their keys.

    Return what they require beyond what their archives say, by package. What building needs and is
    there as source only is built first. Each is built in a run of its own, so that none can change
    what another one gives. Raises ToolFailedError with the backend's last lines, IntegrityError
    when another version came out, UsageError where archives need each other.
    """
    # one folder of build tools for all runs, which none of them can write to
    tools = inside.folder / "tools"
    make_open(tools / "lib")
    needed = [package for package in needs.packages if package.name != INSTALLER]
    for tool in needed:
        if not tool.is_sdist:
            _install_tool(tool.file, store.artifact(tool.sha256), tool.sha256, tools, inside)
    # tools that come as source are built first, each with those before it
    for tool in _build_order([tool for tool in needed if tool.is_sdist], store):
        kept = store.built(wheel_key(tool, needs))
        if not is_sealed(kept):
            _build_sdist(tool, needs, inside, store)
        kept = store.built(wheel_key(tool, needs))
        _install_tool(built_name(tool), kept, sealed_hash(kept), tools, inside)
    required = {}
    for package in packages:
        required[package.name] = _build_sdist(package, needs, inside, store)
        stage.advance()
    return required


def _build_order(tools: Sequence[PythonPackage], store: Store) -> list[PythonPackage]:
    """Return source archives so that each comes after those that its pyproject.toml asks for."""
    named = {canonicalize_name(tool.name): tool for tool in tools}
    wanted = {}
    for name, tool in sorted(named.items()):
        system = _read_pyproject(store.artifact(tool.sha256), tool.file).get("build-system")
        requires = system.get("requires", []) if isinstance(system, dict) else []
        lines = [str(line) for line in requires] if isinstance(requires, list) else []
        found = {canonicalize_name(re.split(r"[^A-Za-z0-9._-]", line.strip())[0]) for line in lines}
        wanted[name] = sorted(found & named.keys() - {name})
    try:
        return [named[name] for name in TopologicalSorter(wanted).static_order()]
    except CycleError as error:
        raise UsageError(
            f"these source packages need each other to be built: {', '.join(error.args[1])}",
            hint="take versions of which one has a wheel",
        ) from error


def _build_sdist(
    package: PythonPackage, needs: BuildNeeds, inside: BaseContainer, store: Store
) -> Texts:
    with open_exchange(inside.folder) as between:
        archive = between.given / "archives" / package.file
        give_file(store.artifact(package.sha256), archive, package.sha256)
        # PEP 517: a script of ours calls the backend inside, offline and without isolation
        job = {
            "name": package.file,
            "archive": f"{GIVEN}/archives/{package.file}",
            "out": f"{INSIDE}/out",
            **_read_backend(archive, package.file),
            "environment": {package.version_variable: package.version}
            if package.version_variable
            else {},
        }
        between.write("build.json", json.dumps(job).encode())
        tools = ((inside.folder / "tools", "tools"),)
        try:
            inside.run(
                "build_wheel.py",
                f"{GIVEN}/build.json",
                between=between,
                env=_build_environment(needs),
                more=tools,
            )
        except ToolFailedError as error:
            raise ToolFailedError.of(
                error,
                f"{package.file} could not be built: {error.what}",
                hint=error.hint or build_hint(f"{error.stderr}\n{error.stdout}"),
            ) from error
        return _keep_wheel(package, wheel_key(package, needs), between.out, store)


def _build_environment(needs: BuildNeeds) -> dict[str, str]:
    return {
        "PYTHONPATH": f"{INSIDE}/tools/lib",
        "PATH": f"{INSIDE}/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": str(needs.epoch),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "HOME": "/tmp",  # noqa: S108  (the container's own)
    }


def _install_tool(
    name: str, kept: Path, sha256: str | None, tools: Path, inside: BaseContainer
) -> None:
    """Install a wheel that building needs into a folder that no run may write to."""
    folders = {
        "purelib": "lib",
        "platlib": "lib",
        "scripts": "bin",
        "headers": "include",
        "data": ".",
    }
    destination = SchemeDictionaryDestination(
        {scheme: str(tools / folder) for scheme, folder in folders.items()}, inside.python, "posix"
    )
    file = tools.parent / "tool.whl"
    give_file(kept, file, sha256)
    with os_errors_as(tools), zipfile.ZipFile(file) as archive:
        archive.filename = name
        install(WheelFile(archive), destination, {})
        open_tree(tools)
    file.unlink()


def _read_backend(archive: Path, name: str) -> dict[str, object]:
    """Read which backend a source archive names in its pyproject.toml."""
    from envbuild.resolve.sources.pep517 import backend_of  # slow, and only source packages need it

    named = backend_of(_read_pyproject(archive, name))
    if named is None:
        raise IntegrityError("its pyproject.toml names no proper build-backend", where=name)
    return {"backend": named[0], "backend-path": named[1]}


def _read_pyproject(archive: Path, name: str) -> dict[str, Any]:
    """Return what the pyproject.toml in an archive's one top folder says, nothing without one."""
    with reading("this source archive cannot be read", name):
        text = _pyproject_text(archive, name)
    return parse_toml(text, f"{name}/pyproject.toml") if text else {}


def _pyproject_text(archive: Path, name: str) -> str | None:
    for member, read_member in archive_members(archive, as_zip=name.endswith(".zip")):
        if PYPROJECT.fullmatch(member.removeprefix("./")):
            content = read_member(limits.TEXT)
            if content is not None:
                return content.decode()
    return None


def _keep_wheel(package: PythonPackage, key: str, out: Path, store: Store) -> Texts:
    """Keep a built wheel; return the names that it requires and its archive does not say."""
    from envbuild.resolve.sources.artifacts import note_built  # late: only source packages need it
    from envbuild.resolve.sources.metadata import wheel_headers

    built = [name for name in result_names(out, "out") if name.endswith(".whl")]
    # the archive decides what its build leaves:
    # exactly one wheel is taken, and its name is checked
    if len(built) != 1:
        raise IntegrityError("its build gave no wheel", where=package.file)
    try:
        name, version, _, _ = parse_wheel_filename(built[0])
    except InvalidWheelFilename as error:
        raise IntegrityError(
            f"its build gave no proper wheel: {error}", where=package.file
        ) from error
    if name != canonicalize_name(package.name) or version != Version(package.version):
        raise IntegrityError(
            f"its build gave {built[0]}, not version {package.version}", where=package.file
        )
    with store.work("built") as work:
        take_file(out, f"out/{built[0]}", work / "wheel", limit=WHEEL_LIMIT)
        with os_errors_as(work), (work / "wheel").open("rb") as wheel:
            requires = wheel_headers(wheel, built[0]).requires
        new = note_built(package.sha256, requires, store)
        commit_sealed(work / "wheel", store.own(store.built(key)))
    return new


def built_name(package: PythonPackage) -> str:
    """Return a wheel file name for the wheel of a source archive.

    Only its first two fields count.
    """
    name = package.name.replace("-", "_")
    return f"{name}-{package.version}-py3-none-any.whl"


UNKNOWN = "compilers and headers that it needs belong into [system] build-packages"


def build_hint(output: str) -> str:
    """Return what to do about a failed build."""
    for known in load_failures().build:
        found = re.search(known.pattern, output)
        if found is not None:
            return known.hint.format(nvcc_base=NVCC_BASE, **found.groupdict())
    return UNKNOWN
