"""``doctor``: what this machine can do for envbuild, what works differently here, and how to mend what is broken."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import click
import msgspec

from envbuild.cli import doctor_network, doctor_places
from envbuild.cli.findings import Finding
from envbuild.context import Context
from envbuild.errors import EnvbuildError, HostError
from envbuild.host import ID_COUNT, Host, read_host, user_namespaces_work
from envbuild.run import Command, Runner
from envbuild.runtime import find_runtime, find_squashfuse, is_setuid
from envbuild.settings import Settings
from envbuild.tools import find_tool

FUSE_MEND = (
    "root: modprobe fuse; chmod 666 /dev/fuse\n"
    "and to last over a restart: echo fuse >/etc/modules-load.d/fuse.conf; "
    'echo \'KERNEL=="fuse", MODE="0666"\' >/etc/udev/rules.d/90-fuse.rules'
)
GPU_SECONDS = 5.0
"""How long nvidia-smi may take: it wakes a GPU that sleeps."""
NAMES = (
    "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service "
    "net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin "
    "sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override "
    "mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore"
)
"""Names of capabilities by bit (linux/capability.h), without the "cap_" before each."""
"""What an Apptainer that is not setuid mounts images with."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_obj
def command(context: Context, *, as_json: bool) -> int:
    """Say what works on this machine, and how to repair the rest.

    Each line says that something is fine, works in another way, or is broken and how to repair it. The exit code is 7
    when something is broken that `envbuild make` needs.
    """
    findings = examine(context.settings, context.runner)
    broken = any(finding.verdict == "broken" for finding in findings)
    if as_json:
        click.echo(
            msgspec.json.format(
                msgspec.json.encode({"ok": not broken, "findings": findings}), indent=2
            )
        )
    else:
        for finding in findings:
            _show(finding)
    return HostError.code if broken else 0


def _show(finding: Finding) -> None:
    colour, word = {
        "fine": ("green", "fine"),
        "differs": ("yellow", "works differently"),
        "broken": ("red", "broken"),
    }[finding.verdict]
    click.echo(f"{click.style(f'{word:<17}', fg=colour)}  {finding.name:<16}  {finding.value}")
    for line in finding.mend.splitlines():
        click.echo(f"{'':<37}→ {line}")


def examine(settings: Settings, runner: Runner, host: Host | None = None) -> tuple[Finding, ...]:
    """Examine this machine, everything slow in parallel; a probe that fails becomes a broken finding."""
    facts = host or read_host()
    # uv's finder reads Python's configuration, which is not ready for two threads at once the first time
    uv = _guarded("uv", lambda: _tool("uv", settings, runner))
    probes: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("Python", _python),
        ("uv", lambda: uv),
        ("container runtime", lambda: _runtime(settings, runner, facts)),
        ("rights", lambda: [judge_rights(facts)]),
        ("user namespaces", lambda: [judge_namespaces(facts, works=user_namespaces_work(runner))]),
        ("subuid, subgid", lambda: [judge_ids(facts)]),
        ("newuidmap", lambda: _tool("newuidmap", settings, runner)),
        ("/dev/fuse", lambda: [judge_fuse(facts)]),
        ("squashfuse", lambda: [_squashfuse(settings, runner, facts)]),
        ("mksquashfs", lambda: _packer(settings, runner)),
        ("unsquashfs", lambda: _tool("unsquashfs", settings, runner)),
        ("mmdebstrap", lambda: _tool("mmdebstrap", settings, runner)),
        ("engine", lambda: [_engine(settings, runner)]),
        *doctor_places.probes(settings, runner, facts),
        ("GPU", lambda: [_gpu(settings, runner, facts)]),
        *doctor_network.probes(settings, runner),
    ]
    with ThreadPoolExecutor(max_workers=len(probes)) as pool:
        groups = list(pool.map(lambda probe: _guarded(*probe), probes))
    return tuple(finding for group in groups for finding in group)


def _guarded(name: str, probe: Callable[[], Iterable[Finding]]) -> list[Finding]:
    try:
        return list(probe())
    except EnvbuildError as error:
        return [Finding(name=name, verdict="broken", value=str(error), mend=error.hint or "")]
    except OSError as error:
        return [Finding(name=name, verdict="broken", value=str(error))]
    except Exception as error:  # noqa: BLE001  (one probe's bug must not hide what the others found)
        value = f"this line could not be found out: {type(error).__name__}: {error}"
        return [Finding(name=name, verdict="differs", value=value)]


def judge_rights(host: Host) -> Finding:
    """Judge what the user may do: an ordinary user and a whole root are fine, a root without capabilities differs."""
    who = f"{host.user} (uid {host.uid})"
    if not host.crippled_root:
        return Finding(name="rights", verdict="fine", value=who)
    lacking = ", ".join(capability(bit) for bit in sorted(host.missing_capabilities)[:4])
    value = f"{who} without {len(host.missing_capabilities)} of root's capabilities ({lacking}): runs with --userns"
    return Finding(name="rights", verdict="differs", value=value)


def capability(bit: int) -> str:
    """Return the name of a capability, "bit 50" for one that is younger than this list."""
    names = NAMES.split()
    return f"cap_{names[bit]}" if bit < len(names) else f"bit {bit}"


def judge_namespaces(host: Host, *, works: bool | None) -> Finding:
    """Judge user namespaces, in which everybody but a whole root builds; ``works`` is None where nothing was tried."""
    name, limit = "user namespaces", host.user_namespace_limit
    if works is None and limit != 0:
        return Finding(name=name, verdict="differs", value="not tried: there is no unshare program")
    if works:
        return Finding(
            name=name,
            verdict="fine",
            value=f"usable (limit {limit})" if limit is not None else "usable",
        )
    value = "switched off (user.max_user_namespaces = 0)" if limit == 0 else "unshare -U is refused"
    if host.uid == 0 and not host.crippled_root:
        return Finding(name=name, verdict="differs", value=f"{value}; root needs none")
    return Finding(name=name, verdict="broken", value=value, mend=_mend_namespaces(host))


def _mend_namespaces(host: Host) -> str:
    """Return what lets user namespaces, over a restart too: the settings that this kernel has."""
    if not host.switches:
        return "no setting of this kernel forbids it, so a container or a security module does: ask its administrator"
    words = " ".join(host.switches)
    return f"root: printf '%s\\n' {words} >/etc/sysctl.d/90-user-namespaces.conf; sysctl --system\n(or: apptainer-suid)"


def judge_ids(host: Host) -> Finding:
    """Judge the user's ranges in /etc/subuid and /etc/subgid: builds need ID_COUNT ids of each."""
    name = "subuid, subgid"
    ranges = {"subuid": host.subuid, "subgid": host.subgid}
    short = [file for file, found in ranges.items() if found is None or found[1] < ID_COUNT]
    if not short and host.subuid is not None:
        return Finding(
            name=name, verdict="fine", value=f"{host.subuid[1]} ids from {host.subuid[0]}"
        )
    value = f"no range of {ID_COUNT} ids for {host.user} in " + " and ".join(
        f"/etc/{file}" for file in short
    )
    if host.uid == 0 and not host.crippled_root:
        return Finding(name=name, verdict="differs", value=f"{value}; root needs none")
    line = f"{host.user}:{host.free_ids}:{ID_COUNT}"
    mend = "\n".join(f"root: echo {line} >>/etc/{file}" for file in short)
    return Finding(name=name, verdict="broken", value=value, mend=mend)


def judge_fuse(host: Host) -> Finding:
    """Judge /dev/fuse, through which everybody but a whole root mounts images."""
    if host.fuse:
        return Finding(name="/dev/fuse", verdict="fine", value="usable")
    if host.uid == 0 and not host.crippled_root:
        return Finding(
            name="/dev/fuse", verdict="differs", value="cannot be opened; root needs none"
        )
    if host.crippled_root:
        value = "cannot be opened: images cannot be run"
        return Finding(name="/dev/fuse", verdict="broken", value=value, mend=FUSE_MEND)
    return Finding(
        name="/dev/fuse",
        verdict="differs",
        value="cannot be opened: images are unpacked before each run, which is slow",
        mend=FUSE_MEND,
    )


def _python() -> list[Finding]:
    version = ".".join(
        map(str, sys.version_info[:3])
    )  # older ones than 3.10 cannot even install envbuild
    return [Finding(name="Python", verdict="fine", value=f"{version} ({sys.executable})")]


def _tool(name: str, settings: Settings, runner: Runner) -> list[Finding]:
    tool = find_tool(name, settings, runner)
    value = f"{tool.version_text} ({tool.path})" if tool.version else str(tool.path)
    return [Finding(name=name, verdict="fine", value=value)]


def _packer(settings: Settings, runner: Runner) -> list[Finding]:
    tool = find_tool("mksquashfs", settings, runner)
    # the list of compressors is printed for -help (to either stream, exit 0 or 1, by version)
    text = runner(Command(argv=(str(tool.path), "-help"), timeout=10), check=False)
    value = f"{tool.version_text} ({tool.path})"
    if "zstd" in text.stdout + text.stderr:
        return [Finding(name="mksquashfs", verdict="fine", value=f"{value}, with zstd")]
    mend = "install squashfs-tools 4.4 or newer built with zstd (Debian 12's is)"
    return [Finding(name="mksquashfs", verdict="broken", value=f"{value}, without zstd", mend=mend)]


def _runtime(settings: Settings, runner: Runner, host: Host) -> list[Finding]:
    runtime = find_runtime(settings, runner, host)
    kind = "setuid" if is_setuid(runtime, runner) else "without setuid"
    value = f"{runtime.name} {runtime.version_text}, {kind} ({runtime.program})"
    if runtime.flags:
        value += f", runs with {' '.join(runtime.flags)}"
    return [
        Finding(
            name="container runtime", verdict="differs" if runtime.flags else "fine", value=value
        )
    ]


def _squashfuse(settings: Settings, runner: Runner, host: Host) -> Finding:
    """Look for the program that mounts images for those who may not ask the kernel to."""
    runtime = find_runtime(settings, runner, host)
    name = "squashfuse"
    if (host.uid == 0 and not host.crippled_root) or is_setuid(runtime, runner):
        return Finding(name=name, verdict="fine", value="not needed: the kernel mounts images here")
    found = find_squashfuse(runtime)
    if found:
        return Finding(name=name, verdict="fine", value=found)
    value = "not found: images are unpacked before each run, and overlay partitions are refused"
    mend = "on Debian or Ubuntu, as root: apt-get install squashfuse\non a login node: ask its staff for squashfuse"
    return Finding(name=name, verdict="differs", value=value, mend=mend)


def _engine(settings: Settings, runner: Runner) -> Finding:
    """Ask for an engine, which only ``--mode docker`` and docker-daemon: bases need."""
    for name in ("docker", "podman"):
        program = shutil.which(name, path=settings.environment.get("PATH"))
        if program is None:
            continue
        asked = Command(
            argv=(program, "info", "--format", "{{.ServerVersion}}"),
            env=settings.environment,
            timeout=10,
        )
        answer = runner(asked, check=False)
        if answer.code == 0:
            return Finding(name="engine", verdict="fine", value=f"{name} ({program}) answers")
        value = f"{name} ({program}) does not answer: no --mode docker, no docker-daemon: bases"
        return Finding(name="engine", verdict="differs", value=value)
    value = (
        "neither docker nor podman: no --mode docker, no docker-daemon: bases; all else needs none"
    )
    return Finding(name="engine", verdict="differs", value=value)


def _gpu(settings: Settings, runner: Runner, host: Host) -> Finding:
    if host.driver is None:
        value = "no NVIDIA driver here: images run on the CPU, GPU checks are skipped"
        return Finding(name="GPU", verdict="differs", value=value)
    command = Command(argv=("nvidia-smi", "-L"), env=settings.environment, timeout=GPU_SECONDS)
    try:
        listed = runner(command, check=False)
    except HostError:
        return Finding(
            name="GPU",
            verdict="fine",
            value=f"NVIDIA driver {host.driver} (no nvidia-smi to name the GPUs)",
        )
    gpus = [
        line.partition(" (UUID")[0]
        for line in listed.stdout.splitlines()
        if line.startswith("GPU ")
    ]
    if listed.code != 0 or not gpus:
        value = f"NVIDIA driver {host.driver}, but no GPU answers: {listed.last_lines(1)}"
        return Finding(
            name="GPU",
            verdict="differs",
            value=value,
            mend="on a cluster: ask the scheduler for a GPU",
        )
    return Finding(
        name="GPU", verdict="fine", value=f"NVIDIA driver {host.driver}; {'; '.join(gpus)}"
    )
