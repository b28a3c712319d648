"""Run ``envbuild init`` on the public projects of init.toml and compare with what was judged by hand.

    python benchmarks/init.py FOLDER [--index] [--update]

FOLDER holds one checkout of each, called OWNER+NAME, at its commit.  ``--index`` asks the package index about
dumps.  Prints a line for each project and the sums; ``--update`` writes bases, counts and seconds into init.toml.  A
project's right dependencies are the row's ``missed`` and what init found without the row's ``extra``.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import tomli

from envbuild.progress import Silent
from envbuild.project.draft import draft
from envbuild.project.freeze import guessed, requirements_of, roots
from envbuild.project.gather import gather
from envbuild.project.model import Draft, Need
from envbuild.project.names import canonical
from envbuild.project.requirements import need
from envbuild.run import LocalRunner
from envbuild.settings import load_settings
from envbuild.toml import quote, write_value

TABLE = Path(__file__).with_suffix(".toml")
KEYS = ("repository", "commit", "verdict", "base", "right", "missed", "extra", "seconds", "note")
HEAD = TABLE.read_text("utf-8").partition("\n[[project]]")[0] if TABLE.exists() else ""


def reduce(needs: tuple[Need, ...], imported: frozenset[str]) -> tuple[tuple[Need, ...], str]:
    """Reduce a dump as ``envbuild init`` does, with the index or without."""
    if "--index" not in sys.argv:
        return guessed(needs, imported), "a list"
    requires = requirements_of(needs, load_settings(), LocalRunner(), Silent())
    return roots(needs, requires, imported), "metadata"


def names(made: Draft) -> list[str]:
    """Return the canonical names of a draft's dependencies."""
    found = [need(line, "draft") for line in made.recipe.python.dependencies]
    return [canonical(one.name) for one in found if one]


def judge(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Draft one project and count."""
    started = time.monotonic()
    made = draft(gather(folder), reduce)
    seconds = time.monotonic() - started
    found = names(made)
    extra = [name for name in row.get("extra", []) if name in found]
    missed = [name for name in row.get("missed", []) if name not in found]
    base = made.recipe.base
    return {
        **row,
        "base": base.image or f"{base.bootstrap}, {base.framework or 'no framework'}",
        "right": len(found) - len(extra),
        "missed": missed,
        "extra": extra,
        "seconds": f"{seconds:.2f}",
    }


def main() -> None:
    """Judge all projects."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--index", action="store_true")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    rows = []
    for row in tomli.loads(TABLE.read_text("utf-8"))["project"]:
        folder = given.folder / row["repository"].replace("/", "+")
        if not folder.is_dir():
            print(f"{row['repository']}: no checkout, left as it is")
            rows.append(row)
            continue
        rows.append(judge(row, folder))
        new = rows[-1]
        print(
            f"{new['repository']:<45} {new['right']:>3} right {len(new['missed']):>3} missed "
            f"{len(new['extra']):>3} too many  {new['seconds']:>6} s  {new['base']}"
        )
    right, missed, extra = (
        sum(len(r[k]) if k != "right" else r[k] for r in rows) for k in ("right", "missed", "extra")
    )
    print(f"{len(rows)} projects: {right} right, {missed} missed, {extra} too many")
    if given.update:
        blocks = [
            "\n[[project]]\n"
            + "".join(
                f"{key} = {quote(row[key]) if isinstance(row[key], str) else write_value(row[key])}\n"
                for key in KEYS
                if key in row
            )
            for row in rows
        ]
        TABLE.write_text(HEAD + "".join(blocks), "utf-8")


if __name__ == "__main__":
    main()
