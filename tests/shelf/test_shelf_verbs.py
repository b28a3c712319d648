"""add, publish, search, show, get, make: the way of a recipe over a shelf, for both kinds of places."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from envbuild.lock.write import write_lock
from tests.shelf.people import lock_of, user


class TestTheWay:
    def test_what_one_publishes_another_finds_and_gets(self, place: str, tmp_path: Path) -> None:
        ann, bob = user(tmp_path / "ann", place), user(tmp_path / "bob", place)
        ann.recipe("small")
        said = ann.ok("shelf", "publish", "small")
        assert said.startswith("lab/small@")
        assert "published" in said
        rows = json.loads(bob.ok("shelf", "search", "small", "--json"))
        assert [(row["shelf"], row["name"], row["who"], row["number"]) for row in rows] == [
            ("lab", "small", "ann", 1)
        ]
        assert bob.ok("shelf", "get", "small").split() == [
            "recipes/small.toml",
            "lockfiles/small.lock",
            "recipes/small/check.py",
        ]
        for name in ("recipes/small.toml", "lockfiles/small.lock", "recipes/small/check.py"):
            assert (bob.folder / name).read_bytes() == (ann.folder / name).read_bytes()
        assert "fits" in bob.ok("lock", "small", "--check")

    def test_publishing_the_same_again_adds_nothing(self, place: str, tmp_path: Path) -> None:
        ann = user(tmp_path / "ann", place)
        ann.recipe("small")
        ann.ok("shelf", "publish", "small")
        assert ann.ok("shelf", "publish", "small") == ""
        assert json.loads(ann.ok("shelf", "show", "small", "--json"))["entry"]["number"] == 1

    def test_a_name_points_to_the_newest_and_keeps_its_history(
        self, place: str, tmp_path: Path
    ) -> None:
        ann, bob = user(tmp_path / "ann", place), user(tmp_path / "bob", place)
        ann.recipe("small", summary="the first")
        ann.ok("shelf", "publish", "small")
        first = json.loads(bob.ok("shelf", "show", "small", "--json"))["digest"]
        ann.recipe("small", summary="the second")
        ann.ok("shelf", "publish", "small")
        newest = json.loads(bob.ok("shelf", "show", "lab/small", "--json"))
        assert (newest["entry"]["number"], newest["entry"]["previous"]) == (2, first)
        bob.ok("shelf", "get", f"small@{first[7:19]}")
        assert "the first" in (bob.folder / "recipes/small.toml").read_text()
        said = bob.refused(2, "shelf", "get", "small")
        assert "recipes/small.toml is here already and different" in said
        bob.ok("shelf", "get", "small", "--force")
        assert "the second" in (bob.folder / "recipes/small.toml").read_text()
        shown = bob.ok("shelf", "show", "small")
        assert shown.count("history") == 2
        assert "not signed" in shown

    def test_an_entry_satisfies_its_schema(self, place: str, tmp_path: Path) -> None:
        import jsonschema

        ann = user(tmp_path / "ann", place)
        ann.recipe("small")
        ann.ok("shelf", "publish", "small")
        schema = json.loads(ann.ok("schema", "--of", "entry"))
        jsonschema.validate(json.loads(ann.ok("shelf", "show", "small", "--json"))["entry"], schema)

    def test_make_takes_the_lock_from_the_shelf(self, place: str, tmp_path: Path) -> None:
        ann, bob = user(tmp_path / "ann", place), user(tmp_path / "bob", place)
        ann.recipe("small")
        ann.ok("shelf", "publish", "small")
        result = bob.run("make", "lab/small", "--dry-run", ENVBUILD_RUNTIME="true")
        assert "lab/small@" in result.stderr
        assert "not signed" in result.stderr
        assert not (bob.folder / "recipes").exists()

    def test_what_changed_since_an_earlier_entry(self, place: str, tmp_path: Path) -> None:
        ann, bob = user(tmp_path / "ann", place), user(tmp_path / "bob", place)
        ann.recipe("small")
        ann.ok("shelf", "publish", "small")
        first = json.loads(bob.ok("shelf", "show", "small", "--json"))["digest"]
        recipe, lock = ann.folder / "recipes/small.toml", ann.folder / "lockfiles/small.lock"
        recipe.write_text(recipe.read_text().replace("six==1.16.0", "six==1.17.0"))
        newer = lock_of(recipe)
        package = msgspec.structs.replace(
            newer.python[0], version="1.17.0", file="six-1.17.0-py2.py3-none-any.whl"
        )
        lock.write_text(write_lock(msgspec.structs.replace(newer, python=(package,))))
        ann.ok("shelf", "publish", "small")
        assert "~ six 1.16.0 -> 1.17.0" in bob.ok("diff", f"lab/small@{first[7:19]}", "lab/small")
        assert "six==1.17.0" in bob.ok("def", "lab/small")
        assert "six==1.17.0" in bob.ok("show", "lab/small", "--script")
