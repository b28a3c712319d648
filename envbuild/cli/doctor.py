"""``doctor``: what this machine can do for envbuild, what works differently here, and how to mend what is broken."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import click
import msgspec

from envbuild.base.debian import mirror
from envbuild.cli.context import Context
from envbuild.errors import EnvbuildError, HostError
from envbuild.host import Host, Space, read_host, read_space, user_namespaces_work
from envbuild.run import Command, Runner
from envbuild.runtime import find_runtime
from envbuild.settings import Settings
from envbuild.store.index import index_url
from envbuild.store.units import human_bytes
from envbuild.store.web import make_client, redact
from envbuild.tools import find_tool

Verdict = Literal["fine", "differs", "broken"]
GB = 10**9
ROOM = {"TMPDIR": (15 * GB, 2 * GB), "store": (10 * GB, GB), "current folder": (5 * GB, GB // 2)}
"""Bytes below which a TensorFlow image may not fit, and below which nothing fits (measured: 1.6 GB of wheels to fetch,
5 GB unpacked, 2.4 GB packed)."""
INODES = (200_000, 20_000)
"""The same for inodes: a base with TensorFlow and its CUDA wheels has about 60,000 files, counted twice while built."""
ID_COUNT = 65536
"""Ids that a Debian system uses: a shorter range in /etc/subuid breaks packages with high ids (nobody is 65534)."""
NETWORK_SECONDS = 1.5


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the doctor: ``mend`` is the command or advice, empty where nothing is to be mended."""

    name: str
    verdict: Verdict
    value: str
    mend: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_obj
def command(context: Context, *, as_json: bool) -> int:
    """Say what this machine can do, and how to mend what it cannot.

    Each line is fine, works differently (and how), or broken with what mends it. Exit code 7 when something is
    broken that `envbuild make` needs.
    """
    findings = examine(context.settings, context.runner)
    broken = any(finding.verdict == "broken" for finding in findings)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"ok": not broken, "findings": findings}), indent=2))
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
    probes: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("Python", _python),
        ("uv", lambda: _tool("uv", settings, runner)),
        ("container runtime", lambda: _runtime(settings, runner, facts)),
        ("rights", lambda: [judge_rights(facts)]),
        ("user namespaces", lambda: [judge_namespaces(facts, works=user_namespaces_work(runner))]),
        ("subuid, subgid", lambda: [judge_ids(facts)]),
        ("newuidmap", lambda: _tool("newuidmap", settings, runner)),
        ("/dev/fuse", lambda: [judge_fuse(facts)]),
        ("mksquashfs", lambda: _packer(settings, runner)),
        ("unsquashfs", lambda: _tool("unsquashfs", settings, runner)),
        ("mmdebstrap", lambda: _tool("mmdebstrap", settings, runner)),
        *_places(settings),
        ("GPU", lambda: [_gpu(settings, runner, facts)]),
        ("package index", lambda: [_reach("package index", index_url(settings, runner), settings)]),
        ("Debian mirror", lambda: [_reach("Debian mirror", mirror(settings, runner), settings)]),
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


def judge_rights(host: Host) -> Finding:
    """Judge what the user may do: an ordinary user and a whole root are fine, a root without capabilities differs."""
    who = f"{host.user} (uid {host.uid})"
    if not host.crippled_root:
        return Finding(name="rights", verdict="fine", value=who)
    lacking = ", ".join(f"bit {bit}" for bit in sorted(host.missing_capabilities)[:4])
    value = f"{who} without {len(host.missing_capabilities)} of root's capabilities ({lacking}): runs with --userns"
    return Finding(name="rights", verdict="differs", value=value)


def judge_namespaces(host: Host, *, works: bool | None) -> Finding:
    """Judge user namespaces, in which everybody but a whole root builds; ``works`` is None where nothing was tried."""
    name, limit = "user namespaces", host.user_namespace_limit
    if works is None and limit != 0:
        return Finding(name=name, verdict="differs", value="not tried: there is no unshare program")
    if works:
        return Finding(name=name, verdict="fine", value=f"usable (limit {limit})" if limit is not None else "usable")
    value = "switched off (user.max_user_namespaces = 0)" if limit == 0 else "unshare -U is refused"
    if host.uid == 0 and not host.crippled_root:
        return Finding(name=name, verdict="differs", value=f"{value}; root needs none")
    mend = "root: sysctl user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1 (or: apptainer-suid)"
    return Finding(name=name, verdict="broken", value=value, mend=mend)


def judge_ids(host: Host) -> Finding:
    """Judge the user's ranges in /etc/subuid and /etc/subgid: builds need ID_COUNT ids of each."""
    name = "subuid, subgid"
    ranges = {"subuid": host.subuid, "subgid": host.subgid}
    short = [file for file, found in ranges.items() if found is None or found[1] < ID_COUNT]
    if not short and host.subuid is not None:
        return Finding(name=name, verdict="fine", value=f"{host.subuid[1]} ids from {host.subuid[0]}")
    value = f"no range of {ID_COUNT} ids for {host.user} in " + " and ".join(f"/etc/{file}" for file in short)
    if host.uid == 0 and not host.crippled_root:
        return Finding(name=name, verdict="differs", value=f"{value}; root needs none")
    line = f"{host.user}:100000:{ID_COUNT}"
    mend = "\n".join(f"root: echo {line} >>/etc/{file}   (a range that no other line uses)" for file in short)
    return Finding(name=name, verdict="broken", value=value, mend=mend)


def judge_fuse(host: Host) -> Finding:
    """Judge /dev/fuse, through which everybody but a whole root mounts images."""
    if host.fuse:
        return Finding(name="/dev/fuse", verdict="fine", value="usable")
    if host.uid == 0 and not host.crippled_root:
        return Finding(name="/dev/fuse", verdict="differs", value="cannot be opened; root needs none")
    if host.crippled_root:
        mend = "modprobe fuse; chmod 666 /dev/fuse"
        return Finding(name="/dev/fuse", verdict="broken", value="cannot be opened: images cannot be run", mend=mend)
    return Finding(
        name="/dev/fuse",
        verdict="differs",
        value="cannot be opened: images are unpacked before each run, which is slow",
        mend="root: modprobe fuse; chmod 666 /dev/fuse",
    )


def judge_space(name: str, space: Space, *, writable: bool) -> Finding:
    """Judge the file system of TMPDIR, the store or the current folder: room, inodes, kind, and whether it is ours."""
    enough, least = ROOM[name]
    inodes = "" if space.free_inodes is None else f", {space.free_inodes:,} inodes free"
    value = f"{space.folder} ({space.kind}): {human_bytes(space.free)} free{inodes}"
    variable = {"TMPDIR": "TMPDIR", "store": "ENVBUILD_STORE"}.get(name)
    other = f"export {variable}=/another/folder" if variable else "work in another folder"
    if not writable:
        return Finding(name=name, verdict="broken", value=f"{value}; not writable", mend=other)
    if space.free < least or (space.free_inodes is not None and space.free_inodes < INODES[1]):
        return Finding(name=name, verdict="broken", value=value, mend=f"{other} with more room")
    if space.free < enough or (space.free_inodes is not None and space.free_inodes < INODES[0]):
        return Finding(name=name, verdict="differs", value=f"{value}; big images may not fit", mend=other)
    if name == "TMPDIR" and space.slow:
        value += "; builds are slow there, and may fail for lack of extended attributes"
        return Finding(name=name, verdict="differs", value=value, mend="export TMPDIR=/a/folder/on/a/local/disk")
    return Finding(name=name, verdict="fine", value=value)


def _python() -> list[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))  # older ones than 3.10 cannot even install envbuild
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
    value = f"{runtime.name} {runtime.version_text} ({runtime.program})"
    if runtime.flags:
        value += f", runs with {' '.join(runtime.flags)}"
    return [Finding(name="container runtime", verdict="differs" if runtime.flags else "fine", value=value)]


def _places(settings: Settings) -> list[tuple[str, Callable[[], Iterable[Finding]]]]:
    places = {"TMPDIR": settings.tmpdir, "store": settings.store, "current folder": settings.cwd}

    def probe(name: str, folder: Path) -> Callable[[], Iterable[Finding]]:
        return lambda: [judge_space(name, read_space(folder), writable=_writable(folder))]

    return [(name, probe(name, folder)) for name, folder in places.items()]


def _writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK | os.X_OK)


def _gpu(settings: Settings, runner: Runner, host: Host) -> Finding:
    if host.driver is None:
        value = "no NVIDIA driver here: images run on the CPU, GPU checks are skipped"
        return Finding(name="GPU", verdict="differs", value=value)
    command = Command(argv=("nvidia-smi", "-L"), env=settings.environment, timeout=NETWORK_SECONDS)
    try:
        listed = runner(command, check=False)
    except HostError:
        return Finding(
            name="GPU", verdict="fine", value=f"NVIDIA driver {host.driver} (no nvidia-smi to name the GPUs)"
        )
    gpus = [line.partition(" (UUID")[0] for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    if listed.code != 0 or not gpus:
        value = f"NVIDIA driver {host.driver}, but no GPU answers: {listed.last_lines(1)}"
        return Finding(name="GPU", verdict="differs", value=value, mend="on a cluster: ask the scheduler for a GPU")
    return Finding(name="GPU", verdict="fine", value=f"NVIDIA driver {host.driver}; {'; '.join(gpus)}")


def _reach(name: str, url: str, settings: Settings) -> Finding:
    """Ask a server for the head of its front page; any answer that is no refusal and no server error will do."""
    import httpx

    shown = redact(url)
    mend = "check the network and the proxy variables (https_proxy, no_proxy); without a network only the store is used"
    if url.startswith("file:"):
        return Finding(name=name, verdict="fine", value=shown)
    try:
        with make_client(settings) as client:
            status = client.head(url, timeout=NETWORK_SECONDS).status_code
    except httpx.HTTPError as error:
        reason = str(error).strip() or type(error).__name__
        return Finding(name=name, verdict="broken", value=f"{shown} cannot be reached: {reason}", mend=mend)
    if status in (401, 403, 407) or status >= 500:
        return Finding(name=name, verdict="broken", value=f"{shown} answers with HTTP {status}", mend=mend)
    return Finding(name=name, verdict="fine", value=shown)
