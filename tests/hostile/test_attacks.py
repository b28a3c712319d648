"""The table of the attacks that were tried: each names a test that exists, and the page has its counts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.hostile.attacks import ATTACKS

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
ROW = re.compile(
    r"(?P<group>\w+) \| (?P<where>[CHM]\d+|low|held|new) \| (?P<attack>[^|]+) \| "
    r"(?P<outcome>held|refused|told|docs)(?: (?P<test>test_\w+)(?:\[(?P<case>\w+)\])?)?"
)
KINDS = ("held", "refused", "told", "docs")


def rows() -> list[re.Match[str]]:
    lines = Path(__file__).with_name("attacks.txt").read_text("utf-8").splitlines()
    found = [(line, ROW.fullmatch(line)) for line in lines if not line.startswith("#")]
    assert not [line for line, row in found if row is None]
    return [row for _, row in found if row is not None]


def test_every_attack_names_a_test_that_exists() -> None:
    texts = [path.read_text("utf-8") for path in TESTS.rglob("test_*.py")]
    known = set(re.findall(r"^ *def (\w+)\(", "\n".join(texts), flags=re.MULTILINE))
    attacks = [(row["group"], row["attack"]) for row in rows()]
    assert len(set(attacks)) == len(attacks)
    for row in rows():
        assert (row["test"] is None) == (row["outcome"] == "docs"), row[0]
        assert row["test"] is None or row["test"] in known, row[0]
        assert row["case"] is None or row["case"] in ATTACKS, row[0]


@pytest.mark.parametrize("page", ["docs/security.md", "docs/ja/security.md"])
def test_the_page_has_the_counts_of_each_group(page: str) -> None:
    found = Counter((row["group"], row["outcome"]) for row in rows())
    groups = dict.fromkeys(row["group"] for row in rows())
    expected = []
    for group in groups:
        counts = [found[group, kind] for kind in KINDS]
        expected.append(f"| {' | '.join([group, *map(str, [sum(counts), *counts])])} |")
    table = re.findall(r"^\| \w+ (?:\| \d+ ){5}\|$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert table == expected
