"""The conda part of a lock in others' forms: @EXPLICIT, environment.yml, conda-lock, pixi."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from envbuild.conda.model import CondaFound
from envbuild.lock.conda_lock_hash import content_hash
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import CondaPackage, Lock
from envbuild.names import BY_MACHINE


def archive_url(package: CondaPackage, channels: Mapping[str, str]) -> str:
    """Return where a package's archive is; ``channels`` has addresses by name."""
    return f"{channels[package.channel]}/{package.subdir}/{package.file}"


def explicit_text(lock: Lock, channels: Mapping[str, str]) -> str:
    """Return an explicit list (CEP 23), what is required before what requires it."""
    lines = [
        f"# {lock.name}: written by envbuild from lock {lock_digest(lock)}.",
        "# conda create --name NAME --file THIS-FILE",
        f"# platform: {BY_MACHINE[lock.base.machine].conda}",
        "@EXPLICIT",
    ]
    lines += [f"{archive_url(p, channels)}#{p.md5 or p.sha256}" for p in sorted_by_need(lock)]
    return "\n".join(lines) + "\n"


def licenses_text(lock: Lock) -> str:
    """Return a table of channel, licence and packages, for whoever has to look them over."""
    found: dict[tuple[str, str], list[str]] = {}
    for package in lock.conda:
        found.setdefault((package.channel, package.license or "not told"), []).append(package.name)
    lines = ["channel\tlicence\tpackages"]
    lines += [
        f"{channel}\t{name}\t{' '.join(found[channel, name])}" for channel, name in sorted(found)
    ]
    return "\n".join(lines) + "\n"


def sorted_by_need(lock: Lock) -> list[CondaPackage]:
    """Return conda packages so that each stands behind what it requires; cycles go by name."""
    waiting = {package.name: package for package in lock.conda}
    needs: dict[str, set[str]] = {name: set() for name in waiting}
    for package in lock.conda:
        for source in package.via:
            needs.get(source, set()).add(package.name)
    found: list[CondaPackage] = []
    while waiting:
        ready = sorted(name for name in waiting if not needs[name] & set(waiting) - {name})
        found += [waiting.pop(name) for name in ready or sorted(waiting)[:1]]
    return found


def environment_text(lock: Lock) -> str:
    """Return an environment.yml that names every version and build, and the wheels on top."""
    packages: list[Any] = [f"{p.name}={p.version}={p.build}" for p in lock.conda]
    wheels = _wheels_on_top(lock)
    if wheels:
        # conda installs wheels by the environment's own pip
        packages += [] if any(p.name == "pip" for p in lock.conda) else ["pip"]
        packages.append({"pip": wheels})
    data = {
        "name": lock.name,
        "channels": [*lock.channels, "nodefaults"],
        "dependencies": packages,
    }
    return f"# written by envbuild from lock {lock_digest(lock)}\n" + _yaml(data)


def _wheels_on_top(lock: Lock) -> list[str]:
    if lock.conda_python is None:
        return []
    return [f"{p.name}=={p.version}" for p in lock.installed]


def conda_lock_text(
    lock: Lock,
    found: Sequence[CondaFound],
    channels: Mapping[str, str],
    wheels: Mapping[str, str],
) -> str:
    """Return a conda-lock.yml (CEP 37); ``found`` says what each requires, ``wheels`` has URLs."""
    platform = BY_MACHINE[lock.base.machine].conda
    requires = {item.name: item.depends for item in found}
    entries = [
        {
            "name": p.name,
            "version": p.version,
            "manager": "conda",
            "platform": platform,
            "dependencies": _dependency_table(requires.get(p.name, ())),
            "url": archive_url(p, channels),
            "hash": {"md5": p.md5, "sha256": p.sha256},
            "category": "main",
            "optional": False,
            "build": p.build,
        }
        for p in lock.conda
    ]
    on_top = lock.installed if lock.conda_python else ()
    entries += [
        {
            "name": p.name,
            "version": p.version,
            "manager": "pip",
            "platform": platform,
            "dependencies": {},
            "url": wheels[p.sha256],
            "hash": {"sha256": p.sha256},
            "category": "main",
            "optional": False,
        }
        for p in on_top
    ]
    metadata = {
        "content_hash": {platform: content_hash(lock)},
        # by name, as in the environment.yml: conda-lock compares them
        "channels": [{"url": name, "used_env_vars": []} for name in lock.channels],
        "platforms": [platform],
        "sources": ["environment.yml"],
    }
    data = {"version": 1, "metadata": metadata, "package": entries}
    return f"# written by envbuild from lock {lock_digest(lock)}\n" + _yaml(data)


def _dependency_table(depends: Sequence[str]) -> dict[str, str]:
    pairs = (spec.partition(" ") for spec in depends)
    return {name: bounds.strip() for name, _, bounds in pairs if not name.startswith("__")}


def _yaml(data: Any) -> str:
    text: str = yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)
    return text
