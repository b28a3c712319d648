"""Examine this machine: every probe, the slow ones side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from envbuild.app.doctor import network, places, programs, rights
from envbuild.app.doctor.finding import Finding
from envbuild.errors import EnvbuildError
from envbuild.host import Host, read_host, user_namespaces_work
from envbuild.run import Runner
from envbuild.settings import Settings


def examine(settings: Settings, runner: Runner, host: Host | None = None) -> tuple[Finding, ...]:
    """Examine this machine, everything slow in parallel; a probe that fails becomes a broken finding."""
    facts = host or read_host()
    # uv's finder reads Python's configuration, which is not ready for two threads at once the first time
    uv = _guarded("uv", lambda: programs.examine_tool("uv", settings, runner))
    probes: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        ("Python", programs.examine_python),
        ("uv", lambda: uv),
        ("container runtime", lambda: programs.examine_runtime(settings, runner, facts)),
        ("rights", lambda: [rights.judge_rights(facts)]),
        (
            "user namespaces",
            lambda: [rights.judge_namespaces(facts, works=user_namespaces_work(runner))],
        ),
        ("subuid, subgid", lambda: [rights.judge_ids(facts)]),
        ("newuidmap", lambda: programs.examine_tool("newuidmap", settings, runner)),
        ("/dev/fuse", lambda: [rights.judge_fuse(facts)]),
        ("squashfuse", lambda: [programs.examine_squashfuse(settings, runner, facts)]),
        ("mksquashfs", lambda: programs.examine_packer(settings, runner)),
        ("unsquashfs", lambda: programs.examine_tool("unsquashfs", settings, runner)),
        ("mmdebstrap", lambda: programs.examine_tool("mmdebstrap", settings, runner)),
        ("engine", lambda: [programs.examine_engine(settings, runner)]),
        *places.probes(settings, runner, facts),
        ("GPU", lambda: [programs.examine_gpu(settings, runner, facts)]),
        *network.probes(settings, runner),
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
