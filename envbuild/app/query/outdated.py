"""Compare a lock with the newest releases of its packages."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.version import Version

from envbuild.base.model import BaseFacts
from envbuild.conda.limited import newest_limited
from envbuild.conda.model import CondaRequest
from envbuild.context import Context
from envbuild.lock.changes import asked_line
from envbuild.lock.model import Lock
from envbuild.net.index import index_url
from envbuild.recipe.conda import spec_name
from envbuild.resolve.uv.newest import newest_releases
from envbuild.store.units import count_noun


def find_newest(lock: Lock, context: Context) -> Mapping[str, str]:
    """Ask the indexes for the newest release of each package that a lock installs."""
    base = lock.base
    facts = BaseFacts(
        image=base.reference, python=lock.python_version, machine=base.machine, glibc=base.glibc
    )
    packages = lock.installed
    if not packages:
        return {}
    named = dict.fromkeys(p.index for p in packages if p.index)
    with context.report.stage(
        f"ask for the newest releases of {count_noun(len(packages), 'package')}"
    ):
        return newest_releases(
            [p.name for p in packages],
            facts,
            indexes={
                **{name: index_url(context, name) for name in named},
                "default": index_url(context),
            },
            context=context,
        )


def conda_request(lock: Lock) -> CondaRequest:
    """Return what opens the channels of a lock."""
    return CondaRequest(
        specs=lock.conda_direct,
        channels=lock.channels,
        machine=lock.base.machine,
        glibc=lock.base.glibc,
    )


def find_newest_conda(lock: Lock, context: Context) -> Mapping[str, str]:
    """Ask the channels for the newest version of each conda package of a lock."""
    if not lock.conda:
        return {}
    request = conda_request(lock)
    with context.report.stage(f"ask the channels about {count_noun(len(lock.conda), 'package')}"):
        return newest_limited(request, [package.name for package in lock.conda], context)


def outdated_conda_rows(
    lock: Lock, newest: Mapping[str, str], *, everything: bool
) -> list[tuple[str, str, str, str]]:
    """Return name, locked version, newest one and the reason, for conda packages."""
    direct = {p.name for p in lock.conda if p.is_direct}
    asked_lines = {spec_name(line): line for line in lock.conda_direct}
    rows = []
    for package in lock.conda:
        version = newest.get(package.name, package.version)
        asked = everything or package.name in direct
        if asked and version != package.version:
            line = asked_lines.get(package.name, package.name)
            reason = (
                "conda: envbuild lock --upgrade may take it"
                if line.rpartition("::")[2].strip() == package.name
                else f'the recipe asks for "{line}"'
            )
            rows.append((package.name, package.version, version, reason))
    return rows


def outdated_rows(
    lock: Lock, newest: Mapping[str, str], *, everything: bool
) -> list[tuple[str, str, str, str]]:
    """Return name, locked version, newest one and the reason, for what is newer."""
    reasons = {hold.name: hold.reason for hold in lock.held_back}
    default = (
        f"the lock is as of {lock.as_of}" if lock.as_of else "envbuild lock --upgrade may take it"
    )
    rows = []
    for package in lock.installed:
        release = newest.get(package.name)
        if release is None or Version(release) <= Version(package.version):
            continue
        if everything or package.is_direct:
            line = asked_line(lock, package.name, release)
            held = default
            if line:
                held = f'the recipe asks for "{line}"'
            elif package.group == "framework":
                held = "the recipe's framework decides"
            reason = reasons.get(package.name, held)
            rows.append((package.name, package.version, release, reason))
    return rows
