"""Write a lock as TOML: one line a package, sorted, so that two locks diff well."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from envbuild.lock.model import Lock
from envbuild.names import Texts
from envbuild.toml import quote, write_pairs, write_value

HEADING = (
    "# Written by envbuild lock: every file by name, size and sha256.  Where they come from is "
    "configuration.\n"
    "# Edit the recipe, not this file.\n"
)
SCALARS = ("schema", "name", "platform", "recipe-digest", "proof", "as-of")
SECTIONS = ("base", "tools", "packer")
TABLES = ("debian", "python", "conda", "files", "packers", "provided", "moved", "held-back")


def write_lock(lock: Lock) -> str:
    """Return the lock's only written form; the same lock gives the same text."""
    data: dict[str, Any] = msgspec.to_builtins(lock)
    # arrays are keys of the top level, so they stand before the first section
    blocks = [HEADING]
    blocks += [f"{key} = {write_value(data[key])}\n" for key in SCALARS if key in data]
    blocks.append(_string_list("direct", lock.direct) or "direct = []\n")
    blocks += [
        _string_list("system", lock.system),
        _string_list("channels", lock.channels),
        _string_list("conda-direct", lock.conda_direct),
        _string_list("conda-virtual", lock.conda_virtual),
        _string_list("notes", lock.notes),
    ]
    blocks += [_write_rows(key, data.get(key, [])) for key in TABLES]
    blocks += [_write_section(key, data.get(key, {})) for key in SECTIONS]
    return "".join(blocks)


def _string_list(key: str, items: Sequence[str]) -> str:
    body = "".join(f"  {quote(item)},\n" for item in items)
    return f"{key} = [\n{body}]\n" if body else ""


def _write_section(name: str, content: dict[str, Any]) -> str:
    if not content:
        return ""
    return "\n".join([f"\n[{name}]", *write_pairs(content), ""])


def _write_rows(key: str, rows: Iterable[dict[str, Any]]) -> str:
    # sorted, so that two locks differ in few lines
    def order(row: dict[str, Any]) -> Texts:
        return (
            row.get("group", ""),
            row.get("name", row.get("target", "")),
            row.get("version", ""),
            row.get("architecture", ""),
            row.get("file", ""),
        )

    body = "".join(f"  {write_value(row)},\n" for row in sorted(rows, key=order))
    return f"\n{key} = [\n{body}]\n" if body else ""
