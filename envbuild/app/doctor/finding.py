"""One line of the doctor, and what is shared by those who write them."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["fine", "differs", "broken"]
GB = 10**9


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the doctor: ``mend`` is the command or advice, empty where nothing is to be mended."""

    name: str
    verdict: Verdict
    value: str
    mend: str = ""


def fine(name: str, value: str) -> Finding:
    """Return the line of what works."""
    return Finding(name=name, verdict="fine", value=value)


def differs(name: str, value: str, mend: str = "") -> Finding:
    """Return the line of what works in another way, or may be missed."""
    return Finding(name=name, verdict="differs", value=value, mend=mend)


def broken(name: str, value: str, mend: str = "") -> Finding:
    """Return the line of what ``make`` needs and cannot use."""
    return Finding(name=name, verdict="broken", value=value, mend=mend)
