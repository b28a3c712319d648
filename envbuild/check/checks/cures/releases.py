"""Messages of packages that say which release they ask for."""

from __future__ import annotations

import re

from envbuild.data.tables import TableFile, TableRow, table_loader


class VersionMessage(TableRow, frozen=True):
    """A message that says which release is asked for, and what mends it."""

    pattern: str
    cure: str


class BreakingVariable(TableRow, frozen=True):
    """A variable that breaks imports: its value, what the import says then, and why."""

    name: str
    value: str
    pattern: str
    why: str


class CureTable(TableFile, frozen=True):
    """The whole of cures.toml."""

    release: tuple[VersionMessage, ...]
    variable: tuple[BreakingVariable, ...]


load_cures = table_loader("cures.toml", CureTable)


def cure_of_version(error: str) -> str | None:
    """Say which release a message asks for."""
    newest = re.search(r"\bNumPy (\d{1,4})\.(\d{1,4}) or less", error)
    if newest:
        bound = f"numpy<{newest[1]}.{int(newest[2]) + 1}"
        return f'add "{bound}" to the dependencies, or take a newer release of it'
    for row in load_cures().release:
        found = re.search(row.pattern, error)
        if found:
            return row.cure.format(*found.groups())
    return None
