"""The table of attacks names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomli

TESTS = Path(__file__).parents[1]
ROWS = re.findall(
    r"^\| .* \| (\S+\.py)::(\w+) \|$",
    (TESTS / "hostile/README.md").read_text("utf-8"),
    re.MULTILINE,
)


@pytest.mark.parametrize(("file", "name"), ROWS)
def test_it_is_there(file: str, name: str) -> None:
    assert re.search(rf"^ *def {name}\(", (TESTS / file).read_text("utf-8"), re.MULTILINE)


def test_every_row_names_one() -> None:
    lines = (TESTS / "hostile/README.md").read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|")]
    # a title and a line below it for each table
    tables = sum(line.startswith("|---") for line in rows)
    assert len(rows) - 2 * tables == len(ROWS)


def test_every_file_of_attacks_is_in_a_group() -> None:
    groups = tomli.loads((TESTS / "hostile/groups.toml").read_text("utf-8"))
    files = {part.partition("::")[0] for parts in groups.values() for part in parts}
    assert not [file for file in sorted(files) if not (TESTS / file).is_file()]
    ours = {f"hostile/{path.name}" for path in (TESTS / "hostile").glob("test_*.py")}
    assert ours - files == {"hostile/test_readme.py", "hostile/test_attacks.py"}
