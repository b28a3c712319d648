"""The hash by which conda-lock tells whether its lock fits an environment.yml."""

from __future__ import annotations

import json
from typing import Any

from envbuild.lock.model import Lock
from envbuild.names import BY_MACHINE
from envbuild.store.hashing import hash_text

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
