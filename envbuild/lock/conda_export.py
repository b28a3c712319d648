"""The conda part of a lock in others' forms: @EXPLICIT, environment.yml, conda-lock, pixi."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from envbuild.conda.model import CondaFound
from envbuild.lock.conda_order import install_order
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import CondaPackage, Lock, PythonPackage
from envbuild.names import BY_MACHINE
from envbuild.store.hashing import hash_text


def _archive_url(package: CondaPackage, channels: Mapping[str, str]) -> str:
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
    lines += [f"{_archive_url(p, channels)}#{p.md5 or p.sha256}" for p in install_order(lock.conda)]
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


def environment_text(lock: Lock) -> str:
    """Return an environment.yml that names every version and build, and the wheels on top."""
    packages: list[Any] = [f"{p.name}={p.version}={p.build}" for p in lock.conda]
    wheels = _wheels_on_top(lock)
    if wheels:
        # conda installs wheels by the environment's own pip
        packages += [] if any(p.name == "pip" for p in lock.conda) else ["pip"]
        packages.append({"pip": wheels})
    data = {"name": lock.name, "channels": [*lock.channels, "nodefaults"], "dependencies": packages}
    return f"# written by envbuild from lock {lock_digest(lock)}\n" + _yaml(data)


def _wheels_on_top(lock: Lock) -> list[str]:
    if lock.conda_python is None:
        return []
    return [f"{p.name}=={p.version}" for p in lock.installed]


def conda_lock_text(
    lock: Lock, found: Sequence[CondaFound], channels: Mapping[str, str], wheels: Mapping[str, str]
) -> str:
    """Return a conda-lock.yml (CEP 37); ``found`` says what each requires, ``wheels`` has URLs."""
    platform = BY_MACHINE[lock.base.machine].conda
    requires = {item.name: item.depends for item in found}
    always = {"category": "main", "optional": False}
    entries = [
        _named_entry(p, "conda", platform)
        | {
            "dependencies": _dependency_table(requires.get(p.name, ())),
            "url": _archive_url(p, channels),
            "hash": {"md5": p.md5, "sha256": p.sha256},
            **always,
            "build": p.build,
        }
        for p in lock.conda
    ]
    for p in lock.installed if lock.conda_python else ():
        place = {"url": wheels[p.sha256], "hash": {"sha256": p.sha256}}
        entries.append(_named_entry(p, "pip", platform) | {"dependencies": {}, **place, **always})
    metadata = {
        "content_hash": {platform: content_hash(lock)},
        # by name, as in the environment.yml: conda-lock compares them
        "channels": [{"url": name, "used_env_vars": []} for name in lock.channels],
        "platforms": [platform],
        "sources": ["environment.yml"],
    }
    data = {"version": 1, "metadata": metadata, "package": entries}
    return f"# written by envbuild from lock {lock_digest(lock)}\n" + _yaml(data)


def _named_entry(
    package: CondaPackage | PythonPackage, manager: str, platform: str
) -> dict[str, Any]:
    named = {"name": package.name, "version": package.version}
    return {**named, "manager": manager, "platform": platform}


def _dependency_table(depends: Sequence[str]) -> dict[str, str]:
    pairs = (spec.partition(" ") for spec in depends)
    return {name: bounds.strip() for name, _, bounds in pairs if not name.startswith("__")}


def _yaml(data: Any) -> str:
    text: str = yaml.safe_dump(data, sort_keys=False, width=120, allow_unicode=True)
    return text


VIRTUAL = {
    "__cuda": ("11.4", ""),
    "__glibc": ("2.28", ""),
    "__linux": ("5.10", ""),
    "__unix": ("0", ""),
}
"""What conda-lock takes for granted beside the architecture, and hashes with the rest.

Source: conda-lock 4.0.3, default-virtual-packages.yaml.
"""
TIME = 1577854800000


def content_hash(lock: Lock) -> str:
    """Return the content hash of the environment.yml that is exported of a lock.

    conda-lock hashes what it reads of that file, as JSON of its own classes (its content_hash.py).
    """
    machine = lock.base.machine
    platform = BY_MACHINE[machine].conda
    specs = [_spec(p.name, "conda", p.version, p.build) for p in lock.conda]
    if lock.conda_python is not None and lock.installed:
        specs += [_spec(p.name, "pip", f"=={p.version}") for p in lock.installed]
        # that which installs the wheels takes the place of any pip that is named
        specs = [spec for spec in specs if (spec["manager"], spec["name"]) != ("conda", "pip")]
        specs.append(_spec("pip", "conda", "*"))
    read = {
        "channels": [_channel(name) for name in lock.channels],
        "specs": sorted(specs, key=lambda spec: (spec["manager"], spec["name"])),
        "virtual_package_hash": {
            "noarch": {"info": {"subdir": "noarch"}, "packages": {}},
            platform: {
                "info": {"subdir": platform},
                "packages": _virtual_packages(platform, machine),
            },
        },
    }
    return hash_text(json.dumps(read, sort_keys=True))


def _channel(name: str) -> str:
    return json.dumps({"url": name, "used_env_vars": []}, separators=(",", ":"))


def _spec(name: str, manager: str, version: str, build: str | None = None) -> dict[str, Any]:
    return {
        "build": build,
        "category": "main",
        "conda_channel": None,
        "extras": [],
        "hash": None,
        "manager": manager,
        "name": name,
        "version": version,
    }


def _virtual_packages(platform: str, machine: str) -> dict[str, dict[str, Any]]:
    found = {}
    for name, (version, build) in {"__archspec": ("1", machine), **VIRTUAL}.items():
        # the number twice is conda-lock's own, kept from its version 2
        full = f"{build}_0" if build else "0"
        found[f"{name}-{version}-{full}.tar.bz2"] = {
            "build": full,
            "build_number": 0,
            "build_string": build,
            "depends": [],
            "name": name,
            "noarch": "",
            "package_type": "virtual_system",
            "subdir": platform,
            "timestamp": TIME,
            "version": version,
        }
    return found
