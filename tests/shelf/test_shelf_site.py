"""The pages of a shelf: what they show, that nothing of a shelf becomes markup, and that they ask nobody."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.lock.read import read_lock
from envbuild.shelf.site.gather import (
    HEIGHT,
    WIDTH,
    dependency_tree,
    entry_pages,
    lay_out_treemap,
    layer_sizes,
)
from envbuild.shelf.site.model import DependencyNode, EntryPage, PageCommand
from envbuild.shelf.site.write import write_site
from tests.shelf.leaves import HOSTILE, ROOT, full_leaf, many
from tests.shelf.people import user
from tests.support import Golden, quiet_context


class Page(HTMLParser):
    """Notes tags, attributes and text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("style", "script"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("style", "script"):
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.said.append(data)


def written(folder: Path, *found: EntryPage) -> dict[str, str]:
    write_site(folder, "lab", found)
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in folder.rglob("*.html")
    }


def test_the_whole_pages(tmp_path: Path, golden: Golden) -> None:
    small = replace(
        full_leaf(),
        sizes=full_leaf().sizes[:3],
        tiles=full_leaf().tiles[:3],
        roots=full_leaf().roots[:1],
    )
    pages = written(tmp_path, small, EntryPage(name="broken", refused="it was changed"))
    golden("shelf/index.html", pages["index.html"])
    golden("shelf/entry.html", pages["recipes/keras-bert.html"])
    assert set(pages) == {"index.html", "recipes/keras-bert.html", "recipes/broken.html"}


def test_what_a_shelf_says_is_never_markup(tmp_path: Path) -> None:
    leaf = replace(
        full_leaf(),
        summary=HOSTILE,
        framework=HOSTILE,
        cuda=HOSTILE,
        base=HOSTILE,
        who=HOSTILE,
        signer=HOSTILE,
        python=HOSTILE,
        recipe=HOSTILE,
        lock=HOSTILE,
        direct=(HOSTILE,),
        post=(HOSTILE,),
        commands=(PageCommand(title=HOSTILE, lines=HOSTILE),),
    )
    for text in written(tmp_path, leaf, EntryPage(name="broken", refused=HOSTILE)).values():
        page = Page(text)
        assert [tag for tag, _ in page.tags].count("script") == 1
        assert not [
            name for _, attributes in page.tags for name in attributes if name.startswith("on")
        ]
        assert HOSTILE in "".join(page.said)
        assert "49" not in re.findall(r"\b7\*7\b|\b49\b", "".join(page.said))


ADDRESS = "\"><a href=javascript:alert(1) onclick=x>'<script>alert(1)</script>"


def harmed(value: Any) -> Any:
    """Return a value of a page whose texts are all such an address."""
    if isinstance(value, tuple):
        return tuple(map(harmed, value))
    if is_dataclass(value) and not isinstance(value, type):
        changes = {field.name: harmed(getattr(value, field.name)) for field in fields(value)}
        return replace(value, **changes)
    return ADDRESS if isinstance(value, str) else value


@pytest.mark.parametrize(
    "name", [field.name for field in fields(EntryPage) if field.name != "name"]
)
def test_no_field_of_an_entry_is_an_address_of_code(name: str, tmp_path: Path) -> None:
    leaf = full_leaf()
    leaf = replace(leaf, **{name: harmed(getattr(leaf, name))})
    for text in written(tmp_path, leaf).values():
        tags = Page(text).tags
        assert [tag for tag, _ in tags].count("script") == 1
        for _, attributes in tags:
            assert not (attributes.get("href") or "").startswith("javascript:")
            assert not [attribute for attribute in attributes if attribute.startswith("on")]


def test_pages_ask_nobody(tmp_path: Path) -> None:
    for name, text in written(tmp_path, *many(4)).items():
        for tag, attributes in Page(text).tags:
            assert tag not in ("link", "img", "iframe", "object", "embed", "base"), name
            assert "src" not in attributes, name
            assert "style" not in attributes, name
            target = attributes.get("href") or "#"
            assert (
                target.startswith("#")
                or (tmp_path / Path(name).parent / target).resolve().is_file()
            ), target
        policy = next(
            a["content"]
            for t, a in Page(text).tags
            if a.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy is not None
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy


def test_the_same_shelf_gives_the_same_pages(tmp_path: Path) -> None:
    assert written(tmp_path / "one", *many(3)) == written(tmp_path / "two", *many(3))


def test_the_card_says_what_people_ask_for(tmp_path: Path) -> None:
    text = re.sub(r"\s+", " ", "".join(Page(written(tmp_path, full_leaf())["index.html"]).said))
    for asked in (
        "tensorflow 2.15.1",
        "12.2",
        "3.11.2",
        "debian:bookworm",
        "2.7 GB",
        "passed 2026-11-20",
        "A100",
        "535.104.05",
    ):
        assert asked in text


def test_a_published_recipe_is_shown_with_what_changed(place: str, tmp_path: Path) -> None:
    ann = user(tmp_path / "ann", place)
    ann.recipe("small", summary="the first")
    ann.ok("shelf", "publish", "small")
    lock = ann.folder / "lockfiles/small.lock"
    ann.recipe("small", summary="the second")
    lock.write_text(
        lock.read_text().replace("1.16.0", "1.17.0").replace("six==1.17.0", "six==1.16.0")
    )
    ann.ok("shelf", "publish", "small")
    (ann.folder / "sites").mkdir()
    (ann.folder / "sites/broken.toml").write_text("x = [")
    said = ann.ok("shelf", "site", "pages")
    assert said.endswith("index.html: 2 pages\n")
    page = "".join(Page((ann.folder / "pages/recipes/small.html").read_text()).said)
    assert "~ six 1.16.0 -> 1.17.0" in page
    assert "envbuild make lab/small" in page
    assert "envbuild submit small --on amane -- python train.py" in page
    assert "sbatch job.sh" in page
    assert "tsubame3" not in page, "a site that has closed"
    assert "not signed" in page
    assert "six==1.16.0" in page


def test_what_was_tampered_with_is_shown_as_refused(tmp_path: Path) -> None:
    ann = user(tmp_path / "ann", str(tmp_path / "shelf"))
    ann.recipe("small")
    ann.ok("shelf", "publish", "small")
    for path in (tmp_path / "shelf/objects").rglob("*"):
        if path.is_file() and b"A small recipe" in path.read_bytes():
            path.chmod(0o644)
            path.write_bytes(path.read_bytes().replace(b"small recipe", b"SMALL recipe"))
    ann.ok("shelf", "site", "pages")
    assert "was changed on the shelf" in (ann.folder / "pages/index.html").read_text()
    assert "Not to be used" in (ann.folder / "pages/recipes/small.html").read_text()


def test_an_empty_shelf_has_an_empty_page(tmp_path: Path) -> None:
    ann = user(tmp_path / "ann", str(tmp_path / "shelf"))
    assert "1 page" in ann.ok("shelf", "site", "pages")
    assert "0 locked recipes" in (ann.folder / "pages/index.html").read_text()
    ann.refused(2, "shelf", "site", "pages/index.html")


class TestTree:
    @pytest.mark.parametrize("name", ["keras-bert", "torch-mnist"])
    def test_every_package_is_drawn_below_what_wants_it(self, name: str) -> None:
        lock = read_lock(ROOT / f"lockfiles/{name}.lock")
        via = {p.name: p.via for p in lock.installed}
        drawn: set[str] = set()

        def walk(branch: DependencyNode, parent: str) -> None:
            assert parent in via[branch.name]
            drawn.add(branch.name)
            for below in branch.needs:
                walk(below, branch.name)

        for root in dependency_tree(lock):
            walk(root, "(direct)")
        assert drawn == set(via)

    def test_a_circle_ends(self) -> None:
        lock = read_lock(ROOT / "lockfiles/keras-bert.lock")
        one, two = lock.python[0], lock.python[1]
        circle = (
            msgspec.structs.replace(one, name="a", group="project", via=("(direct)", "b")),
            msgspec.structs.replace(two, name="b", group="project", via=("a",)),
        )
        roots = dependency_tree(msgspec.structs.replace(lock, python=circle))
        assert [r.name for r in roots] == ["a"]
        assert roots[0].needs[0].needs[0].again


class TestTreemap:
    @given(
        st.dictionaries(
            st.sampled_from(["base", "framework", "packages"]),
            st.lists(st.tuples(st.text(max_size=5), st.integers(0, 10**10)), max_size=30),
        )
    )
    def test_tiles_fill_the_drawing_and_share_it_by_size(
        self, layers: dict[str, list[tuple[str, int]]]
    ) -> None:
        tiles = lay_out_treemap(layers)
        whole = sum(size for rows in layers.values() for _, size in rows)
        assert sum(tile.size for tile in tiles) == whole
        for tile in tiles:
            assert -0.1 <= tile.x <= tile.x + tile.width <= WIDTH + 0.2
            assert -0.1 <= tile.y <= tile.y + tile.height <= HEIGHT + 0.2
        if whole:
            assert sum(t.width * t.height for t in tiles) == pytest.approx(WIDTH * HEIGHT, rel=0.03)

    def test_of_a_real_lock(self) -> None:
        lock = read_lock(ROOT / "lockfiles/keras-bert.lock")
        tiles = lay_out_treemap(layer_sizes(lock))
        assert max(tiles, key=lambda tile: tile.size).label == "nvidia-cudnn-cu12"
        assert {tile.layer for tile in tiles} == {"base", "system", "framework", "packages"}


def test_leaves_are_read_one_by_one(tmp_path: Path) -> None:
    from envbuild.settings import load_settings
    from envbuild.shelf.config import open_shelf

    ann = user(tmp_path / "ann", str(tmp_path / "shelf"))
    ann.recipe("small")
    ann.ok("shelf", "publish", "small")
    library = open_shelf("lab", quiet_context(load_settings(ann.env, ann.folder)))
    (leaf,) = entry_pages(library, lambda _entry: ())
    assert (leaf.name, leaf.framework, leaf.direct, leaf.refused) == (
        "small",
        "torch 2.5.1",
        ("six==1.16.0",),
        "",
    )
    assert leaf.words.startswith("small a small recipe for shelves torch 2.5.1")
