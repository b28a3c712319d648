"""docs/ja: the pages for users in Japanese, with the same sections and commands as the English ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envbuild.cli import VERBS
from tests.docs.pages import README, ROOT, anchors, rows, section, without_code

ENGLISH_ONLY = ("decisions", "performance")
"""Pages for the developers of envbuild."""
ENGLISH = (
    README,
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.stem not in ENGLISH_ONLY),
)
"""Every page for users has a Japanese page of the same name."""
FENCE = re.compile(r"^```.*?^```$|(?:(?<=\n\n)|\A)(?:^ {4}[^\n]*\n)+", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"(?:^|\s+)#(?![!$]).*$", re.MULTILINE)
"""What is translated inside a block.  A directive of a scheduler and the first line of a script are no comments."""

TABLE_ROW = re.compile(r"^\|", re.MULTILINE)
LIST_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ", re.MULTILINE)
NAMED = re.compile(r"(?<![\w-])--[a-z][a-z-]+|\[[a-z]+\](?!\()")
"""An option (--mode), or a section of a recipe ([conda])."""


def _japanese(page: Path) -> Path:
    return ROOT / "docs/ja" / page.name


def _code(text: str) -> list[str]:
    """Return the blocks of a page, fenced or indented, in order."""
    return [found[0].rstrip("\n") for found in FENCE.finditer(text)]


def _prose(page: Path) -> str:
    return re.sub("<!--.*?-->", "", FENCE.sub("", page.read_text("utf-8")))


def _plain(block: str) -> str:
    return COMMENT.sub("", block)


def _name(page: Path) -> str:
    return page.name


@pytest.mark.parametrize("page", ENGLISH, ids=_name)
def test_the_code_is_the_same_in_both_languages(page: Path, request: pytest.FixtureRequest) -> None:
    other = _japanese(page)
    text = other.read_text("utf-8")
    wanted, found = _code(page.read_text("utf-8")), _code(text)
    assert len(wanted) == len(found), (
        f"{other.name} has {len(found)} blocks, the English page {len(wanted)}"
    )
    if request.config.getoption("--update-golden"):
        for new, old in zip(wanted, found, strict=True):
            if _plain(new) != _plain(old):
                text = text.replace(old, new, 1)
        other.write_text(text, "utf-8")
        found = _code(text)
    assert [_plain(block) for block in found] == [_plain(block) for block in wanted]


def test_a_changed_command_is_seen_and_a_translated_comment_is_not() -> None:
    page = "```sh\nenvbuild make NAME   # builds\n```\n\n    envbuild check NAME\n"
    assert [_plain(block) for block in _code(page)] == [
        "```sh\nenvbuild make NAME\n```",
        "    envbuild check NAME",
    ]
    assert _plain("#$ -cwd") == "#$ -cwd"


@pytest.mark.parametrize("page", ENGLISH, ids=_name)
def test_the_pages_lead_to_each_other(page: Path) -> None:
    forth = "docs/ja/README.md" if page == README else f"ja/{page.name}"
    back = "../../README.md" if page == README else f"../{page.name}"
    assert f"[日本語]({forth})" in page.read_text("utf-8")
    assert f"[English]({back})" in _japanese(page).read_text("utf-8")


@pytest.mark.parametrize("page", sorted((ROOT / "docs/ja").glob("*.md")), ids=_name)
def test_links_of_the_japanese_pages_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8"))):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(file.read_text("utf-8")), (
            f"{page.name} links to {target}"
        )


def test_the_japanese_readme_has_every_verb() -> None:
    text = section((ROOT / "docs/ja/README.md").read_text("utf-8"), "## コマンド")
    verbs = [f"`{name}`" for name in VERBS]
    assert sorted(row[0] for row in rows(text) if row[0].startswith("`")) == sorted(verbs)


@pytest.mark.parametrize("page", ENGLISH, ids=_name)
def test_both_languages_have_the_same_sections(page: Path) -> None:
    english, japanese = (
        re.findall(r"^#+(?= )", _prose(text), re.MULTILINE) for text in (page, _japanese(page))
    )
    assert japanese == english


@pytest.mark.parametrize("page", ENGLISH, ids=_name)
def test_both_languages_have_the_same_tables_and_lists(page: Path) -> None:
    english, japanese = _prose(page), _prose(_japanese(page))
    for pattern in (TABLE_ROW, LIST_ITEM):
        assert len(pattern.findall(japanese)) == len(pattern.findall(english)), pattern.pattern


@pytest.mark.parametrize("page", ENGLISH, ids=_name)
def test_both_languages_name_the_same_options_and_sections(page: Path) -> None:
    english, japanese = (set(NAMED.findall(_prose(text))) for text in (page, _japanese(page)))
    assert sorted(japanese) == sorted(english)


def test_every_japanese_page_is_linked_from_the_japanese_readme() -> None:
    readme = (ROOT / "docs/ja/README.md").read_text("utf-8")
    pages = [page.name for page in (ROOT / "docs/ja").glob("*.md") if page.name != "README.md"]
    assert [name for name in pages if f"({name})" not in readme] == []
