"""Other people's programs that envbuild calls: where they are, which version, and how to get a missing one."""

from __future__ import annotations

import functools
import re
import shutil
import sys
from pathlib import Path

from uv import find_uv_bin

from envbuild.errors import HostError
from envbuild.names import Numbers, Texts, Variables
from envbuild.records import frozen_record
from envbuild.run import Command, Runner
from envbuild.settings import Settings
from envbuild.store.units import join_numbers


@functools.cache
def installed_version(name: str) -> str:
    """Return the version of a distribution beside envbuild, by its folder's name: its metadata takes longer to read.

    Raises importlib.metadata's PackageNotFoundError.
    """
    for folder in map(Path, sys.path):
        for found in folder.glob(f"{name.replace('-', '_')}-*.dist-info"):
            return found.name.removesuffix(".dist-info").partition("-")[2]
    import importlib.metadata

    return importlib.metadata.version(name)


@frozen_record
class Kind:
    """A program as envbuild knows it: how it tells its version, the oldest that will do, the Debian package it is in.

    ``arguments`` is empty for a program that has no version to tell.
    """

    package: str
    arguments: Texts = ("--version",)
    minimum: Numbers = ()


KINDS = {
    # 4.4 made -reproducible the default and brought -mkfs-time
    "mksquashfs": Kind(package="squashfs-tools", arguments=("-version",), minimum=(4, 4)),
    "unsquashfs": Kind(package="squashfs-tools", arguments=("-version",), minimum=(4, 4)),
    "mmdebstrap": Kind(package="mmdebstrap", minimum=(1, 0)),
    "apt-get": Kind(package="apt", minimum=(2, 0)),
    "newuidmap": Kind(package="uidmap", arguments=()),
    "fuse-overlayfs": Kind(package="fuse-overlayfs"),
    "uv": Kind(package="", minimum=(0, 13, 8)),
}


@frozen_record
class Tool:
    """A program found on this machine; ``version`` is empty where it tells none."""

    name: str
    path: Path
    version: Numbers

    @property
    def version_text(self) -> str:
        """Return the version as people write it."""
        return join_numbers(self.version)


def find_tool(name: str, settings: Settings, runner: Runner) -> Tool:
    """Find one of KINDS and read its version; uv comes with envbuild, the others are looked up on PATH.

    Raises HostError for a program that is missing, does not start or is too old.
    """
    kind = KINDS[name]
    path = _uv() if name == "uv" else None
    path = path or _on_path(name, settings)
    if path is None:
        raise HostError(f"{name} was not found on PATH", hint=install_hint(name, settings))
    version = _version(path, kind, settings, runner)
    if version < kind.minimum:
        raise too_old_error(name, version, kind.minimum, path, install_hint(name, settings))
    return Tool(name=name, path=path, version=version)


def too_old_error(
    name: str, version: Numbers, minimum: Numbers, path: Path, hint: str
) -> HostError:
    """Return the error about a program that is older than ``minimum``."""
    found, least = join_numbers(version), join_numbers(minimum)
    what = f"{name} {found} is too old: {least} or newer is needed"
    return HostError(what, where=path, hint=hint)


def install_hint(name: str, settings: Settings) -> str:
    """Tell how to get one of KINDS."""
    if name == "uv":
        return "install envbuild together with what it needs: uv tool install envbuild, or pip install --user envbuild"
    return package_hint(KINDS[name].package, settings.environment)


def package_hint(package: str, environment: Variables) -> str:
    """Tell how to get a Debian package: as root of this system, and on a login node where nobody is root."""
    install = f"apt-get install {package}"
    if shutil.which("apt-get", path=environment.get("PATH")) is None:
        install = f"install what Debian has in its package {package}"
    return f"as root: {install}\non a login node: module avail, or ask its staff for {package}"


def _on_path(name: str, settings: Settings) -> Path | None:
    found = shutil.which(name, path=settings.environment.get("PATH"))
    return Path(found) if found else None


def _uv() -> Path | None:
    try:
        return Path(find_uv_bin())
    except FileNotFoundError:
        return None


def uv_program(settings: Settings) -> str:
    """Return the path of uv: the one installed with envbuild, else the one on PATH."""
    return str(_uv() or _on_path("uv", settings) or "uv")


def _version(path: Path, kind: Kind, settings: Settings, runner: Runner) -> Numbers:
    if not kind.arguments:
        return ()
    command = Command(argv=(str(path), *kind.arguments), env=settings.environment, timeout=30)
    result = runner(command, check=False)  # unsquashfs 4.5 ends with 1 after telling it
    found = re.search(r"\b(\d+(?:\.\d+)+)", result.stdout or result.stderr)
    if found is None:
        raise HostError(
            f"it printed no version: {result.last_lines(3) or 'no output'}",
            where=str(command),
            hint=install_hint(path.name, settings),
        )
    return tuple(map(int, found[1].split(".")))


def find_runtime_program(settings: Settings) -> Path:
    """Return the configured container runtime, else apptainer or singularity of PATH.

    HostError for none.
    """
    path = settings.environment.get("PATH")
    for name in (settings.runtime,) if settings.runtime else ("apptainer", "singularity"):
        found = shutil.which(name, path=path)
        if found:
            return Path(found)
    if settings.runtime:
        source = settings.origin.get("runtime")
        raise HostError(
            "the configured container runtime was not found", where=f"{source}: {settings.runtime}"
        )
    raise HostError(
        "neither apptainer nor singularity was found on PATH",
        hint="on a cluster: module load apptainer (or singularity), or ask its staff\n"
        "on Debian or Ubuntu, in WSL too: bash scripts/setup-debian.sh (in envbuild's sources)",
    )
