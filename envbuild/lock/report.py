"""A lock as JSON for programs (docs/lock.md), with every key always there."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from envbuild.lock.model import Lock, PythonPackage
from envbuild.resolve.couplings import without_source
from envbuild.store.units import count_noun, human_bytes

SCALARS = (
    "schema", "name", "platform", "recipe_digest", "proof", "as_of", "direct", "system",
)  # fmt: skip
CONDA = ("channels", "conda_direct", "conda_virtual")
FILE = ("file", "size", "sha256", "index")
TABLES = ("provided", "moved", "held_back", "debian", "conda")


def lock_json(lock: Lock) -> str:
    """Return the lock as JSON, keys with underscores.

    ``packages`` are what is put over the base (for a bootstrap its framework, too), ``build`` what
    only building their sdists needs; each has ``name``, ``version``, ``group``, ``via`` and
    ``files``.
    """
    data: dict[str, Any] = {name: getattr(lock, name) for name in (*SCALARS, *CONDA)}
    data["base"] = structs.asdict(lock.base)
    data["packages"] = list(map(_package_row, lock.installed))
    data["build"] = list(map(_package_row, lock.build_only))
    for name in TABLES:
        data[name] = list(map(structs.asdict, getattr(lock, name)))
    data |= {"notes": lock.notes, "tools": lock.tools, "packer": structs.asdict(lock.packer)}
    return msgspec.json.format(msgspec.json.encode(data), indent=1).decode()


def _package_row(package: PythonPackage) -> dict[str, Any]:
    return {
        "name": package.name,
        "version": package.version,
        "group": package.group,
        "via": package.via,
        "files": [{key: getattr(package, key) for key in FILE}],
    }


def summarize_lock(lock: Lock) -> list[str]:
    """Return what to know of a new lock, one line each; counts and size first."""
    # what a build needs, too, is there twice and downloaded once
    python = {package.sha256: package.size for package in lock.python}
    size = sum(python.values())
    size += sum(package.size for package in lock.debian)
    size += sum(package.size for package in lock.conda)
    counts = f"{len(python)} Python and {len(lock.debian)} Debian packages"
    if lock.conda:
        counts += f", {count_noun(len(lock.conda), 'conda package')}"
    lines = [f"{counts}, {human_bytes(size)}"]
    base = lock.base
    if base.framework:
        lines.append(f"framework: {base.framework} on {base.reference}, Python {base.python}")
    lines += [
        f"moved: {move.name} {move.before} -> {move.after} ({move.reason})" for move in lock.moved
    ]
    for hold in lock.held_back:
        reason = without_source(hold.reason)  # ``why`` shows it, too
        lines.append(f"held back: {hold.name} {hold.version}, newest is {hold.newest} ({reason})")
    return lines + [f"note: {note}" for note in lock.notes]
