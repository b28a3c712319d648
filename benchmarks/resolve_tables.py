"""The tables of benchmarks/resolve.py for docs/performance.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envbuild.store.units import human_bytes


def seconds_table(rows: Mapping[str, Any]) -> str:
    """Return the seconds of each case and tool, and how envbuild compares to uv alone."""
    ways = (
        "envbuild",
        "envbuild, undated",
        "envbuild, put anew",
        "uv alone",
        "uv, pages kept",
        "pip-compile",
        "pip",
    )
    heading = "| case | " + " | ".join(f"{way}: cold, warm" for way in ways)
    lines = [f"{heading} | undated, times uv alone | times uv, pages kept |", "|---" * 10 + "|"]
    for name, row in rows.items():
        seconds = [row["seconds"].get(way) for way in ways]
        cells = ["-" if s is None else f"{s['cold']}, {s['warm']}" for s in seconds]
        warm = {way: row["seconds"][way]["warm"] for way in ways[:5]}
        cells += [
            _ratio(warm["envbuild, undated"], warm[way]) for way in ("uv alone", "uv, pages kept")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(seconds: float | str, reference: float | str) -> str:
    """Return how many times as long something took; what did not finish has no ratio."""
    if isinstance(seconds, str) or isinstance(reference, str):
        return "-"
    return f"{seconds / reference:.1f}"


def survival_table(rows: Mapping[str, Any]) -> str:
    """Return who leaves the framework alone."""
    heading = "| case | pip | uv alone | envbuild | GPU packages avoided | packages of the base that move |"
    lines = [heading, "|---" * 6 + "|"]
    for name, row in rows.items():
        cells = [_survives(row["outcome"].get(way, {})) for way in ("pip", "uv alone", "envbuild")]
        moved = "; ".join(row["outcome"]["envbuild"].get("moved", ())) or "none"
        size = human_bytes(row["outcome"]["uv alone"].get("gpu bytes", 0))
        lines.append(f"| {name} | {' | '.join(cells)} | {size} | {moved} |")
    return "\n".join(lines)


def _survives(outcome: Mapping[str, Any]) -> str:
    if not outcome:
        return "-"
    if "error" in outcome:
        return f"refused: {outcome['error']}"
    if outcome["survives"]:
        return "survives"
    lost = [*outcome["replaced"], *outcome["doubled"]]
    return f"lost: {', '.join(lost[:3])}" + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
