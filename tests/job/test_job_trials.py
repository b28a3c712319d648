"""The table of what was tried by hand: each row names a test that exists, and the page has its counts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCHEDULERS = ("Slurm", "Grid Engine", "PBS")
Row = tuple[str, ...]


def trials() -> list[Row]:
    lines = Path(__file__).with_name("trials.txt").read_text("utf-8").splitlines()
    return [tuple(line.split(" | ")) for line in lines if not line.startswith("#")]


def outcome(cell: str) -> str:
    """Return how a trial stands: "-", "told", "not", "refused" or "right"."""
    if cell in ("-", "told", "not"):
        return cell
    return "refused" if cell.startswith("refuses ") else "right"


def test_every_trial_names_a_test_that_exists() -> None:
    texts = [path.read_text("utf-8") for path in Path(__file__).parent.rglob("*.py")]
    known = set(re.findall(r"^def (\w+)\(", "\n".join(texts), flags=re.MULTILINE))
    rows = trials()
    assert len({row[1] for row in rows}) == len(rows)
    for row in rows:
        where, situation, *cells = row
        assert where, situation
        assert len(cells) == len(SCHEDULERS), situation
        named = {cell.removeprefix("refuses ") for cell in cells} - {"-", "told", "not"}
        assert named <= known, situation


def test_the_page_has_the_counts_of_the_trials() -> None:
    for page in ("docs/systems.md", "docs/ja/systems.md"):
        text = (ROOT / page).read_text("utf-8")
        for number, scheduler in enumerate(SCHEDULERS, start=2):
            found = Counter(outcome(row[number]) for row in trials())
            tried = sum(found.values()) - found["-"]
            kinds = (tried, found["right"], found["refused"], found["told"], found["not"])
            assert f"| {scheduler} | {' | '.join(map(str, kinds))} |" in text, (page, scheduler)
