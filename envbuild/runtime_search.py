"""Find the container runtime of this machine, and measure what it can do here."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from envbuild.cage import find_cage
from envbuild.errors import HostError
from envbuild.failures import find_known
from envbuild.host import Host, network_namespaces_work, read_host
from envbuild.names import Numbers, Texts, Variables
from envbuild.records import replace
from envbuild.run import Command, Runner
from envbuild.runtime import Runtime, handed_on
from envbuild.settings import Settings
from envbuild.tools import find_runtime_program, too_old_error

MINIMUM = {"apptainer": (1, 1), "singularity": (3, 10)}
"""Oldest versions that take a variable's value as it is; earlier ones evaluate it (--no-eval)."""
KEPT = (
    "CACHEDIR",
    "TMPDIR",
    "CONFIGDIR",
    "KEYSDIR",
    "DISABLE_CACHE",
    "DOCKER_USERNAME",
    "DOCKER_PASSWORD",
)
"""The runtime's settings that a user may make; all others (BIND, NV, …) would change what runs."""
SQUASHFUSE = ("squashfuse_ll", "squashfuse")


def find_runtime(settings: Settings, runner: Runner, host: Host | None = None) -> Runtime:
    """Find the runtime: the configured program, else apptainer, else singularity on PATH.

    Raises HostError when there is none, when it does not start, and when it is older than MINIMUM.
    """
    program = find_runtime_program(settings)
    # leave out the caller's settings of the runtime, but for those in KEPT
    environment = {}
    for key, value in settings.environment.items():
        setting = re.fullmatch(r"(?:APPTAINER|SINGULARITY)(?:ENV)?_(.*)", key)
        if setting is None or (setting[1] in KEPT and "ENV_" not in key):
            environment[key] = value
    trial = Command(argv=(str(program), "--version"), env=environment, timeout=30)
    answer = runner(trial, check=False)
    name, version = parse_version(
        answer.stdout, where=str(program), failed=answer.code != 0, stderr=answer.stderr
    )
    if version < MINIMUM[name]:
        hint = "look for a newer one (module avail apptainer), or name it: ENVBUILD_RUNTIME=/path/to/apptainer"
        raise too_old_error(name, version, MINIMUM[name], program, hint)
    facts = host or read_host()
    return Runtime(
        program=program,
        name=name,
        version=version,
        flags=_flags(program, name, environment, facts, runner),
        environment=environment,
        offline=network_namespaces_work(),
        # with the variables of what runs there: a preloaded library may not be readable in it
        cage=find_cage(facts, runner, replace(trial, env=handed_on(environment))),
    )


def parse_version(
    text: str, *, where: str, failed: bool = False, stderr: str = ""
) -> tuple[str, Numbers]:
    """Read "apptainer version 1.4.5-1.el9" or "singularity-ce version 4.1.0"; else HostError."""
    found = re.search(
        r"\b(apptainer|singularity)(?:-ce|-pro)? version (\d{1,9}(?:\.\d{1,9})*)", text
    )
    if failed or found is None:
        if known := find_known(stderr):
            raise HostError(known.what, where=where, hint=known.advice)
        message = next(iter((stderr or text).strip().splitlines()), "nothing")
        raise HostError(
            f"this is not a working Apptainer or Singularity; --version said: {message}",
            where=where,
        )
    return found[1], tuple(map(int, found[2].split(".")))


def _flags(program: Path, name: str, env: Variables, host: Host, runner: Runner) -> Texts:
    """Return what makes ``exec`` work on this host.

    Root that lacks a capability must take the way of ordinary users; and where one of those cannot
    open /dev/fuse, an Apptainer that is not setuid has to unpack the image (Singularity does so by
    itself).
    """
    if host.crippled_root:
        return ("--userns",)
    if (
        host.uid != 0
        and not host.fuse
        and name == "apptainer"
        and not _built_setuid(program, env, runner)
    ):
        return ("--unsquash",)
    return ()


def is_setuid(runtime: Runtime, runner: Runner) -> bool:
    """Tell whether this runtime is setuid root: then it runs images without user namespaces."""
    return _built_setuid(runtime.program, runtime.environment, runner)


def find_squashfuse(runtime: Runtime) -> str | None:
    """Return the program that mounts images for those who may not ask the kernel to.

    A runtime may have its own.
    """
    bundled = runtime.program.resolve().parent.parent / "libexec" / runtime.name / "bin"
    places = f"{runtime.environment.get('PATH', '')}:{bundled}"
    return next((found for name in SQUASHFUSE if (found := shutil.which(name, path=places))), None)


def _built_setuid(program: Path, env: Variables, runner: Runner) -> bool:
    built = runner(
        Command(argv=(str(program), "buildcfg"), env=env, timeout=30), check=False
    ).stdout
    return "SUID_INSTALL=1" in built
