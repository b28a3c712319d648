"""Search: words, filters, order, and shelves that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from envbuild.shelf.client import ShelfClient
from envbuild.shelf.model import CheckSummary, Entry, EntrySummary, write_entry
from envbuild.shelf.search import SearchResult, search_entries
from envbuild.store.hashing import digest_of
from tests.shelf.people import member, user
from tests.support import needs

X = digest_of(b"x")


def entry(
    name: str,
    framework: str,
    cuda: str | None,
    *,
    summary: str = "",
    passed: str = "",
    failed: str = "",
) -> Entry:
    verdicts = [("passed", passed), ("failed", failed)]
    return Entry(
        schema=1, name=name, number=1, previous=None, who="ann", when="2026-11-01T00:00:00Z", envbuild="0.1.0",
        recipe=X, lock=X, locked=X, definition=X,
        verdicts=tuple(
            CheckSummary(report=X, outcome=outcome, level="full", when="2026-11-01T00:00:00Z", gpu=(gpu,))  # type: ignore[arg-type]
            for outcome, gpu in verdicts if gpu
        ),
        about=EntrySummary(summary=summary, framework=framework, cuda=cuda, base="debian:bookworm", direct=("numpy>=1.26", f"lib-{name}")),
    )  # fmt: skip


ENTRIES = (
    entry(
        "bert", "tensorflow 2.15.1", "12.2.140", passed="NVIDIA A100-SXM4-40GB", failed="Tesla V100"
    ),
    entry("bert-old", "tensorflow 1.15.5", "11.2.152", summary="for the old course"),
    entry(
        "digits",
        "torch 2.5.1",
        "12.4.127",
        summary="like bert, but for pictures",
        passed="Tesla V100",
    ),
    entry("digits2", "torch 2.50.0", None),
)


@pytest.fixture
def library(tmp_path: Path) -> ShelfClient:
    ann = member(tmp_path / "ann", str(tmp_path / "shelf"))
    (tmp_path / "shelf/names").mkdir()
    for one in ENTRIES:
        (tmp_path / "shelf/names" / one.slot).write_bytes(write_entry(one))
    return ann.library


def names(rows: tuple[SearchResult, ...]) -> list[str]:
    return [row.name for row in rows]


@pytest.mark.parametrize(
    ("words", "filters", "expected"),
    [
        ([], {}, ["bert", "bert-old", "digits", "digits2"]),
        (["bert"], {}, ["bert", "bert-old", "digits"]),
        (["BERT", "course"], {}, ["bert-old"]),
        (["numpy"], {}, ["bert", "bert-old", "digits", "digits2"]),
        (["lib-digits2"], {}, ["digits2"]),
        (["nothing"], {}, []),
        ([], {"framework": "torch"}, ["digits", "digits2"]),
        ([], {"framework": "torch==2.5"}, ["digits"]),
        ([], {"framework": "Torch 2.5.*"}, ["digits"]),
        ([], {"framework": "tensorflow 2"}, ["bert"]),
        ([], {"cuda": "12"}, ["bert", "digits"]),
        ([], {"cuda": "12.4"}, ["digits"]),
        ([], {"cuda": "1"}, []),
        ([], {"gpu": "a100"}, ["bert"]),
        ([], {"gpu": "v100"}, ["digits"]),
        (["bert"], {"gpu": "V100", "framework": "torch"}, ["digits"]),
    ],
)
def test_words_and_filters(
    library: ShelfClient, words: list[str], filters: dict[str, str], expected: list[str]
) -> None:
    assert names(search_entries([library], words, **filters)) == expected


def test_a_card_that_failed_there_is_no_card_it_runs_on(library: ShelfClient) -> None:
    assert search_entries([library], ["bert"])[0].gpu == ("NVIDIA A100-SXM4-40GB",)


def test_a_shelf_that_is_away_is_told_and_left_out(tmp_path: Path) -> None:
    ann = user(tmp_path / "ann", str(tmp_path / "shelf"))
    ann.recipe("small")
    ann.ok("shelf", "publish", "small", "--to", "lab")
    ann.ok("shelf", "add", "away", str(tmp_path / "away"))
    (tmp_path / "away").rename(tmp_path / "gone")
    result = ann.run("shelf", "search", "--json")
    assert [row["name"] for row in json.loads(result.stdout)] == ["small"]
    assert "the shelf away is left out" in result.stderr
    assert "not there" in ann.ok("shelf", "list")
    (tmp_path / "shelf").rename(tmp_path / "gone too")
    assert "the shelf's folder is not there" in ann.refused(7, "shelf", "search")


def test_nothing_found_is_exit_code_1(tmp_path: Path) -> None:
    ann = user(tmp_path / "ann", str(tmp_path / "shelf"))
    assert "nothing on your shelves fits" in ann.refused(1, "shelf", "search", "x")
    ann.ok("shelf", "remove", "lab")
    assert "you have no shelf yet" in ann.refused(2, "shelf", "search", "x")


def test_a_name_on_two_shelves_must_be_told_apart(tmp_path: Path) -> None:
    ann = user(tmp_path / "ann", str(tmp_path / "shelf"))
    ann.ok("shelf", "add", "other", str(tmp_path / "other"))
    ann.recipe("small")
    assert "you have several shelves" in ann.refused(2, "shelf", "publish", "small")
    for shelf in ("lab", "other"):
        ann.ok("shelf", "publish", "small", "--to", shelf)
    assert "name one: lab/small, other/small" in ann.refused(2, "shelf", "show", "small")
    assert 'did you mean "small"' in ann.refused(2, "make", "lab/smal")


@needs("git")
def test_over_ssh_git_asks_for_nothing_but_its_own_protocol(tmp_path: Path) -> None:
    """git's ssh transport, with a program in ssh's place that runs the command here instead of on the host."""
    from tests.shelf.people import bare

    bare(tmp_path / "shelf.git")
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nfor last; do :; done\nexec sh -c "$last"\n'
    )
    ssh.chmod(0o755)
    place = f"git+ssh://lab.invalid{tmp_path}/shelf.git"
    ann, bob = (user(tmp_path / name) for name in ("ann", "bob"))
    for who in (ann, bob):
        who.env["GIT_SSH_COMMAND"] = str(ssh)
        who.ok("shelf", "add", "lab", place)
    ann.recipe("small")
    ann.ok("shelf", "publish", "small")
    bob.ok("shelf", "get", "small")
    asked = (tmp_path / "asked").read_text()
    assert "lab.invalid git-receive-pack" in asked
    assert "lab.invalid git-upload-pack" in asked
    assert msgspec.json.decode(bob.ok("shelf", "list", "--json"))[0]["url"] == place
