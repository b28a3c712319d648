"""Examine this machine: every probe, the slow ones side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

from envbuild.app.doctor import network, places, programs, rights
from envbuild.app.doctor.finding import Finding, broken, differs
from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.host import read_host, user_namespaces_work

Probe = Callable[[], Finding | Iterable[Finding]]
OPTIONAL = {
    "mksquashfs": "no --mode fakeroot and docker; --mode flat packs without it",
    "unsquashfs": "no image can be unpacked where /dev/fuse or squashfuse is missing",
}
"""Programs without which ``make`` works all the same: what does not."""


def examine_machine(context: Context) -> tuple[Finding, ...]:
    """Examine this machine, all slow parts in parallel; a failed probe becomes a broken finding."""
    facts = read_host()
    # uv's finder reads Python's configuration, which two threads at once cannot the first time
    uv = _guarded("uv", partial(programs.examine_tool, "uv", context))

    def judge_namespaces() -> Finding:
        return rights.judge_namespaces(facts, works=user_namespaces_work(context.runner))

    def look_for(tool: str) -> tuple[str, Probe]:
        return tool, partial(programs.examine_tool, tool, context)

    probes: list[tuple[str, Probe]] = [
        ("Python", programs.examine_python),
        ("uv", lambda: uv),
        ("container runtime", partial(programs.examine_runtime, context)),
        ("rights", partial(rights.judge_rights, facts)),
        ("user namespaces", judge_namespaces),
        ("subuid, subgid", partial(rights.judge_ids, facts)),
        look_for("newuidmap"),
        ("/dev/fuse", partial(rights.judge_fuse, facts)),
        ("squashfuse", partial(programs.examine_squashfuse, context, facts)),
        ("mksquashfs", partial(programs.examine_packer, context)),
        look_for("unsquashfs"),
        look_for("apt-get"),
        look_for("mmdebstrap"),
        ("engine", partial(programs.examine_engine, context)),
        *places.probes(context, facts),
        ("GPU", partial(programs.examine_gpu, context, facts)),
        *network.probes(context),
    ]
    with ThreadPoolExecutor(max_workers=len(probes)) as pool:
        groups = list(pool.map(lambda probe: _guarded(*probe), probes))
    return tuple(chain.from_iterable(groups))


def _guarded(name: str, probe: Probe) -> list[Finding]:
    try:
        found = probe()
        return [found] if isinstance(found, Finding) else list(found)
    except (EnvbuildError, OSError) as error:
        hint = getattr(error, "hint", None) or ""
        if name in OPTIONAL:
            return [differs(name, f"{error}: {OPTIONAL[name]}", hint)]
        return [broken(name, str(error), hint)]
    except Exception as error:  # noqa: BLE001  (a bug here must not hide what others found)
        value = f"this line could not be found out: {type(error).__name__}: {error}"
        return [differs(name, value)]
