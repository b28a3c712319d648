"""A package index on 127.0.0.1 that tells the truth, or lies."""

from __future__ import annotations

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from envbuild.resolve.pylock import Candidate


class Server:
    """Serve a few files and note each request; it can be made to lie.

    ``ranges`` switches range requests off; ``status`` maps a path to an error code; ``stuck`` are paths that are never
    answered; ``claimed`` maps a path to the size that is claimed for the whole file.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, str | None]] = []
        self.ranges = True
        self.status: dict[str, int] = {}
        self.stuck: set[str] = set()
        self.claimed: dict[str, int] = {}
        self.ended = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                server.answer(self, send=False)

            def do_GET(self) -> None:
                server.answer(self, send=True)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def put(
        self, name: str, data: bytes, *, size: int | None = None, sha256: str | None = None
    ) -> Candidate:
        self.files[name] = data
        digest = sha256 or hashlib.sha256(data).hexdigest()
        return Candidate(file=name, url=f"{self.url}/{name}", sha256=digest, size=size)

    def page(self, name: str, *candidates: Candidate, text: str = "") -> None:
        """List files on a project's page, with the hashes of their candidates."""
        links = "".join(f'<a href="{c.url}#sha256={c.sha256}">{c.file}</a>\n' for c in candidates)
        self.files[f"simple/{name}/"] = (
            text or f"<!DOCTYPE html><html><body>{links}</body></html>"
        ).encode()

    def answer(self, handler: BaseHTTPRequestHandler, *, send: bool) -> None:
        wanted = handler.headers.get("Range")
        self.requests.append((handler.command, handler.path, wanted))
        path = handler.path[1:]
        if path in self.stuck:
            self.ended.wait(60)
            return
        data = self.files.get(path)
        if data is None or path in self.status:
            handler.send_error(self.status.get(path, 404))
            return
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted or "") if self.ranges else None
        if found:
            start = int(found[1]) if found[1] else max(0, len(data) - int(found[2]))
            end = int(found[2]) + 1 if found[1] and found[2] else len(data)
            handler.send_response(206)
            handler.send_header(
                "Content-Range",
                f"bytes {start}-{min(end, len(data)) - 1}/{self.claimed.get(path, len(data))}",
            )
            data = data[start:end]
        else:
            handler.send_response(200)
        if path.endswith("/"):
            handler.send_header("Content-Type", "text/html")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        if send:
            handler.wfile.write(data)
