"""A seventh blind round, from seventh.toml: causes from users' threads, of packages that no older round had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli

from tests.sick.real.cases import Case, healthy, of
from tests.sick.real.fifth_cases import broken
from tests.sick.real.more_cases import FINE

STACK = "seventh"
ROWS: list[dict[str, Any]] = tomli.loads(Path(__file__).with_name("seventh.toml").read_text())[
    "case"
]


def read_row(row: dict[str, Any]) -> Case:
    """Return one row's case; a row without a source is healthy."""
    tree = of(*row["install"], environment=row.get("environment", {}))
    name, code = row["name"], row["project"]
    first = row.get("direct", row["install"][0])
    if "source" in row:
        told = (row["says"], row["words"], row["hint"], row["source"])
        case = broken(name, first, code, *told)
        return replace(case, stack=STACK, tree=tree, proof=row.get("proof", code))
    direct = " ".join(one.partition("=")[0].partition("<")[0] for one in first.split())
    return healthy(name, STACK, tree, f"{code}\nprint('FINE')", FINE, direct, project=code)


SEVENTH = tuple(read_row(row) for row in ROWS)
SEVENTH_SICK = tuple(case for case in SEVENTH if case.found)
SEVENTH_HEALTHY = tuple(case for case in SEVENTH if not case.found)
