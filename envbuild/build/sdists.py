"""Wheels of source archives: built once inside the base, without a network, and kept."""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from importlib import resources
from pathlib import Path

from envbuild.build.container import INSIDE, Container, lay_file
from envbuild.build.parts import part_key
from envbuild.errors import IntegrityError, ToolFailedError, UsageError
from envbuild.lock.model import PythonPackage
from envbuild.store.atomic import commit, telling
from envbuild.store.layout import Store
from envbuild.toml import parse_toml

INSTALLER = "uv"
"""Locked as a tool of the written definition; building needs none of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildNeeds:
    """What building depends on beside the archive: the digest of the root it runs in, the packages, the epoch."""

    root: str
    packages: tuple[PythonPackage, ...]
    epoch: int


def wheel_key(package: PythonPackage, needs: BuildNeeds) -> str:
    """Return the key of the wheel that a source archive gives."""
    script = resources.files("envbuild.build.inside").joinpath("build_wheel.py").read_bytes()
    return part_key(
        "sdist",
        sdist=package.sha256,
        root=needs.root,
        packages=sorted(p.sha256 for p in needs.packages),
        epoch=needs.epoch,
        script=hashlib.sha256(script).hexdigest(),
    )


def build_wheels(packages: Sequence[PythonPackage], needs: BuildNeeds, inside: Container, store: Store) -> None:
    """Build the wheels of source archives and keep them under their keys.

    What building needs and is there as source only is built first.  Raises ToolFailedError with the backend's last
    lines, IntegrityError when another version came out, UsageError where archives need each other.
    """
    _lay_tools([(p.file, store.artifact(p.sha256)) for p in needs.packages if _is_tool(p) and not p.is_sdist], inside)
    for tool in _in_order([p for p in needs.packages if _is_tool(p) and p.is_sdist], store):
        kept = store.built(wheel_key(tool, needs))
        if not kept.is_file():
            _build([tool], needs, inside, store)
        _lay_tools([(built_name(tool), store.built(wheel_key(tool, needs)))], inside)
    _build(packages, needs, inside, store)


def _is_tool(package: PythonPackage) -> bool:
    return package.name != INSTALLER


def _in_order(tools: Sequence[PythonPackage], store: Store) -> list[PythonPackage]:
    """Return source archives so that each comes after those that its pyproject.toml asks for."""
    named = {re.sub(r"[-_.]+", "-", tool.name).lower(): tool for tool in tools}
    wanted = {}
    for name, tool in sorted(named.items()):
        text = _read_top(store.artifact(tool.sha256), tool.file, "pyproject.toml")
        system = parse_toml(text, f"{tool.file}/pyproject.toml").get("build-system") if text else None
        requires = system.get("requires", []) if isinstance(system, dict) else []
        lines = [str(line) for line in requires] if isinstance(requires, list) else []
        found = {re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", line.strip())[0]).lower() for line in lines}
        wanted[name] = sorted(found & named.keys() - {name})
    try:
        return [named[name] for name in TopologicalSorter(wanted).static_order()]
    except CycleError as error:
        raise UsageError(
            f"these source packages need each other to be built: {', '.join(error.args[1])}",
            hint="take versions of which one has a wheel",
        ) from error


def _build(packages: Sequence[PythonPackage], needs: BuildNeeds, inside: Container, store: Store) -> None:
    jobs = []
    for package in packages:
        archive = store.artifact(package.sha256)
        lay_file(archive, inside.folder / "archives" / package.file)
        (inside.folder / "out" / package.name).mkdir(parents=True)
        jobs.append(
            {
                "name": package.file,
                "archive": f"{INSIDE}/archives/{package.file}",
                "out": f"{INSIDE}/out/{package.name}",
                **_backend(archive, package.file),
                "environment": {package.version_variable: package.version} if package.version_variable else {},
            }
        )
    (inside.folder / "build.json").write_text(json.dumps(jobs), "utf-8")
    try:
        inside.run("build_wheel.py", f"{INSIDE}/build.json", env=_environment(needs))
    except ToolFailedError as error:
        named = [line[9:] for line in error.stdout.splitlines() if line.startswith("building ")]
        raise ToolFailedError(
            f"{named[-1] if named else 'a source package'} could not be built: {error.what}",
            argv=error.argv,
            exit_code=error.exit_code,
            stdout=error.stdout,
            stderr=error.stderr,
            hint=error.hint or "compilers and headers that it needs belong into [system] build-packages",
        ) from error
    for package in packages:
        _keep(package, wheel_key(package, needs), inside.folder / "out" / package.name, store)


def _environment(needs: BuildNeeds) -> dict[str, str]:
    return {
        "PYTHONPATH": f"{INSIDE}/tools/lib",
        "PATH": f"{INSIDE}/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": str(needs.epoch),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "HOME": "/tmp",  # noqa: S108  (the container's own)
    }


def _lay_tools(wheels: Sequence[tuple[str, Path]], inside: Container) -> None:
    """Install wheels (file name and where it is) that building needs into a folder of their own."""
    from installer import install
    from installer.destinations import SchemeDictionaryDestination
    from installer.sources import WheelFile

    tools = inside.folder / "tools"
    folders = {"purelib": "lib", "platlib": "lib", "scripts": "bin", "headers": "include", "data": "."}
    destination = SchemeDictionaryDestination(
        {scheme: str(tools / folder) for scheme, folder in folders.items()}, inside.python, "posix"
    )
    (tools / "lib").mkdir(parents=True, exist_ok=True)
    for name, file in wheels:
        with telling(tools), zipfile.ZipFile(file) as archive:
            archive.filename = name
            install(WheelFile(archive), destination, {})


def _backend(archive: Path, name: str) -> dict[str, object]:
    """Read which backend a source archive names in its pyproject.toml."""
    from envbuild.resolve.hooks import backend_of  # slow, and only source packages need it

    text = _read_top(archive, name, "pyproject.toml")
    named = backend_of(parse_toml(text, f"{name}/pyproject.toml") if text else {})
    if named is None:
        raise IntegrityError("its pyproject.toml names no proper build-backend", where=name)
    return {"backend": named[0], "backend-path": named[1]}


def _read_top(archive: Path, name: str, file: str) -> str | None:
    """Return a text file of an archive's one top folder, None where it has none."""
    try:
        if name.endswith(".zip"):
            with zipfile.ZipFile(archive) as zipped:
                found = next((n for n in zipped.namelist() if n.count("/") == 1 and n.endswith(f"/{file}")), None)
                return zipped.read(found).decode() if found else None
        with tarfile.open(archive) as tar:
            for member in tar:
                inner = member.name.removeprefix("./")
                if inner.count("/") == 1 and inner.endswith(f"/{file}") and member.isfile():
                    stream = tar.extractfile(member)
                    return stream.read().decode() if stream else None
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, UnicodeDecodeError, OSError) as error:
        raise IntegrityError(f"this source archive cannot be read: {error}", where=name) from error
    return None


def _keep(package: PythonPackage, key: str, folder: Path, store: Store) -> None:
    from packaging.utils import canonicalize_name, parse_wheel_filename
    from packaging.version import Version

    built = sorted(folder.glob("*.whl"))
    if len(built) != 1:
        raise IntegrityError("its build gave no wheel", where=package.file)
    name, version, _, _ = parse_wheel_filename(built[0].name)
    if name != canonicalize_name(package.name) or version != Version(package.version):
        raise IntegrityError(f"its build gave {built[0].name}, not version {package.version}", where=package.file)
    commit(built[0], store.built(key))


def built_name(package: PythonPackage) -> str:
    """Return a wheel file name for the wheel of a source archive: only its first two fields count."""
    name = package.name.replace("-", "_")
    return f"{name}-{package.version}-py3-none-any.whl"
