"""A server on 127.0.0.1 before an index and a mirror: it hands their answers on, or fails as a dead network does."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Literal
from urllib.parse import quote, unquote

import httpx

from tests.support import SilentServer

Fault = Literal["refused", "silent", "drip", "reset", "403", "500", "late reset", "late 500"]
FAULTS: tuple[Fault, ...] = (
    *("refused", "silent", "drip", "reset", "403", "500"),
    *("late reset", "late 500"),
)
"""Nobody listens, or answers; headers that drip; half of a body; a refusal; the last two meet files alone."""
FILE = re.compile(r"\.(whl|tar\.gz|zip|deb)$")
LINK = re.compile(rb'href="(https?://[^"#]+)')
LATE = "late "
PAUSE = 0.05
"""Seconds between two bytes that drip."""


@dataclass
class FaultyServer:
    """``index`` and ``mirror`` are what it stands before; without a ``fault`` all is well."""

    index: str
    mirror: str
    fault: Fault | None = None
    port: int = 0
    asked: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def variables(self) -> dict[str, str]:
        """Return what leads envbuild here."""
        url = f"http://127.0.0.1:{1 if self.fault == 'refused' else self.port}"
        return {"ENVBUILD_INDEX": f"{url}/simple", "ENVBUILD_DEBIAN_MIRROR": f"{url}/debian"}

    def fault_of(self, path: str) -> str | None:
        if self.fault is None or not self.fault.startswith(LATE):
            return self.fault
        return self.fault.removeprefix(LATE) if FILE.search(path) else None

    def place_of(self, path: str) -> str:
        """Return the address that a path here stands for."""
        kind, _, rest = path.lstrip("/").partition("/")
        if kind == "file":
            return unquote(rest)
        return f"{(self.index if kind == 'simple' else self.mirror).rstrip('/')}/{rest}"


class FailingHandler(BaseHTTPRequestHandler):
    """Answers as a dead network does."""

    stopping: threading.Event

    def fail(self, fault: str) -> None:
        if fault.isdigit():
            self.send_error(int(fault))
        elif fault == "silent":
            self.stopping.wait()
        elif fault == "drip":
            self.drip(b"HTTP/1.1 200 OK\r\nX-Late: " + b"a" * 1_000_000)
        else:
            self.reset()

    def drip(self, data: bytes) -> None:
        for byte in data:
            self.wfile.write(bytes([byte]))
            if self.stopping.wait(PAUSE):
                return

    def reset(self) -> None:
        """Send half of what was said, then end the connection as a broken line does.

        The length of the whole is not said: another one than locked accuses the server.
        """
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4E20\r\n"
        self.wfile.write(head + bytes(10_000))
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Handler(FailingHandler):
    served: FaultyServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.served.asked.append(path)
        fault = self.served.fault_of(path)
        with contextlib.suppress(OSError):
            if fault is None:
                self.hand_on(path)
            else:
                self.fail(fault)

    def hand_on(self, path: str) -> None:
        headers = {"Accept": "text/html, */*;q=0.1"}
        found = httpx.get(self.served.place_of(path), headers=headers, follow_redirects=True)
        here = f'href="http://127.0.0.1:{self.served.port}/file/'
        body = LINK.sub(
            lambda link: here.encode() + quote(link[1].decode()).encode(), found.content
        )
        self.send_response(found.status_code)
        self.send_header("Content-Type", found.headers.get("Content-Type", "text/html"))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def standing_before(index: str, mirror: str) -> Iterator[FaultyServer]:
    """Lend a server."""
    served = FaultyServer(index, mirror)
    with SilentServer(
        ("127.0.0.1", 0),
        type("Handler", (_Handler,), {"served": served, "stopping": served.stopping}),
    ) as server:
        served.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield served
        finally:
            served.stopping.set()
            server.shutdown()
