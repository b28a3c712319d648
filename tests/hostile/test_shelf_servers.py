"""Shelves on servers and at strange addresses: no program runs, no password is shown or led astray, no stranger is believed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from envbuild.errors import NetworkError, UsageError
from envbuild.net import web
from tests.cli.test_cli_trust import openssl
from tests.hostile.faulty_server import FailingHandler
from tests.shelf.people import bare, member, user
from tests.support import needs

pytestmark = needs("git", "openssl", "ssh")
SECRET = base64.b64encode(b"me:secret").decode()


@dataclass
class GitServer:
    """git over https on loopback; ``password`` is asked for, ``login`` says that all is a page of the network, ``elsewhere`` is where all is led to.

    ``fault`` is how it fails, at addresses that end with ``failing``.
    """

    top: Path
    password: bool = False
    login: bool = False
    elsewhere: str = ""
    asked: list[str] = field(default_factory=list)
    """What came: the path and the password."""
    url: str = ""
    fault: str = ""
    failing: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)

    def serve(self, context: ssl.SSLContext) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


def handler_of(place: GitServer) -> type[BaseHTTPRequestHandler]:
    class Handler(FailingHandler):
        protocol_version = "HTTP/1.1"
        stopping = place.stopping

        def do_GET(self) -> None:  # noqa: N802
            sent = self.headers.get("Authorization", "")
            place.asked.append(f"{self.path} {sent}".strip())
            if place.password and not sent:
                return self.say("401 Unauthorized", 'WWW-Authenticate: Basic realm="x"')
            if place.login:
                return self.say("200 OK", "Content-Type: text/html", b"<html>log in</html>")
            if place.elsewhere:
                return self.say("302 Found", f"Location: {place.elsewhere}{self.path}")
            if place.fault and self.path.endswith(place.failing):
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.fail(place.fault)
                return None
            return self.hand_on()

        def do_POST(self) -> None:  # noqa: N802
            self.do_GET()

        def say(self, status: str, line: str, body: bytes = b"") -> None:
            head = f"HTTP/1.1 {status}\r\n{line}\r\nContent-Length: {len(body)}\r\n\r\n"
            self.wfile.write(head.encode() + body)

        def hand_on(self) -> None:
            path, _, query = self.path.partition("?")
            size = self.headers.get("Content-Length", "0")
            environment = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(place.top),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": size,
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "REMOTE_USER": "me",
            }
            sent = self.rfile.read(int(size))
            ran = subprocess.run(
                ["git", "http-backend"],
                input=sent,
                env=environment,
                check=True,
                capture_output=True,
            )
            head, _, body = ran.stdout.partition(b"\r\n\r\n")
            length = b"\r\nContent-Length: %d\r\n\r\n" % len(body)
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + head + length + body)

    return Handler


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificate")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    name = ("-subj", "/CN=i", "-addext", "subjectAltName=IP:127.0.0.1")
    openssl(folder, "req", "-x509", *key, "-keyout", "key", "-out", "certificate", *name)
    return folder / "certificate"


@pytest.fixture
def servers(certificate: Path, tmp_path: Path) -> Iterator[list[GitServer]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key"))
    places = [GitServer(tmp_path / name) for name in ("own", "other")]
    running = [place.serve(context) for place in places]
    for place in places:
        bare(place.top / "shelf.git")
    yield places
    for server, place in zip(running, places, strict=True):
        place.stopping.set()
        server.shutdown()
        server.server_close()


def test_a_certificate_that_nobody_signed(
    servers: list[GitServer], certificate: Path, tmp_path: Path
) -> None:
    own, _ = servers
    place = f"git+{own.url}/shelf.git"
    ann = user(tmp_path / "ann")
    ann.recipe("small")
    trusted = {"GIT_SSL_CAINFO": str(certificate)}
    ann.ok("shelf", "add", "lab", place, **trusted)
    ann.ok("shelf", "publish", "small", **trusted)
    ann.ok("shelf", "get", "small", "--force", **trusted)
    own.asked.clear()
    for words in (("publish", "small"), ("show", "small"), ("add", "more", place)):
        told = ann.refused(5, "shelf", *words)
        assert "certificate" in told
    assert not own.asked


def test_a_networks_login_page_is_no_empty_shelf(
    servers: list[GitServer], certificate: Path, tmp_path: Path
) -> None:
    own, _ = servers
    ann = user(tmp_path / "ann")
    ann.recipe("small")
    ann.env["GIT_SSL_CAINFO"] = str(certificate)
    ann.ok("shelf", "add", "lab", f"git+{own.url}/shelf.git")
    own.login = True
    for words in (("publish", "small"), ("show", "small"), ("search", "small")):
        told = ann.refused(5, "shelf", *words)
        assert own.url in told
        assert "wants a login" in told
    own.login = False
    ann.ok("shelf", "publish", "small")


def published(own: GitServer) -> set[str]:
    """Return the names that the server's repository has entries of."""
    argv = ("git", "-C", str(own.top / "shelf.git"), "ls-tree", "-r", "--name-only", "main")
    paths = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    return {name for name in ("small", "other") if any(name in path for path in paths)}


FAULTS = {
    "publish": ("", "/git-receive-pack"),
    "get": ("", "/git-upload-pack"),
}
"""Verbs, and what fails: everything, or the last of what the verb asks for."""


@pytest.mark.parametrize("fault", ["silent", "drip", "reset", "500"])
@pytest.mark.parametrize(
    ("verb", "failing"), [(verb, failing) for verb in FAULTS for failing in FAULTS[verb]]
)
def test_a_network_that_fails(  # noqa: PLR0917  (fixtures)
    verb: str,
    failing: str,
    fault: str,
    servers: list[GitServer],
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ann has the shelf; Bob has published since, so that there is something to fetch."""
    own, _ = servers
    monkeypatch.setattr(web, "FIRST_PAUSE", 0.005)
    ann, bob = (user(tmp_path / name) for name in ("ann", "bob"))
    for one, name in ((ann, "small"), (bob, "other")):
        one.recipe(name)
        one.env.update({"GIT_SSL_CAINFO": str(certificate), "GIT_HTTP_LOW_SPEED_TIME": "1"})
        one.ok("shelf", "add", "lab", f"git+{own.url}/shelf.git")
    bob.ok("shelf", "publish", "other")
    words = ("shelf", verb, "small" if verb == "publish" else "other")
    own.fault, own.failing = fault, failing
    told = ann.refused(5, *words)
    assert own.url in told
    assert told.count("envbuild: error:") == 1
    own.fault = ""
    assert published(own) == {"other"}
    ann.ok(*words)
    assert published(own) == {"other", *(["small"] if verb == "publish" else [])}


@pytest.mark.parametrize("asks", [False, True])
def test_who_a_server_leads_to_gets_no_password(
    servers: list[GitServer], certificate: Path, tmp_path: Path, *, asks: bool
) -> None:
    own, other = servers
    ann = user(tmp_path / "ann")
    ann.recipe("small")
    (ann.home / ".gitconfig").write_text("[credential]\n\thelper = store\n")
    host = own.url.removeprefix("https://")
    (ann.home / ".git-credentials").write_text(f"https://me:secret@{host}\n")
    ann.env["GIT_SSL_CAINFO"] = str(certificate)
    own.password = True
    ann.ok("shelf", "add", "lab", f"git+{own.url}/shelf.git")
    ann.ok("shelf", "publish", "small")
    assert any(SECRET in line for line in own.asked)
    own.elsewhere, other.password = other.url, asks
    for words in (("publish", "small"), ("show", "small")):
        ann.run("shelf", *words)
    assert other.asked
    assert not [line for line in other.asked if SECRET in line]


def test_a_password_in_the_address_is_refused_and_not_shown(tmp_path: Path) -> None:
    ann = user(tmp_path / "ann")
    for place in ("git+https://me:secret@own.invalid/x.git", "ssh://me:secret@own.invalid/x.git"):
        told = ann.refused(2, "shelf", "add", "lab", place)
        assert "holds a password" in told
        assert "secret" not in told
    assert json.loads(ann.ok("shelf", "list", "--json")) == []


ADDRESSES = (
    *("ssh://-oProxyCommand=touch${IFS}ran/x", "git+ssh://-oProxyCommand=touch${IFS}ran/x"),
    *("ssh://me@-oProxyCommand=touch${IFS}ran/x", "git+ssh://%2doProxyCommand=touch%20ran/x"),
    *("git+ssh://host:-oProxyCommand=touch${IFS}ran/x", "git+ssh://a;touch ran;/x"),
    *("me@-oProxyCommand=touch${IFS}ran:x", "me@own.invalid:$(touch ran)", "ssh://$(touch ran)/x"),
    *("ext::sh -c touch% ran", "git+ext::sh -c touch% ran", "fd::17", "git+fd::17"),
    *("git+https://own.invalid/x\n[core]\nsshCommand=touch ran", "git+file://own.invalid/$(touch ran)"),
)  # fmt: skip


@pytest.mark.parametrize("place", ADDRESSES)
def test_no_address_is_a_command(place: str, tmp_path: Path) -> None:
    ann = member(tmp_path / "ann", str(tmp_path / "shelf"))
    with contextlib.suppress(NetworkError, UsageError):
        member(ann.folder, place)
    assert not list(tmp_path.rglob("ran"))
