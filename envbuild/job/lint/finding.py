"""What lint says about one line."""

from __future__ import annotations

import msgspec

from envbuild.data.tables import TableFile, TableRow, table_loader


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One trap: its kind, the line, why it is one, and what to write instead."""

    kind: str
    line: int
    reason: str
    fix: str


class _TrapText(TableRow, frozen=True):
    reason: str
    fix: str


class _TrapTable(TableFile, frozen=True):
    """The whole of lint.toml."""

    trap: dict[str, _TrapText]


load_traps = table_loader("lint.toml", _TrapTable)


def name_trap(name: str, line: int, **values: object) -> LintFinding:
    """Return the trap of that name, KIND or KIND.CASE, in its words, with the values in them."""
    text = load_traps().trap[name]
    return LintFinding(
        kind=name.partition(".")[0],
        line=line,
        reason=text.reason.format(**values),
        fix=text.fix.format(**values),
    )
