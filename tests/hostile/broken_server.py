"""A server on 127.0.0.1 whose files break off, drip, or never begin, as it is told."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Literal

from tests.support import SilentServer

Fault = Literal["cut", "drip", "headers", "short", "once", "always", "login", "circle"]
FAULTS: tuple[Fault, ...] = ("cut", "drip", "headers")
"""The connection ends after half of the body; the body comes byte by byte; the headers do.

Two more: half of the body is said to be all ("short"), the first answer is a failure ("once").
"""
ANSWERS: tuple[Fault, ...] = ("always", "login", "circle")
"""Every answer is a failure; the page of a network's login; it leads to itself."""
LOGIN = b"<!DOCTYPE html><html><body><form action='/login'>Campus network</form></body></html>"
PAUSE = 0.05
"""Seconds between two bytes that drip."""


@dataclass
class BrokenServer:
    """Files by path, with their media types; what ends with ``broken`` has the ``fault``."""

    url: str = ""
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    fault: Fault | None = None
    broken: str = ""
    hits: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    def offer(self, path: str, body: bytes, kind: str = "application/octet-stream") -> str:
        """Serve a file and return its address."""
        self.files[path] = (kind, body)
        return f"{self.url}{path}"

    def offer_folder(self, path: str, folder: Path) -> str:
        """Serve all files of a folder and return its address."""
        for file in folder.rglob("*"):
            if file.is_file():
                self.offer(f"{path}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        return f"{self.url}{path}"

    def fault_of(self, path: str) -> Fault | None:
        """Return what is to go wrong now."""
        if self.fault is None or not path.endswith(self.broken):
            return None
        self.hits += 1
        return self.fault


def tag_of(body: bytes) -> str:
    """Return the ETag of a file: a server knows it by the whole file, whatever it sends of it."""
    return f'"{hashlib.sha256(body).hexdigest()}"'


def _part_of(body: bytes, asked: str) -> tuple[int, int]:
    """Return the first byte and the end of what a Range header asks for."""
    first, _, last = asked.removeprefix("bytes=").partition("-")
    if not first:
        return max(0, len(body) - int(last)), len(body)
    return int(first), min(len(body), int(last) + 1) if last else len(body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: BrokenServer
    tag = ""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path not in self.served.files:
            self.send_error(404)
            return
        fault = self.served.fault_of(path) if self.command == "GET" else None
        self.close_connection = fault is not None
        if fault == "headers":
            self.drip(b"HTTP/1.1 200 OK\r\nX-Late: " + b"a" * 100_000)
            return
        if fault == "once":
            self.served.fault = None
            self.send_error(503)
            return
        kind, body = self.served.files[path]
        if self.headers.get("If-None-Match") == tag_of(body):
            self.send_response(304)
            self.end_headers()
            return
        self.tag = tag_of(body)
        if fault == "short":
            body, fault = body[: len(body) // 2], None
        body = self.begin_answer(kind, body)
        half = len(body) // 2
        if self.command == "GET":
            self.wfile.write(body if fault is None else body[:half])
        if fault == "drip":
            self.drip(body[half:])

    def begin_answer(self, kind: str, body: bytes) -> bytes:
        """Send the headers; return the bytes that were asked for."""
        asked = self.headers.get("Range")
        start, end = _part_of(body, asked) if asked else (0, len(body))
        self.send_response(206 if asked else 200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", self.tag)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(body)}")
        self.end_headers()
        return body[start:end]

    def drip(self, data: bytes) -> None:
        """Send a byte now and then, for as long as somebody listens."""
        with contextlib.suppress(OSError):
            for byte in data:
                self.wfile.write(bytes([byte]))
                if self.served.stopping.wait(PAUSE):
                    return

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving() -> Iterator[BrokenServer]:
    """Lend a server."""
    served = BrokenServer()
    handler = type("Handler", (_Handler,), {"served": served})
    with SilentServer(("127.0.0.1", 0), handler) as server:
        served.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield served
        finally:
            served.stopping.set()
            server.shutdown()
