"""What lint says about one line."""

from __future__ import annotations

import msgspec


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One trap: its kind, the line, why it is one, and what to write instead."""

    kind: str
    line: int
    reason: str
    fix: str
