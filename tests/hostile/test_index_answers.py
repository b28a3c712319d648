"""An index that answers with something else, drips, or lies about what wheels require."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from envbuild import limits
from envbuild.errors import EnvbuildError, IntegrityError, NetworkError
from envbuild.resolve.model import Request, Resolution
from envbuild.resolve.uv.resolver import UvResolver
from envbuild.settings import load_settings
from tests.resolve.conftest import base, sdist_bytes
from tests.support import quiet_context

JSON = "application/vnd.pypi.simple.v1+json"
WHEEL = "six-1.16.0-py3-none-any.whl"
SDIST = "six-1.16.0.tar.gz"
PAGE = "/simple/six/"
NETWORK = "check the network and the proxy variables; the index's address is under [indexes] in the settings"
HINTS = {
    200: "is it a package index? It may also be a proxy's login page",
    403: "give user and password in ~/.netrc, or ask who runs this server; a proxy may refuse it too",
    418: NETWORK,
    503: NETWORK,
}
"""What to do, by the status of the answer."""
Answer = tuple[str, bytes] | tuple[str, bytes, int]


def wheel(metadata: str, name: str = "six-1.16.0") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}.dist-info/METADATA", f"Metadata-Version: 2.1\n{metadata}")
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{name}.dist-info/RECORD", "")
    return buffer.getvalue()


SIX = wheel("Name: six\nVersion: 1.16.0\n")


def page(file: str, data: bytes, **more: object) -> Answer:
    row = {
        "filename": file,
        "url": f"/{file}",
        "hashes": {"sha256": hashlib.sha256(data).hexdigest()},
        **more,
    }
    text = json.dumps({"meta": {"api-version": "1.0"}, "name": "x", "files": [row]})
    return JSON, text.encode()


class Index:
    """Answers by path; ``dripping`` paths send a byte now and then and never end."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.dripping: set[str] = set()
        self.ended = threading.Event()
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def do_HEAD(self) -> None:
                index.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/simple"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        kind, data, *rest = self.answers.get(handler.path, ("text/plain", b"", 404))
        handler.send_response(int(rest[0]) if rest else 200)
        handler.send_header("Content-Type", kind)
        drips = handler.path in self.dripping
        if not drips:
            handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(data)
        with suppress(OSError):  # the other side has had enough
            while drips and not self.ended.wait(0.1):
                handler.wfile.write(b" ")
                handler.wfile.flush()


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    yield made
    made.ended.set()
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def ask(index: Index, tmp_path: Path) -> Callable[..., Resolution]:
    environment = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "ENVBUILD_STORE": str(tmp_path / "store"),
    }
    environment |= {
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "UV_HTTP_RETRIES": "0",
        "UV_HTTP_TIMEOUT": "2",
    }
    settings = load_settings({**environment, "ENVBUILD_INDEX": index.url}, tmp_path)
    return lambda *names: UvResolver(quiet_context(settings))(
        Request(facts=base(), requirements=names)
    )


@pytest.mark.parametrize(
    "answer",
    [
        (JSON, b'{"files": ['),
        (JSON, b"[]"),
        (JSON, b"<html></html>"),
        ("application/pdf", b"%PDF"),
        (
            JSON,
            b'{"meta": {}, "name": "six", "files": [{"filename": "six-1.0.tar.gz", "url": "http://[", "hashes": {}}]}',
        ),
        page(WHEEL, SIX, **{"upload-time": "yesterday"}),
        (JSON, b"", 418),
        (JSON, b"", 403),
        (JSON, b"", 503),
    ],
    ids=["cut JSON", "list", "HTML as JSON", "PDF", "address", "time", "teapot", "refused", "busy"],
)
def test_a_page_that_is_none_is_the_networks_fault(
    answer: Answer, index: Index, ask: Callable[..., Resolution]
) -> None:
    index.answers[PAGE] = answer
    with pytest.raises(NetworkError) as caught:
        ask("six")
    status = answer[2] if len(answer) == 3 else 200
    assert caught.value.hint == HINTS[status]


@pytest.mark.parametrize(
    ("file", "data"),
    [
        (SDIST, b"no archive at all" * 50),
        (
            SDIST,
            sdist_bytes(
                "six-1.16.0", {"PKG-INFO": "Metadata-Version: 2.1\nName: evil\nVersion: 1.16.0\n"}
            ),
        ),
        (
            SDIST,
            sdist_bytes(
                "six-1.16.0", {"PKG-INFO": "Metadata-Version: 2.1\nName: six\nVersion: 9\n"}
            ),
        ),
    ],
    ids=["no archive", "another package", "another release"],
)
def test_a_file_that_is_another_is_refused(
    file: str, data: bytes, index: Index, ask: Callable[..., Resolution]
) -> None:
    index.answers |= {PAGE: page(file, data), f"/{file}": ("application/octet-stream", data)}
    with pytest.raises(
        IntegrityError, match=r"not a readable source archive|name of its file says something else"
    ):
        ask("six")


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ("Name: evil\nVersion: 1.16.0\n", "says that it is evil 1.16.0"),
        ("Name: six\nVersion: 9.9\n", "says that it is six 9.9"),
    ],
)
def test_a_wheel_of_another_name_is_refused_though_the_index_lies_for_it(
    metadata: str, told: str, index: Index, ask: Callable[..., Resolution]
) -> None:
    data = wheel(metadata)
    honest = b"Metadata-Version: 2.1\nName: six\nVersion: 1.16.0\n"
    index.answers |= {
        PAGE: page(WHEEL, data, **{"core-metadata": True}),
        f"/{WHEEL}": ("application/zip", data),
    }
    index.answers[f"/{WHEEL}.metadata"] = ("text/plain", honest)
    with pytest.raises(IntegrityError) as caught:
        ask("six")
    assert told in str(caught.value)


EXTRA = "extra-1.0-py3-none-any.whl"
EXTRA_DATA = wheel("Name: extra\nVersion: 1.0\n", "extra-1.0")


@pytest.mark.parametrize(
    ("of_wheel", "of_index"),
    [
        ("", "Requires-Dist: extra\n"),
        ("Requires-Dist: extra\n", ""),
        ("Requires-Dist: extra<1\n", "Requires-Dist: extra\n"),
    ],
    ids=["added", "left out", "loosened"],
)
def test_metadata_that_differs_from_the_wheels_is_noticed(
    of_wheel: str, of_index: str, index: Index, ask: Callable[..., Resolution]
) -> None:
    said = "Name: six\nVersion: 1.16.0\n"
    data = wheel(said + of_wheel)
    index.answers |= {
        PAGE: page(WHEEL, data, **{"core-metadata": True}),
        f"/{WHEEL}": ("application/zip", data),
    }
    index.answers[f"/{WHEEL}.metadata"] = (
        "text/plain",
        f"Metadata-Version: 2.1\n{said}{of_index}".encode(),
    )
    index.answers |= {
        "/simple/extra/": page(EXTRA, EXTRA_DATA),
        f"/{EXTRA}": ("application/zip", EXTRA_DATA),
    }
    with pytest.raises(IntegrityError) as caught:
        ask("six")
    assert "requires something else than the index says of it: extra" in str(caught.value)


def test_an_honest_index_is_believed(index: Index, ask: Callable[..., Resolution]) -> None:
    said = "Name: six\nVersion: 1.16.0\nRequires-Dist: extra\n"
    data = wheel(said)
    index.answers |= {
        PAGE: page(WHEEL, data, **{"core-metadata": True}),
        f"/{WHEEL}": ("application/zip", data),
    }
    index.answers[f"/{WHEEL}.metadata"] = ("text/plain", f"Metadata-Version: 2.1\n{said}".encode())
    index.answers |= {
        "/simple/extra/": page(EXTRA, EXTRA_DATA),
        f"/{EXTRA}": ("application/zip", EXTRA_DATA),
    }
    assert [package.name for package in ask("six").packages] == ["extra", "six"]


@pytest.mark.parametrize("path", [PAGE, f"/{WHEEL}.metadata"])
def test_a_dripping_index_ends_and_is_named(
    path: str, index: Index, ask: Callable[..., Resolution], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUESTION_SECONDS", 3.0)
    monkeypatch.setattr(limits, "SEARCH_SECONDS", 0.5)
    answer = page(WHEEL, SIX, **({"core-metadata": True} if path.endswith("metadata") else {}))
    index.answers |= {
        PAGE: answer,
        f"/{WHEEL}": ("application/zip", SIX),
        f"/{WHEEL}.metadata": ("text/plain", b""),
    }
    index.dripping.add(path)
    with pytest.raises(NetworkError) as caught:
        ask("six")
    assert "resolving was ended after" in str(caught.value)
    assert f"{path} did not answer whole in time" in str(caught.value)


def test_a_page_over_which_uv_takes_too_much_memory(
    index: Index, ask: Callable[..., Resolution], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wheels that fit nowhere: 20,000 take 160 MB, and before it has asked uv has taken some 30."""
    monkeypatch.setattr(limits, "RESOLVER_MEMORY", 64 * limits.MIB)
    files = "".join(f"<a href=six-{n}-cp27-cp27mu-linux_x.whl></a>" for n in range(20_000))
    index.answers[PAGE] = ("text/html", files.encode())
    with pytest.raises(IntegrityError, match="uv took more than 64 MiB of memory") as caught:
        ask("six")
    assert f"asked last: {index.url}/six/" in str(caught.value)


def test_a_dripping_source_archive_ends(
    index: Index, ask: Callable[..., Resolution], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUESTION_SECONDS", 3.0)
    monkeypatch.setattr(limits, "SEARCH_SECONDS", 0.5)
    data = sdist_bytes(
        "six-1.16.0", {"PKG-INFO": "Metadata-Version: 2.1\nName: six\nVersion: 1.16.0\n"}
    )
    index.answers |= {PAGE: page(SDIST, data), f"/{SDIST}": ("application/gzip", b"")}
    index.dripping.add(f"/{SDIST}")
    with pytest.raises(EnvbuildError) as caught:
        ask("six")
    assert caught.value.code == NetworkError.code
    assert SDIST in str(caught.value)
