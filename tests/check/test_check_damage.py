"""Files of any distribution that are empty, cut or gone are told; what images lose on purpose is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.check.elf import shared_object
from tests.check.tree import Tree, failures, make_recipe

INFO = "clouds-1.0.dist-info"
OBJECT = "clouds/_fast.so"
FILES: dict[str, str | bytes] = {
    "clouds/__init__.py": "FONT = __file__.rpartition('/')[0] + '/sans.ttf'\n",
    "clouds/lazy.py": "VALUE = 1\n",
    "clouds/sans.ttf": b"\0\1\0\0" * 64,
    "clouds/more.ttf": b"\0\1\0\0" * 64,
    "clouds/notes.txt": "one\n" * 64,
    "clouds/tests/test_lazy.py": "assert True\n",
    "clouds/words/de.json": "{}\n",
    OBJECT: shared_object(["libc.so.6"]),
    f"{INFO}/entry_points.txt": "[clouds]\na = clouds.lazy\n",
}


def clouds_tree(root: Path) -> Tree:
    return Tree(root / "image").install("clouds", "1.0", FILES)


def say_of(tree: Tree) -> str:
    """Return what base-files says, "" where it does not fail."""
    return failures(tree.check(make_recipe("clouds"))).get("base-files", "")


def cut(path: str, size: int) -> Callable[[Tree], object]:
    return lambda tree: tree.write(path, (tree.site / path).read_bytes()[:size])


def lose(path: str) -> Callable[[Tree], object]:
    return lambda tree: (tree.site / path).unlink()


def lose_folder(path: str) -> Callable[[Tree], object]:
    def work(tree: Tree) -> None:
        for file in (tree.site / path).iterdir():
            file.unlink()
        (tree.site / path).rmdir()

    return work


def add(path: str, content: bytes) -> Callable[[Tree], object]:
    return lambda tree: tree.write(path, (tree.site / path).read_bytes() + content)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut("clouds/lazy.py", 0), "clouds/lazy.py is empty"),
        (cut(OBJECT, 0), f"{OBJECT} is empty"),
        (cut("clouds/more.ttf", 8), "clouds/more.ttf is 8 bytes, not 256"),
        (lose("clouds/lazy.py"), "clouds/lazy.py is gone"),
        (lose("clouds/sans.ttf"), "clouds/sans.ttf is gone"),
        (lose(f"{INFO}/METADATA"), f"{INFO}/METADATA is gone"),
        (lose(f"{INFO}/entry_points.txt"), f"{INFO}/entry_points.txt is gone"),
        (add(OBJECT, b"\0" * 70000), f"{OBJECT} is "),
    ],
)
def test_a_damaged_file_is_named_with_its_package(
    damage: Callable[[Tree], object], said: str, tmp_path: Path
) -> None:
    tree = clouds_tree(tmp_path)
    damage(tree)
    assert say_of(tree).startswith(f"clouds: {said}")


@pytest.mark.parametrize(
    "change",
    [
        lose("clouds/more.ttf"),
        lose("clouds/tests/test_lazy.py"),
        lose_folder("clouds/words"),
        add("clouds/lazy.py", b"VALUE = 2\n"),
        cut("clouds/notes.txt", 8),
        add(OBJECT, b"\0" * 4096),
        lambda tree: tree.write(f"{INFO}/INSTALLER", "conda\n") and cut(OBJECT, 0)(tree),
        lambda tree: tree.write("clouds/lazy.pyc", b"\0") and lose("clouds/lazy.py")(tree),
    ],
    ids=[
        "data that nobody names",
        "a test",
        "a whole folder",
        "a mended text",
        "a shorter text",
        "another search path",
        "changed by conda",
        "compiled beside",
    ],
)
def test_what_an_image_loses_on_purpose_is_no_damage(
    change: Callable[[Tree], object], tmp_path: Path
) -> None:
    tree = clouds_tree(tmp_path)
    change(tree)
    assert say_of(tree) == ""


def test_a_file_of_two_packages_is_no_damage(tmp_path: Path) -> None:
    tree = clouds_tree(tmp_path).install("skies", "1.0", {"clouds/lazy.py": ""})
    assert say_of(tree) == ""


def test_an_object_that_ends_before_its_segments_cannot_be_read(tmp_path: Path) -> None:
    whole = shared_object(["libc.so.6"])
    tree = Tree(tmp_path / "image").install("clouds", "1.0", {OBJECT: whole[:-9]})
    assert "it is cut off" in failures(tree.check(make_recipe("clouds")))["shared-libraries"]


@pytest.mark.parametrize(
    ("name", "text", "left"),
    [
        ("clouds/long.py", "def one():\n    return [1, 2]\n" * 9, 40),
        ("clouds/long.py", "VALUE = 123456\n" * 9, 25),
        ("clouds/words.json", '{"one": 1, "two": 2}\n', 12),
    ],
)
def test_a_text_that_ends_in_the_middle_is_damage(
    name: str, text: str, left: int, tmp_path: Path
) -> None:
    tree = Tree(tmp_path / "image").install("clouds", "1.0", {**FILES, name: text})
    cut(name, left)(tree)
    assert say_of(tree) == f"clouds: {name} is {left} bytes, not {len(text)}"


def test_an_editable_install_whose_folder_is_gone_is_told(tmp_path: Path) -> None:
    tree = clouds_tree(tmp_path)
    tree.write("here.pth", f"# a comment\nimport sys\n{tmp_path}\n")
    assert "leaks" not in failures(tree.check(make_recipe("clouds")))
    tree.write("_shop.pth", "/build/shop/src\n")
    said = failures(tree.check(make_recipe("clouds")))["leaks"]
    assert said.startswith("_shop.pth names /build/shop/src, which is not in the image: the pack")


@pytest.mark.parametrize(
    ("zone", "known"), [("America/New York", False), ("Europe/Berlin", True), ("EST5EDT", True)]
)
def test_a_time_zone_that_nobody_knows_is_told(zone: str, known: bool, tmp_path: Path) -> None:
    tree = clouds_tree(tmp_path)
    tree.env["TZ"] = zone
    said = failures(tree.check(make_recipe("clouds"))).get("leaks", "")
    assert said == ("" if known else f"TZ names {zone}, which is not in the image")


def test_a_framework_may_go_without_headers_where_not_every_file_is_asked_for(
    tmp_path: Path,
) -> None:
    files = {"torch/__init__.py": "", "torch/version.py": "cuda = None\n", "torch/include/a.h": "1"}
    tree = Tree(tmp_path / "image").install("torch", "2.5.1", files)
    (tree.site / "torch/include/a.h").unlink()
    recipe = make_recipe("torch")
    assert "base-files" not in failures(tree.check(recipe))
    said = failures(tree.check(recipe, level="full"))["base-files"]
    assert "torch/include/a.h" in said
