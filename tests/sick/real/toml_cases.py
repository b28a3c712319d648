"""Blind rounds from seventh.toml on: causes from threads, of packages that no older round had."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import tomli

from tests.sick.real.cases import Case, healthy, of
from tests.sick.real.fifth_cases import broken
from tests.sick.real.more_cases import FINE


def read_round(stack: str) -> tuple[Case, ...]:
    """Return a round's cases, from the file that is named after it."""
    text = Path(__file__).with_name(f"{stack}.toml").read_text()
    return tuple(read_row(row, stack) for row in tomli.loads(text)["case"])


def read_row(row: dict[str, Any], stack: str) -> Case:
    """Return one row's case; a row without a source is healthy."""
    python = row.get("python", "3.11")
    changes = {key: row[key] for key in ("environment", "cut", "copy", "files") if key in row}
    lists = {key: tuple(row[key]) for key in ("remove", "delete", "strip") if key in row}
    edit = {path: tuple(texts) for path, texts in row.get("edit", {}).items()}
    tree = of(*row["install"], **changes, **lists, edit=edit, python=python)
    more = {"beside": row.get("beside", {}), "driver": row.get("driver", False)}
    name, code = row["name"], row["project"]
    first = row.get("direct", row["install"][0])
    if "source" in row:
        told = (row["says"], row["words"], row["hint"], row["source"])
        case = broken(name, first, code, *told)
        return replace(case, stack=stack, tree=tree, proof=row.get("proof", code), **more)
    direct = " ".join(one.partition("=")[0].partition("<")[0] for one in first.split())
    proof = row.get("proof", code)
    return healthy(name, stack, tree, f"{proof}\nprint('FINE')", FINE, direct, project=code, **more)


ROUNDS = (
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
)
READ = tuple(chain.from_iterable(map(read_round, ROUNDS)))
READ_SICK = tuple(case for case in READ if case.found)
READ_HEALTHY = tuple(case for case in READ if not case.found)
