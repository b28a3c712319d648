"""TOML of strangers: strings that act on a terminal, and numbers that no computer word holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.errors import UsageError
from envbuild.lock.read import parse_lock
from envbuild.recipe.read import read_recipe
from envbuild.toml import parse_toml, quote
from tests.hostile.test_terminal import HARM

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "lockfiles/torch-mnist.lock").read_text("utf-8")


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("key", ["reference", "framework", "envbuild", "name"])
def test_a_lock_says_nothing_to_a_terminal(harm: str, key: str) -> None:
    begin, sign, rest = LOCK.partition(f"\n{key} = ")
    changed = f"{begin}{sign}{quote(harm)}{rest[rest.index(chr(10)) :]}"
    with pytest.raises(UsageError, match=rf"{key}: has the control character U\+"):
        parse_lock(changed, "lock")


def test_nor_does_a_recipe(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('[recipe]\nname = "x"\nsummary = "\\u001b]0;root\\u0007"\n', "utf-8")
    with pytest.raises(
        UsageError, match=r"line 3: recipe.summary: has the control character U\+001B"
    ):
        read_recipe(path)


@pytest.mark.parametrize(
    "number", ["9" * 5000, "0x" + "f" * 5000, "-" + "9" * 5000, "1e999", "nan"]
)
def test_a_number_without_end(number: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(
        f'[recipe]\nname = "x"\n[base]\nimage = "a:1"\n[job]\ngpus = {number}\n', "utf-8"
    )
    with pytest.raises(UsageError, match=r"a number that is too long|takes a whole number"):
        read_recipe(path)


def test_colours_in_a_comment_are_nobodys_harm() -> None:
    assert parse_toml("# \u202e\na = 1", "x") == {"a": 1}


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "0b" + "1_" * 9000, "0o" + "7" * 5000])
def test_a_number_without_end_in_a_message(number: str) -> None:
    """The schema that a lock names is told."""
    with pytest.raises(UsageError, match="has a number that is too long"):
        parse_lock(LOCK.replace("schema = 1", f"schema = {number}"), "lock")
