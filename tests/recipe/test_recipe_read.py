from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st
from rattler import MatchSpec

from envbuild.errors import UsageError
from envbuild.recipe.conda import PLAIN
from envbuild.recipe.model import Recipe
from envbuild.recipe.read import read_recipe
from envbuild.toml import json_schema

BROKEN = Path(__file__).parents[1] / "broken" / "recipe"
SHIPPED = Path(__file__).parents[2] / "recipes"

GOOD = """\
[recipe]
name = "lab"
summary = "what it is for"

[base]
bootstrap = "debian:bookworm"
framework = "tensorflow[and-cuda]==2.15.*"

[python]
dependencies = [
  "numpy>=1.24",
  "keras-bert",
]
as-of = "2024-06-01"

[system]
packages = ["graphviz"]
"""


def write(tmp_path: Path, text: str, name: str = "lab") -> Path:
    path = tmp_path / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_reads_every_section(tmp_path: Path) -> None:
    recipe, text = read_recipe(write(tmp_path, GOOD))
    assert recipe.name == "lab"
    assert recipe.base.framework == "tensorflow[and-cuda]==2.15.*"
    assert recipe.python.dependencies == ("numpy>=1.24", "keras-bert")
    assert recipe.python.as_of == "2024-06-01"
    assert recipe.system.packages == ("graphviz",)
    assert text == GOOD


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_recipes_read_and_satisfy_the_schema(path: Path) -> None:
    recipe, text = read_recipe(path)
    assert recipe.recipe.summary
    jsonschema.validate(tomli.loads(text), json_schema(Recipe, "envbuild recipe"))


MESSAGES = {
    "unknown-key": "line 10: unknown key 'dependecies' in [python]; did you mean \"dependencies\"?",
    "unknown-section": "line 7: unknown section 'pyhton'; did you mean \"python\"?",
    "not-toml": "line 2, column 8: is not valid TOML: Invalid value",
    "no-name": "line 1: 'name' is missing in [recipe]",
    "other-name": 'line 2: [recipe] name is "something-else", but the file is called other-name.toml',
    "two-bases": "line 4: [base] takes image or bootstrap, one of them; both is given",
    "no-base": "line 4: [base] takes image or bootstrap, one of them; neither is given",
    "distribution-as-image": 'line 5: [base] image "debian:bookworm" is a distribution, not an image',
    "image-as-bootstrap": (
        'line 5: [base] bootstrap "docker://debian:bookworm" is not a distribution'
    ),
    "framework-of-image": "line 6: [base] framework goes with bootstrap; an image brings its own framework",
    "bad-requirement": "line 9: 'numpy=>1.2' is not a requirement: ",
    "pip-option": "line 9: '--index-url https://mirror.invalid/' is not a requirement: ",
    "wrong-type": "line 8: python.dependencies: takes a list, not text",
    "bad-python": "line 8: python.version: takes text that matches ",
    "bad-date": "line 8: python.as-of: takes text that matches ",
    "shell-in-package": "line 8: system.packages: takes text that matches ",
    "script-outside": "line 8: [check] script '../other.py' leaves the recipe's folder",
    "script-missing": "line 8: [check] script 'nowhere.py' does not exist beside the recipe",
    "conda-address": "line 9: 'https://mirror.invalid/a-1-0.conda' names no package",
    "conda-bounds": "line 9: 'numpy >>1' is not a match spec: ",
    "conda-channel": "line 8: conda.channels: takes text that matches ",
    "target-driver": "line 8: target.driver: takes text that matches ",
    "newline-in-requirement": "line 8: python.dependencies: takes text that matches ",
}


@pytest.mark.parametrize("fault", sorted(MESSAGES))
def test_broken_recipes_name_file_line_and_key(fault: str) -> None:
    path = BROKEN / f"{fault}.toml"
    with pytest.raises(UsageError) as caught:
        read_recipe(path)
    assert str(caught.value).startswith(f"{path}, {MESSAGES[fault]}")
    assert caught.value.code == 2


def test_a_value_of_the_wrong_form_is_told_the_right_one() -> None:
    with pytest.raises(UsageError) as caught:
        read_recipe(BROKEN / "bad-python.toml")
    assert caught.value.hint == "it takes: a Python series, such as 3.12"


def test_every_broken_recipe_is_tested() -> None:
    assert {path.stem for path in BROKEN.glob("*.toml")} == set(MESSAGES)


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_bytes(b'[recipe]\nname = "\xff"\n')
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        read_recipe(path)


def test_text_of_an_editor_on_windows(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(GOOD, "utf-8")
    same = tmp_path / "windows" / "lab.toml"
    same.parent.mkdir()
    same.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert read_recipe(same)[0] == read_recipe(path)[0]


def test_script_through_a_link_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "secret.py").write_text("")
    (tmp_path / "r" / "check.py").symlink_to(tmp_path / "secret.py")
    text = GOOD + '[check]\nscript = "check.py"\n'
    with pytest.raises(UsageError, match="is a link that leaves the recipe's folder"):
        read_recipe(write(tmp_path / "r", text))


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_recipe(tmp_path)


@given(st.from_regex(PLAIN, fullmatch=True))
def test_what_is_taken_without_asking_is_a_match_spec(line: str) -> None:
    MatchSpec(line, strict=False)
