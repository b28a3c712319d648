"""Requirements are changed in the recipe's own text, which else stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from envbuild.errors import UsageError
from envbuild.recipe.edit import add_requirements, remove_requirements
from envbuild.recipe.find import find_recipe
from envbuild.recipe.undo import noting_before, settle_change, undo_path
from envbuild.settings import load_settings
from envbuild.store.layout import Store

PATH = Path("recipes/small.toml")
TEXT = """\
# the course of 2026
[recipe]
name = "small"   # as the file

[python]
# what the notebook imports
dependencies = [
  "six==1.16.0",  # old and small

  "NumPy>=1.26",
]
indexes = []
"""


def test_a_requirement_goes_to_the_end_and_nothing_else_changes() -> None:
    assert add_requirements(TEXT, ["polars"], PATH) == TEXT.replace(
        '  "NumPy>=1.26",\n', '  "NumPy>=1.26",\n  "polars",\n'
    )


def test_a_line_takes_the_place_of_that_of_its_package() -> None:
    changed = add_requirements(TEXT, ["numpy<2", "six"], PATH)
    assert changed == TEXT.replace("NumPy>=1.26", "numpy<2").replace("six==1.16.0", "six")


def test_a_removed_line_takes_its_comment_along() -> None:
    changed = remove_requirements(TEXT, ["SIX"], PATH)
    assert "old and small" not in changed
    assert "# what the notebook imports" in changed
    assert tomli.loads(changed)["python"]["dependencies"] == ["NumPy>=1.26"]


def test_all_lines_of_a_removed_package_go() -> None:
    """It may have one for each Python."""
    old, new = "numpy<2; python_version < '3.12'", "numpy>=2; python_version >= '3.12'"
    text = f'[recipe]\nname = "a"\n[python]\ndependencies = ["{old}", "six", "{new}"]\n'
    changed = remove_requirements(text, ["numpy"], PATH)
    assert tomli.loads(changed)["python"]["dependencies"] == ["six"]


@pytest.mark.parametrize(
    "text",
    [
        '[recipe]\nname = "a"\n',
        '[recipe]\nname = "a"\n[python]\n[check]\nimports = []\n',
        '[recipe]\nname = "a"\n[python]\nversion = "3.12"\n\n[check]\nimports = []\n',
        'python = { dependencies = ["six"] }\n[recipe]\nname = "a"\n',
        'python.dependencies = ["six"]\n[recipe]\nname = "a"\n',
        '[python]\r\ndependencies = [\r\n  "six"\r\n]\r\n[recipe]\r\nname = "a"\r\n',
    ],
)
def test_every_form_of_the_list_takes_one_more(text: str) -> None:
    before = tomli.loads(text)
    after = tomli.loads(add_requirements(text, ["polars>=1"], PATH))
    wanted = [*before.get("python", {}).get("dependencies", []), "polars>=1"]
    assert after.pop("python")["dependencies"] == wanted
    before.pop("python", None)
    assert after == before


@given(st.lists(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), unique=True, max_size=6))
def test_what_was_added_can_be_removed(names: list[str]) -> None:
    names = [name for name in names if name not in ("six", "numpy")]
    there = add_requirements(TEXT, names, PATH)
    assert tomli.loads(there)["python"]["dependencies"][2:] == names
    assert remove_requirements(there, names, PATH) == TEXT


def test_a_match_spec_takes_the_place_of_that_of_its_package() -> None:
    text = TEXT + '[conda]\nchannels = ["forge"]\ndependencies = ["python 3.12.*", "R-base"]\n'
    changed = add_requirements(text, ["r-base >=4", "bio::samtools"], PATH, "conda")
    wanted = '"python 3.12.*", "r-base >=4", "bio::samtools"]'
    assert changed == text.replace('"python 3.12.*", "R-base"]', wanted)
    assert remove_requirements(changed, ["samtools", "r-base"], PATH, "conda") == text.replace(
        ', "R-base"', ""
    )


@pytest.mark.parametrize("line", ["", "a b", "../lib", "-r x", "six; rm -rf /", "sïx", 'a"\nb'])
def test_what_is_no_requirement_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="is not a requirement: "):
        add_requirements(TEXT, [line], PATH)


def test_the_nearest_name_is_told() -> None:
    with pytest.raises(UsageError, match='has no nunpy; did you mean "numpy"'):
        remove_requirements(TEXT, ["nunpy"], PATH)


def test_a_project_goes_by_its_folder() -> None:
    text = add_requirements(TEXT, ["./lib"], PATH)
    with pytest.raises(UsageError) as caught:
        remove_requirements(text, ["my-lib"], PATH)
    assert "envbuild remove NAME ./lib" in (caught.value.hint or "")
    assert remove_requirements(text, ["./lib"], PATH) == TEXT


def store_of(path: Path) -> Store:
    return Store(path.parent / ".store")


class TestUndo:
    @pytest.fixture
    def files(self, tmp_path: Path) -> tuple[Path, Path, Path]:
        recipe, lock, image = tmp_path / "a.toml", tmp_path / "a.lock", tmp_path / "a.sif"
        for path in (recipe, lock, image):
            path.write_text(f"old {path.suffix}")
        recipe.chmod(0o640)
        return recipe, lock, image

    def test_all_is_put_back_where_the_image_is_as_it_was(
        self, files: tuple[Path, Path, Path]
    ) -> None:
        recipe, lock, _ = files

        def interrupted() -> None:
            with noting_before(*files, store_of(files[0])):
                recipe.write_text("new")
                lock.write_text("new")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert [path.read_text()[:3] for path in files] == ["old", "old", "old"]
        assert recipe.stat().st_mode & 0o777 == 0o640
        assert sorted(path.name for path in recipe.parent.iterdir()) == [
            ".store",
            "a.lock",
            "a.sif",
            "a.toml",
        ]

    def test_all_stays_where_the_image_has_changed(self, files: tuple[Path, Path, Path]) -> None:
        recipe, lock, image = files
        with noting_before(*files, store_of(files[0])):
            recipe.write_text("new")
            lock.write_text("new")
            image.unlink()
            image.write_text("new")
        assert [path.read_text() for path in files] == ["new", "new", "new"]
        assert not undo_path(recipe).exists()

    def test_a_first_lock_is_removed_again(self, files: tuple[Path, Path, Path]) -> None:
        _, lock, _ = files
        lock.unlink()
        with noting_before(*files, store_of(files[0])):
            lock.write_text("new")
        assert not lock.exists()

    def test_whoever_reads_next_settles_what_was_killed(self, tmp_path: Path) -> None:
        (tmp_path / "recipes").mkdir()
        recipe = tmp_path / "recipes/small.toml"
        recipe.write_text(TEXT + '[base]\nbootstrap = "debian:bookworm"\n')
        lock, image = tmp_path / "small.lock", tmp_path / "small.sif"
        with noting_before(recipe, lock, image, store_of(recipe)):
            note = undo_path(recipe).read_bytes()
        undo_path(recipe).write_bytes(note)
        before = recipe.read_text()
        recipe.write_text(add_requirements(before, ["polars"], recipe))
        lock.write_text("new")
        settings = load_settings(
            {
                "HOME": str(tmp_path),
                "PATH": "/nowhere",
                "ENVBUILD_STORE": str(store_of(recipe).root),
            },
            tmp_path,
        )
        assert "polars" not in find_recipe("small", settings).text
        assert not lock.exists()

    def test_a_change_that_is_under_way_is_left_alone(self, files: tuple[Path, Path, Path]) -> None:
        recipe, _, image = files
        with noting_before(*files, store_of(files[0])):
            recipe.write_text("new")
            settle_change(recipe, store_of(recipe))
            assert recipe.read_text() == "new"
            image.write_text("newer")
