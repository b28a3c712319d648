from __future__ import annotations

import contextlib
import html
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.utils import canonicalize_name

from envbuild.net.simple import ARCHIVE, Link, PageError, links_of_html, links_of_json

PAGE = "https://mirror.invalid/simple/demo/"
SHA = "ab" * 32


def test_a_page_of_html_gives_names_hashes_times_and_yanked_marks() -> None:
    text = f"""<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.1"></head><body>
    <a href="../../files/demo-1.0-py3-none-any.whl#sha256={SHA}" data-upload-time="2024-05-01T10:00:00Z" data-requires-python="&gt;=3.8">demo</a><br>
    <a href="https://files.invalid/demo-1.1%2Bcu121.tar.gz?token=x#md5=00" data-yanked="broken">x</a>
    <a href="/simple/other/">other</a> <a name="top">top</a> <a href="">empty</a></body></html>"""
    assert links_of_html(text, PAGE) == (
        Link(
            file="demo-1.0-py3-none-any.whl",
            url="https://mirror.invalid/files/demo-1.0-py3-none-any.whl",
            sha256=SHA,
            uploaded="2024-05-01T10:00:00Z",
            requires_python=">=3.8",
        ),
        Link(
            file="demo-1.1+cu121.tar.gz",
            url="https://files.invalid/demo-1.1%2Bcu121.tar.gz?token=x",
            yanked=True,
        ),
    )


def test_a_page_of_json_gives_the_same_and_sizes() -> None:
    files = [
        {
            "filename": "demo-1.0.zip",
            "url": "demo-1.0.zip",
            "hashes": {"sha256": SHA.upper(), "md5": "0"},
            "size": 7,
            "upload-time": "2024-05-01T10:00:00.5+00:00",
            "yanked": "because",
            "requires-python": ">=3",
            "core-metadata": False,
        },
        {
            "filename": "demo-2.0.zip",
            "url": "demo-2.0.zip",
            "hashes": {},
            "size": -1,
            "yanked": False,
        },
    ]
    data = json.dumps({"meta": {"api-version": "1.3"}, "name": "demo", "files": files}).encode()
    assert links_of_json(data, PAGE) == (
        Link(
            file="demo-1.0.zip",
            url=f"{PAGE}demo-1.0.zip",
            sha256=SHA,
            size=7,
            uploaded="2024-05-01T10:00:00.5+00:00",
            yanked=True,
            requires_python=">=3",
        ),
        Link(file="demo-2.0.zip", url=f"{PAGE}demo-2.0.zip"),
    )


def test_a_base_address_moves_relative_links() -> None:
    text = '<base href="/mirror/"><base href="/no/"><a href="demo-1.0.zip">demo</a>'
    assert [link.url for link in links_of_html(text, PAGE)] == [
        "https://mirror.invalid/mirror/demo-1.0.zip"
    ]


HOSTILE_NAMES = [
    "../demo-1.0.zip",
    "/etc/demo-1.0.zip",
    "demo-1.0.zip\n",
    "demo\n-1.0.zip",
    ".demo-1.0.zip",
    "-demo-1.0.zip",
    "demo 1.0.zip",
    "demo-1.0.zip\x00.zip",
    "démo-1.0.zip",
    f"{'d' * 252}.zip",
    "demo-1.0.sh",
    "",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_file_names_are_left_out(name: str) -> None:
    data = json.dumps(
        {"files": [{"filename": name, "url": "https://mirror.invalid/x.zip"}]}
    ).encode()
    assert links_of_json(data, PAGE) == ()
    encoded = quote(name, safe="")
    assert links_of_html(f'<a href="https://mirror.invalid/{encoded}">x</a>', PAGE) == ()


@pytest.mark.parametrize(
    "href",
    [
        "file:///etc/demo-1.0.zip",
        "ftp://mirror.invalid/demo-1.0.zip",
        "javascript:demo-1.0.zip",
        "data:text/html,/demo-1.0.zip",
        "http://[::1/demo-1.0.zip",
        "https://mirror.invalid:port/demo-1.0.zip",
    ],
)
def test_links_that_leave_the_web_are_left_out(href: str) -> None:
    assert links_of_html(f'<a href="{href}">x</a>', PAGE) == ()
    assert (
        links_of_json(
            json.dumps({"files": [{"filename": "demo-1.0.zip", "url": href}]}).encode(), PAGE
        )
        == ()
    )


def test_a_base_address_cannot_open_the_file_system() -> None:
    assert links_of_html('<base href="file:///etc/"><a href="demo-1.0.zip">x</a>', PAGE) == ()


def test_a_local_page_may_lead_to_local_files() -> None:
    (link,) = links_of_html('<a href="demo-1.0.zip">x</a>', "file:///srv/simple/demo/")
    assert link.url == "file:///srv/simple/demo/demo-1.0.zip"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "is not an index page: Input data was truncated"),
        (b"[]", "is not an index page: Expected `object`, got `array`"),
        (
            b'{"files": [{"filename": 1, "url": ""}]}',
            "Expected `str`, got `int` - at `$.files[0].filename`",
        ),
        (
            b'{"meta": {"api-version": "2.0"}, "files": []}',
            "is of version '2.0'; this envbuild reads version 1",
        ),
        (b'{"files": ' + b"[" * 100_000, "is not an index page"),
        (b'{"files": "\xff\xfe"}', "is not an index page"),
    ],
)
def test_broken_json_is_told(data: bytes, text: str) -> None:
    with pytest.raises(PageError) as caught:
        links_of_json(data, PAGE)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<meta name="pypi:repository-version" content="2.0">', "is of version '2.0'"),
        ('<base href="http://[x"><a href="demo-1.0.zip">x</a>', "has an unusable base address"),
    ],
)
def test_broken_html_is_told(text: str, message: str) -> None:
    with pytest.raises(PageError) as caught:
        links_of_html(text, PAGE)
    assert message in str(caught.value)


def test_a_declaration_that_stops_older_parsers_gives_no_links() -> None:
    with contextlib.suppress(PageError):  # html.parser before 3.13.5 gives up on it
        assert links_of_html("<![x[ ", PAGE) == ()


@given(st.text(alphabet=st.sampled_from("<>!/?&;=[]\"'a b-#:CDATA\n\x00é"), max_size=80))
def test_no_html_breaks_the_parser(text: str) -> None:
    try:
        links = links_of_html(text, PAGE)
    except PageError:
        return
    assert all(ARCHIVE.fullmatch(link.file) for link in links)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader_of_json(data: bytes) -> None:
    with pytest.raises(PageError):
        links_of_json(data, PAGE)


NAME = st.from_regex(
    r"[a-z][a-z0-9_]{0,8}-[0-9]\.[0-9](\+cu[0-9]{3})?\.(tar\.gz|zip)", fullmatch=True
)
FILE = st.fixed_dictionaries(
    {
        "filename": st.one_of(NAME, st.sampled_from(["../x-1.zip", "x-1.exe", "a b.zip"])),
        "sha256": st.one_of(st.none(), st.just(SHA), st.just("zz")),
        "uploaded": st.one_of(st.none(), st.just("2024-05-01T10:00:00Z"), st.just("yesterday")),
        "yanked": st.one_of(st.just(False), st.text(alphabet='ab"<&', max_size=5)),
        "folder": st.sampled_from(
            ["", "../", "/f/", "https://files.invalid/p/", "ftp://files.invalid/", "?q=1&a=/"]
        ),
    }
)


def _as_html(file: dict[str, Any], href: str) -> str:
    attributes = {"href": href + (f"#sha256={file['sha256']}" if file["sha256"] else "")}
    if file["uploaded"] is not None:
        attributes["data-upload-time"] = file["uploaded"]
    if file["yanked"] is not False:
        attributes["data-yanked"] = file["yanked"]
    listed = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<a {listed}>{html.escape(file['filename'])}</a>"


@given(st.lists(FILE, max_size=5))
def test_html_and_json_pages_agree(files: list[dict[str, Any]]) -> None:
    anchors, entries = [], []
    for file in files:
        href = file["folder"] + quote(file["filename"], safe="")
        if "?" in href:
            href = quote(file["filename"], safe="") + file["folder"]
        anchors.append(_as_html(file, href))
        entry = {"filename": file["filename"], "url": href, "yanked": file["yanked"]}
        entry["hashes"] = {"sha256": file["sha256"]} if file["sha256"] else {}
        entry["upload-time"] = file["uploaded"]
        entries.append(entry)
    from_html = links_of_html("\n".join(anchors), PAGE)
    assert from_html == links_of_json(json.dumps({"files": entries}).encode(), PAGE)
    assert len(from_html) == sum(
        bool(ARCHIVE.fullmatch(f["filename"])) and not f["folder"].startswith("ftp") for f in files
    )


@pytest.mark.parametrize(
    ("name", "page"),
    [("Keras_Bert", "keras-bert"), ("ruamel.yaml", "ruamel-yaml"), ("A--B", "a-b")],
)
def test_project_names_are_normalized(name: str, page: str) -> None:
    assert canonicalize_name(name) == page
