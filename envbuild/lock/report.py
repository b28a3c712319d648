"""A lock as JSON for programs (docs/lock.md): what TOML spreads over tables, with every key always there."""

from __future__ import annotations

from typing import Any

import msgspec

from envbuild.lock.model import Lock, PythonPackage
from envbuild.store.units import human_bytes


def lock_json(lock: Lock) -> str:
    """Return the lock as JSON, keys with underscores.

    ``packages`` are what is put over the base (for a bootstrap its framework, too), ``build`` what only building their
    sdists needs; each has ``name``, ``version``, ``group``, ``via`` and ``files``.
    """
    data = {
        "schema": lock.schema,
        "name": lock.name,
        "platform": lock.platform,
        "recipe_digest": lock.recipe_digest,
        "proof": lock.proof,
        "as_of": lock.as_of,
        "direct": lock.direct,
        "system": lock.system,
        "base": _plain(lock.base),
        "packages": [_package(p) for p in lock.installed],
        "build": [_package(p) for p in lock.build_only],
        "provided": [_plain(row) for row in lock.provided],
        "moved": [_plain(row) for row in lock.moved],
        "held_back": [_plain(row) for row in lock.held_back],
        "debian": [_plain(row) for row in lock.debian],
        "notes": lock.notes,
        "tools": lock.tools,
        "packer": _plain(lock.packer),
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode()


def _package(package: PythonPackage) -> dict[str, Any]:
    return {
        "name": package.name,
        "version": package.version,
        "group": package.group,
        "via": package.via,
        "files": [
            {
                "file": package.file,
                "size": package.size,
                "sha256": package.sha256,
                "index": package.index,
            },
        ],
    }


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    """Return a record's fields under their Python names, defaults included."""
    return msgspec.structs.asdict(record)


def summarize_lock(lock: Lock) -> list[str]:
    """Return what a person wants to know of a new lock, one line each, the first with counts and size."""
    size = sum(p.size for p in lock.python) + sum(p.size for p in lock.debian)
    lines = [
        f"{len(lock.python)} Python and {len(lock.debian)} Debian packages, {human_bytes(size)}"
    ]
    if lock.base.framework:
        lines.append(
            f"framework: {lock.base.framework} on {lock.base.reference}, Python {lock.base.python}"
        )
    lines += [
        f"moved: {move.name} {move.before} -> {move.after} ({move.reason})" for move in lock.moved
    ]
    lines += [
        f"held back: {hold.name} {hold.version}, newest is {hold.newest} ({hold.reason})"
        for hold in lock.held_back
    ]
    return lines + [f"note: {note}" for note in lock.notes]
