"""Facts as a file: the short form, the kept form, broken forms; and output that is no facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.base.facts import cached_facts, encode_facts, keep_facts, load_facts, read_probe
from envbuild.base.model import AptPackage, BaseFacts, Dist, facts_digest
from envbuild.errors import HostError, UsageError
from envbuild.store.layout import Store

SHORT = {
    "image": "org/app:1",
    "created": "2022-07-15",
    "python": "3.8.10",
    "machine": "x86_64",
    "glibc": "2.31",
}
PROBED: dict[str, Any] = {
    "python_path": "/usr/bin/python3",
    "python": "3.8.10",
    "abi": "cp38",
    "prefix": "/usr",
    "machine": "x86_64",
    "glibc": "2.31",
    "site": [],
    "externally_managed": False,
    "release": {"ID": "ubuntu", "VERSION_ID": "20.04"},
    "created": 1657843200,
    "dists": [],
    "apt": [["libc6", "2.31-0", "amd64"]],
    "libraries": [],
    "texts": {},
    "environment": {},
    "constraints": None,
}


def output(**changes: Any) -> str:
    return "a banner\nENVBUILD-FACTS " + json.dumps({**PROBED, **changes}) + "\n"


def write(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "base.json"
    path.write_text(content, encoding="utf-8")
    return path


def test_the_short_form_is_enough(tmp_path: Path) -> None:
    dists = [
        {"name": "numpy", "version": "1.22.4", "requires": [], "requires_python": None},
        {
            "name": "x",
            "version": "1",
            "requires": ["numpy (<1.25)"],
            "note": "no metadata on index",
        },
    ]
    facts = load_facts(write(tmp_path, json.dumps({**SHORT, "cuda": "11.4", "dists": dists})))
    assert facts == BaseFacts(
        image="org/app:1",
        created="2022-07-15",
        python="3.8.10",
        machine="x86_64",
        glibc="2.31",
        cuda="11.4",
        dists=(
            Dist(name="numpy", version="1.22.4"),
            Dist(name="x", version="1", requires=("numpy (<1.25)",), note="no metadata on index"),
        ),
    )
    assert facts.dist("NumPy") == facts.dists[0]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "is not JSON: Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        (json.dumps({"image": "x"}), "Object missing required field `python`"),
        (json.dumps({**SHORT, "glibc": 2.31}), "glibc: Expected `str`, got `float`"),
        (
            json.dumps({**SHORT, "dists": [{"name": "x"}]}),
            "dists[0]: Object missing required field `version`",
        ),
        (json.dumps({**SHORT, "schema": 2}), "was written by a newer envbuild (schema 2)"),
        (json.dumps({**SHORT, "created": "July"}), "created: 'July' is not a date like 2024-05-31"),
    ],
)
def test_a_broken_file_names_the_key(tmp_path: Path, content: str, what: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(UsageError) as caught:
        load_facts(path)
    assert str(caught.value) == f"{path}: {what}"


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file or directory"):
        load_facts(tmp_path / "none.json")


def test_what_the_probe_says_becomes_facts() -> None:
    facts = read_probe(output(), image="base.sif", digest="sha256:" + "0" * 64, size=5)
    assert (facts.distro, facts.created, facts.size, facts.framework) == (
        "ubuntu 20.04",
        "2022-07-15",
        5,
        None,
    )
    assert facts.apt == (AptPackage(name="libc6", version="2.31-0", architecture="amd64"),)
    assert read_probe(output(created=10**20), image="x").created is None
    assert read_probe(output(), image="x", created="2020-01-01").created == "2020-01-01"


@pytest.mark.parametrize(
    "text", ["", "bash: no\n", "ENVBUILD-FACTS {\n", "ENVBUILD-FACTS []\n", output(dists=[1])]
)
def test_output_without_facts_is_told(text: str) -> None:
    with pytest.raises(HostError) as caught:
        read_probe(text, image="base.sif")
    assert str(caught.value).startswith("base.sif: the probe in the image printed no facts, but: ")


def test_an_image_without_glibc_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        read_probe(output(glibc=None), image="alpine.sif")
    assert str(caught.value) == "alpine.sif: the image's C library is not glibc"
    assert "not Alpine" in (caught.value.hint or "")


def test_kept_facts_come_back_and_others_do_not(tmp_path: Path) -> None:
    store, digest = Store(tmp_path), "sha256:" + "a" * 64
    facts = read_probe(output(), image="x")
    assert cached_facts(digest, store) is None
    keep_facts(facts, digest, store)
    assert cached_facts(digest, store) == facts
    assert store.facts(digest).stat().st_mode & 0o777 == 0o444
    store.facts(digest).chmod(0o644)
    store.facts(digest).write_text(json.dumps({**SHORT, "schema": 99}))
    assert cached_facts(digest, store) is None
    store.facts(digest).write_text("{")
    assert cached_facts(digest, store) is None


DISTS = st.builds(
    Dist, name=st.text(min_size=1), version=st.text(), requires=st.lists(st.text()).map(tuple)
)
FACTS = st.builds(
    BaseFacts,
    image=st.text(),
    python=st.text(),
    machine=st.text(),
    glibc=st.text(),
    dists=st.lists(DISTS, max_size=3).map(tuple),
    environment=st.dictionaries(st.text(), st.text(), max_size=3),
    cuda=st.none() | st.text(),
)


@given(FACTS)
def test_facts_to_text_and_back_are_the_same_facts(facts: BaseFacts) -> None:
    text = encode_facts(facts)
    assert text.endswith(b"}\n")
    back = msgspec.json.decode(text, type=BaseFacts)
    assert back == facts
    assert facts_digest(back) == facts_digest(facts)
