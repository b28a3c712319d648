"""A package index and mirror on 127.0.0.1 that can lie, break off and dawdle; it notes what it was asked."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from envbuild.net.fetch import Artifact


@dataclass
class Page:
    """One address: what it holds, and what goes wrong.

    ``cuts`` are the body lengths after which the next connections break off; ``first`` are statuses that come before
    the real one; ``drip`` is (bytes, seconds) of a slow body; ``says`` is the announced length (-1: none).
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    lies_about_range: bool = False
    head: bool = True
    cuts: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    drip: tuple[int, float] | None = None
    says: int | None = None
    hang: bool = False
    before: Callable[[], None] | None = None


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, Page] = {}
        self.asked: list[Asked] = []
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def index(self) -> str:
        return f"{self.url}/simple"

    def handle_error(self, request: object, client_address: object) -> None:
        """Stay silent: clients of these tests break off all the time."""

    def offer(
        self,
        file: str,
        body: bytes,
        *,
        project: str = "demo",
        hashed: bool = True,
        **faults: object,
    ) -> Artifact:
        """Serve a wheel and list it on its project's page."""
        digest = hashlib.sha256(body).hexdigest()
        self.pages[f"/files/{file}"] = Page(body=body, **faults)  # type: ignore[arg-type]
        page = self.pages.setdefault(
            f"/simple/{project}/", Page(headers={"Content-Type": "text/html"})
        )
        page.body += (
            f'<a href="/files/{file}{"#sha256=" + digest if hashed else ""}">{file}</a>\n'.encode()
        )
        return Artifact(file=file, size=len(body), sha256=digest, kind="python", project=project)

    def offer_deb(self, path: str, body: bytes, **faults: object) -> Artifact:
        """Serve a Debian package below /debian."""
        self.pages[f"/debian/{path}"] = Page(body=body, **faults)  # type: ignore[arg-type]
        file = path.rsplit("/", 1)[1]
        digest = hashlib.sha256(body).hexdigest()
        return Artifact(
            file=file, size=len(body), sha256=digest, kind="debian", project="demo", path=path
        )

    def ranges_asked(self, file: str) -> list[str | None]:
        return [
            a.headers.get("range")
            for a in self.asked
            if a.path == f"/files/{file}" and a.method == "GET"
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write nothing."""

    def do_HEAD(self) -> None:
        self._answer(body_too=False)

    def do_GET(self) -> None:
        self._answer(body_too=True)

    def _answer(self, *, body_too: bool) -> None:
        self.server.asked.append(
            Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()})
        )
        page = self.server.pages.get(self.path, Page(status=404, body=b"no"))
        if page.before is not None:
            page.before()
        if page.hang:
            self.server.stopping.wait(60)
            self.close_connection = True
            return
        status, body, headers = page.status, page.body, dict(page.headers)
        if page.first:
            status, body = page.first.pop(0), b"try again"
        elif not page.head and not body_too:
            status, body = 405, b""
        elif self.headers.get("Range") and page.ranges and status == 200:
            start = int(self.headers["Range"].removeprefix("bytes=").split("-")[0])
            asked_end = self.headers["Range"].split("-")[1]
            end = min(len(body), int(asked_end) + 1) if asked_end else len(body)
            told = start + 1 if page.lies_about_range else start
            status = 206 if start < len(body) else 416
            headers["Content-Range"] = f"bytes {told}-{end - 1}/{len(body)}"
            body = body[start:end]
        self._send(page, status, headers, body if body_too else b"", len(body))

    def _send(
        self, page: Page, status: int, headers: dict[str, str], body: bytes, length: int
    ) -> None:
        cut = page.cuts.pop(0) if page.cuts and body and status < 300 else None
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if page.says != -1:
            self.send_header("Content-Length", str(length if page.says is None else page.says))
        if page.says is not None or cut is not None:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        body = body if cut is None else body[:cut]
        step, pause = page.drip or (len(body) or 1, 0.0)
        for start in range(0, len(body), step):
            self.wfile.write(body[start : start + step])
            self.wfile.flush()
            if pause and self.server.stopping.wait(pause):
                return


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.005}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


def until(condition: Callable[[], bool], *, seconds: float = 120.0) -> None:
    """Wait until something holds; fail when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
