"""A registry of a few lines that lies, refuses and limits as it is told; on 127.0.0.1 only."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

from tests.base.ociimages import INDEX, MANIFEST, Image
from tests.support import http_server

Answer = tuple[int, dict[str, str], bytes]


def honest(_path: str, answer: Answer) -> Answer:
    return answer


@dataclass
class FakeRegistry:
    """Manifests by "repository:reference", blobs by digest; ``spoil`` may change any answer."""

    manifests: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    auth: str | None = None
    """"basic" or "bearer": ci with the password secret."""
    spoil: Callable[[str, Answer], Answer] = honest
    asked: list[str] = field(default_factory=list)
    tokens: int = 0
    url: str = ""

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def add(self, image: Image, repository: str, tag: str) -> str:
        self.blobs |= image.blobs
        for reference in (tag, image.digest):
            self.manifests[f"{repository}:{reference}"] = (image.manifest, MANIFEST)
        return image.digest

    def add_index(self, index: bytes, repository: str, tag: str, *images: Image) -> None:
        for image in images:
            self.add(image, repository, image.digest)
        self.manifests[f"{repository}:{tag}"] = (index, INDEX)

    def answer(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        parts = urlsplit(path)
        if parts.path == "/token":
            return self._token(headers, parse_qs(parts.query))
        denied = self._denied(headers)
        if denied:
            return denied
        if parts.path == "/v2/":
            return 200, {}, b"{}"
        repository, _, rest = parts.path.removeprefix("/v2/").partition("/manifests/")
        if rest:
            found = self.manifests.get(f"{repository}:{rest}")
            return (
                (200, {"Content-Type": found[1]}, found[0])
                if found
                else _error(404, "MANIFEST_UNKNOWN")
            )
        repository, _, rest = parts.path.removeprefix("/v2/").partition("/blobs/")
        if rest:
            return (
                (200, {}, self.blobs[rest]) if rest in self.blobs else _error(404, "BLOB_UNKNOWN")
            )
        repository = parts.path.removeprefix("/v2/").removesuffix("/tags/list")
        tags = [key.partition(":")[2] for key in self.manifests if key.startswith(f"{repository}:")]
        tags = [tag for tag in tags if not tag.startswith("sha256:")]
        return (
            (200, {}, json.dumps({"name": repository, "tags": tags}).encode())
            if tags
            else _error(404, "NAME_UNKNOWN")
        )

    def _denied(self, headers: dict[str, str]) -> Answer | None:
        given = headers.get("authorization", "")
        if self.auth == "basic" and given != _basic():
            return _error(401, "UNAUTHORIZED", {"WWW-Authenticate": 'Basic realm="ci"'})
        if self.auth == "bearer" and given != f"Bearer token{self.tokens}":
            challenge = f'Bearer realm="{self.url}/token",service="ci",scope="repository:x:pull"'
            return _error(401, "UNAUTHORIZED", {"WWW-Authenticate": challenge})
        return None

    def _token(self, headers: dict[str, str], query: dict[str, list[str]]) -> Answer:
        if headers.get("authorization") != _basic() or query.get("service") != ["ci"]:
            return _error(401, "UNAUTHORIZED")
        self.tokens += 1
        return (
            200,
            {"Content-Type": "application/json"},
            json.dumps({"token": f"token{self.tokens}"}).encode(),
        )


def _basic() -> str:
    return "Basic " + base64.b64encode(b"ci:secret").decode()


def _error(status: int, code: str, headers: dict[str, str] | None = None) -> Answer:
    body = {"errors": [{"code": code, "message": "sha256:" + "0" * 64}]}
    return (
        status,
        {"Content-Type": "application/json", **(headers or {})},
        json.dumps(body).encode(),
    )


@contextmanager
def serving(registry: FakeRegistry) -> Iterator[FakeRegistry]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            registry.asked.append(self.path)
            headers = {key.lower(): value for key, value in self.headers.items()}
            status, told, body = registry.spoil(
                self.path, registry.answer("GET", self.path, headers)
            )
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **told}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)
            if told.get("Content-Length", str(len(body))) != str(len(body)):
                self.close_connection = True

    with http_server(Handler) as registry.url:
        yield registry
