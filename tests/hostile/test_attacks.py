"""The table of the attacks that were tried: each names a test that exists, and the page has its counts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.hostile.attacks import ATTACKS

TESTS = Path(__file__).parents[1]
ROW = re.compile(
    r"(?P<group>\w+) \| (?P<where>[CHM]\d+|low|held|new) \| (?P<attack>[^|]+) \| "
    r"(?P<outcome>held|refused|told|docs|not)(?: (?P<test>test_\w+)(?:\[(?P<case>\w+)\])?)?"
)
WITHOUT_TEST = ("docs", "not")
KINDS = ("held", "refused", "told", *WITHOUT_TEST)


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
        assert (row["test"] is None) == (row["outcome"] in WITHOUT_TEST), row[0]
        assert row["test"] is None or row["test"] in known, row[0]
        assert row["case"] is None or row["case"] in ATTACKS, row[0]


def test_the_page_has_the_counts_of_each_group() -> None:
    page = (TESTS / "hostile/README.md").read_text("utf-8")
    for group in dict.fromkeys(row["group"] for row in rows()):
        found = Counter(row["outcome"] for row in rows() if row["group"] == group)
        line = f"- {group}: " + ", ".join(
            f"{found[kind]} {kind}" for kind in KINDS if kind in found
        )
        assert f"{line}\n" in page, line
