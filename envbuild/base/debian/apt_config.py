"""A configuration of apt that has nothing of the host but its way to the network."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.base.debian.distribution import DEBIAN, Distribution
from envbuild.context import Context
from envbuild.net.redact import USER
from envbuild.run import Command
from envbuild.runtime import PROXY
from envbuild.settings import Settings
from envbuild.store.atomic import make_folder, os_errors_as, write_text

KEYRING = DEBIAN.keyring


def apt_environment(settings: Settings, config: Path | None = None) -> dict[str, str]:
    """Return the environment in which apt speaks English and reads no configuration but ours."""
    env = {key: value for key, value in settings.environment.items() if key != "APT_CONFIG"}
    if "*" in env.get("no_proxy", "").split(","):  # which apt takes for the name of a host
        for name in filter(PROXY.fullmatch, [*env]):
            del env[name]
    env["LC_ALL"] = "C"
    if config is not None:
        env["APT_CONFIG"] = str(config)
    return env


def source_line(distribution: Distribution, url: str, suite: str) -> str:
    """Return the line of sources.list for one suite of a mirror."""
    keyring = KEYRING if distribution is DEBIAN else distribution.keyring
    signed = f"[signed-by={keyring}] " if keyring.exists() else ""
    return f"deb {signed}{url} {suite} {distribution.components}\n"


def write_config(folder: Path, source: str, context: Context, *, architecture: str) -> Path:
    """Write an apt configuration that has nothing of the host's but its network (Acquire::…)."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        with os_errors_as(folder):
            make_folder(folder / name)
    lines = [line for line in apt_network(context) if not USER.search(line)]
    if context.settings.certificates:
        lines.append(f'Acquire::https::CAInfo "{context.settings.certificates}";')
    lines += [
        f'Dir::State "{folder}/state";',
        f'Dir::State::status "{folder}/status";',
        f'Dir::Cache "{folder}/cache";',
        f'Dir::Etc::sourcelist "{folder}/sources.list";',
        'Dir::Etc::sourceparts "/dev/null";',
        'Dir::Etc::main "/dev/null";',
        'Dir::Etc::parts "/dev/null";',
        'Dir::Etc::preferences "/dev/null";',
        'Dir::Etc::preferencesparts "/dev/null";',
        f'APT::Architecture "{architecture}";',
        f'APT::Architectures {{ "{architecture}"; }};',
        'APT::Install-Recommends "false";',
        'APT::Sandbox::User "root";',  # apt's own user may not enter the store
        'Acquire::Languages "none";',
        'Acquire::GzipIndexes "false";',
    ]
    write_text(folder / "sources.list", source)
    write_text(folder / "status", "")
    write_text(folder / "apt.conf", "\n".join(lines) + "\n")
    return folder / "apt.conf"


def apt_network(context: Context) -> list[str]:
    """Return the lines of this machine's apt configuration that say how to reach the network."""
    environment = apt_environment(context.settings)
    dump = context.runner(Command(argv=("apt-config", "dump"), env=environment, timeout=60)).stdout
    return re.findall(
        r'^Acquire::(?:http|https|ftp|Retries|Check-Valid-Until|Check-Date|ForceIPv4|ForceIPv6)\b.* "[^"\n]+";$',
        dump,
        re.MULTILINE,
    )
