"""The doctor on programs: the runtime, the tools of a build, the engine, and the GPU."""

from __future__ import annotations

import shutil
import sys

from envbuild.app.doctor.finding import Finding, broken, differs, fine
from envbuild.context import Context
from envbuild.errors import HostError
from envbuild.host import Host
from envbuild.run import Command
from envbuild.runtime_search import find_squashfuse, is_setuid
from envbuild.tools import find_tool, package_hint

GPU_SECONDS = 5.0
"""How long nvidia-smi may take: it wakes a GPU that sleeps."""


def examine_python() -> list[Finding]:
    """Tell the Python that runs envbuild."""
    # older ones than 3.10 cannot even install envbuild
    version = ".".join(map(str, sys.version_info[:3]))
    return [fine("Python", f"{version} ({sys.executable})")]


def examine_tool(name: str, context: Context) -> list[Finding]:
    """Look for a program and its version."""
    tool = find_tool(name, context.settings, context.runner)
    value = f"{tool.version_text} ({tool.path})" if tool.version else str(tool.path)
    return [fine(name, value)]


def examine_packer(context: Context) -> list[Finding]:
    """Look for mksquashfs, and whether it packs with zstd."""
    tool = find_tool("mksquashfs", context.settings, context.runner)
    # the list of compressors is printed for -help (to either stream, exit 0 or 1, by version)
    text = context.runner(Command(argv=(str(tool.path), "-help"), timeout=10), check=False)
    value = f"{tool.version_text} ({tool.path})"
    if "zstd" in text.stdout + text.stderr:
        return [fine("mksquashfs", f"{value}, with zstd")]
    mend = "install squashfs-tools 4.4 or newer built with zstd (Debian 12's is)"
    return [broken("mksquashfs", f"{value}, without zstd", mend)]


def examine_runtime(context: Context) -> list[Finding]:
    """Look for the container runtime, and how it has to be called here."""
    runtime = context.runtime
    kind = "setuid" if is_setuid(runtime, context.runner) else "without setuid"
    value = f"{runtime.name} {runtime.version_text}, {kind} ({runtime.program})"
    if runtime.flags:
        value += f", runs with {' '.join(runtime.flags)}"
    return [
        Finding(
            name="container runtime", verdict="differs" if runtime.flags else "fine", value=value
        )
    ]


def examine_squashfuse(context: Context, host: Host) -> Finding:
    """Look for the program that mounts images for those who may not ask the kernel to."""
    name = "squashfuse"
    try:
        runtime = context.runtime
    except HostError:  # the line of the runtime says why
        value = "not looked for: without a container runtime nothing mounts images"
        return differs(name, value)
    if (host.uid == 0 and not host.crippled_root) or is_setuid(runtime, context.runner):
        return fine(name, "not needed: the kernel mounts images here")
    found = find_squashfuse(runtime)
    if found:
        return fine(name, found)
    value = "not found: images are unpacked before each run, and overlay partitions are refused"
    return differs(name, value, package_hint(name, context.settings.environment))


def examine_engine(context: Context) -> Finding:
    """Ask for an engine, which only ``--mode docker`` and docker-daemon: bases need."""
    env = context.settings.environment
    for name in ("docker", "podman"):
        program = shutil.which(name, path=env.get("PATH"))
        if program is None:
            continue
        argv = (program, "info", "--format", "{{.ServerVersion}}")
        answer = context.runner(Command(argv=argv, env=env, timeout=10), check=False)
        if answer.code == 0:
            return fine("engine", f"{name} ({program}) answers")
        value = f"{name} ({program}) does not answer: no --mode docker, no docker-daemon: bases"
        return differs("engine", value)
    value = (
        "neither docker nor podman: no --mode docker, no docker-daemon: bases; all else needs none"
    )
    return differs("engine", value)


def examine_gpu(context: Context, host: Host) -> Finding:
    """Ask the driver for its GPUs."""
    if host.driver is None:
        value = "no NVIDIA driver here: images run on the CPU, GPU checks are skipped"
        return differs("GPU", value)
    env = context.settings.environment
    command = Command(argv=("nvidia-smi", "-L"), env=env, timeout=GPU_SECONDS)
    try:
        listed = context.runner(command, check=False)
    except HostError:
        return fine("GPU", f"NVIDIA driver {host.driver} (no nvidia-smi to name the GPUs)")
    gpus = [
        line.partition(" (UUID")[0]
        for line in listed.stdout.splitlines()
        if line.startswith("GPU ")
    ]
    if listed.code != 0 or not gpus:
        value = f"NVIDIA driver {host.driver}, but no GPU answers: {listed.last_lines(1)}"
        return differs("GPU", value, "on a cluster: ask the scheduler for a GPU")
    return fine("GPU", f"NVIDIA driver {host.driver}; {'; '.join(gpus)}")
