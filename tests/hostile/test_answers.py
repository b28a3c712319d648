"""What a server sends is unpacked, kept and read within limits, whatever it says of it."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler

import httpx
import pytest
import zstandard

from envbuild import limits
from envbuild.errors import IntegrityError, NetworkError
from envbuild.limits import LINKS, MIB
from envbuild.net import simple
from envbuild.net.answers import read_bounded
from envbuild.net.index import read_links
from envbuild.net.simple import HTML_TYPES, PageError, links_of_html, links_of_json
from envbuild.net.web import make_client, open_response
from envbuild.settings import Settings
from tests.support import http_server

PAGE = "http://127.0.0.1/simple/a/"
MOST = MIB
GZIP = gzip.compress(bytes(256 * MIB), 1)


def answer(body: bytes, encoding: str) -> httpx.Response:
    """Return an answer that is still to be read."""
    asked = httpx.Request("GET", PAGE)
    headers = {"Content-Encoding": encoding}
    return httpx.Response(200, headers=headers, content=iter([body]), request=asked)


def peak_of(action: Callable[[], object]) -> int:
    """Return the bytes of memory that something takes at most."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("encoding", "body", "told"),
    [
        ("gzip", GZIP, "sends more than 1048576 bytes"),
        ("gzip, gzip", gzip.compress(GZIP), "packed by gzip, gzip"),
        ("zstd", zstandard.compress(bytes(MIB)), "packed by zstd"),
        ("X-GZIP", gzip.compress(b"x")[:-1], "ends in the middle"),
    ],
    ids=["once", "twice", "zstd", "cut"],
)
def test_a_packed_answer_that_unpacks_to_gigabytes(encoding: str, body: bytes, told: str) -> None:
    def read() -> None:
        with pytest.raises((IntegrityError, NetworkError), match=told):
            read_bounded(answer(body, encoding), MOST)

    assert peak_of(read) < 4 * MOST


@pytest.mark.parametrize("encoding", ["", "identity", "utf-8"])
def test_an_answer_that_is_not_packed(encoding: str) -> None:
    assert read_bounded(answer(b"abc", encoding), MOST) == b"abc"


def test_what_follows_the_packed_content_is_left_out() -> None:
    assert read_bounded(answer(gzip.compress(b"abc") + bytes(99), "gzip"), MOST) == b"abc"


class Flooding(BaseHTTPRequestHandler):
    """Sends hundreds of megabytes with a redirect or a refusal, and counts what was taken."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: object, status: int, taken: list[int]) -> None:
        self.status, self.taken = status, taken
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        floods = self.path == "/first" and not self.headers["X-Again"]
        size = 256 * MIB if floods else 2
        self.send_response(self.status if floods else 200)
        self.send_header("Location", "/second")
        self.send_header("Content-Length", str(size))
        self.end_headers()
        try:
            for _ in range(0, size, 65536):
                self.wfile.write(bytes(min(size, 65536)))
                self.taken[0] += min(size, 65536)
        except OSError:
            self.close_connection = True


class Again(httpx.Auth):
    """Asks once more where it is refused, as a registry's client does."""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        response = yield request
        if response.status_code == 401:
            request.headers["X-Again"] = "yes"
            yield request


@pytest.mark.parametrize("status", [301, 307, 401])
def test_a_body_that_nobody_asked_for_is_not_taken(status: int, user_settings: Settings) -> None:
    taken = [0]
    with (
        http_server(Flooding, status=status, taken=taken) as url,
        make_client(user_settings) as client,
    ):
        client.auth = Again()
        with open_response(client, f"{url}/first") as response:
            assert read_bounded(response, MOST) == bytes(2)
    assert taken[0] < 32 * MIB  # what sockets hold


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"{HTML_TYPES[0]}; charset={self.path.split('/')[1]}")
        self.end_headers()
        self.wfile.write(b'<a href="a-1.0.zip">')


@pytest.mark.parametrize("charset", ["no-such", "rot13", "idna", "undefined", "hex"])
def test_a_charset_that_nobody_knows(charset: str, user_settings: Settings) -> None:
    with http_server(Page) as url, make_client(user_settings) as client:
        (link,) = read_links(f"{url}/{charset}", "a", client)
    assert link.file == "a-1.0.zip"


PAGES: dict[str, Callable[[], object]] = {
    "links": lambda: links_of_html("<a href=a.zip>" * (LINKS + 1), PAGE),
    "tags": lambda: links_of_html("<!>" * (limits.PAGE // 3), PAGE),
    "entries": lambda: links_of_json(
        json.dumps({"files": [{"filename": "a", "url": "b"}] * (LINKS + 1)}).encode(), PAGE
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_more_files_than_any_project_has(name: str) -> None:
    with pytest.raises(PageError, match="too many for one project"):
        PAGES[name]()


def test_attributes_that_nobody_asks_for_are_not_kept() -> None:
    parser = simple._Anchors()
    parser.feed(f"<a href=a.zip {' '.join(map(str, range(9000)))}>")
    assert parser.anchors == [{"href": "a.zip"}]


def test_hashes_that_nobody_asks_for_take_nothing() -> None:
    hashes = ",".join(f'"{number}":"ab"' for number in range(300_000))
    page = f'{{"files": [{{"filename": "a-1.zip", "url": "a-1.zip", "hashes": {{{hashes}}}}}]}}'
    assert peak_of(lambda: links_of_json(page.encode(), PAGE)) < 2 * len(page)
