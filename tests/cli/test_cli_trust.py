"""A package index behind a certificate authority of its own: doctor and lock trust the same bundle, however it is named."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from envbuild.app.doctor.network import reach_index
from envbuild.context import open_context
from envbuild.errors import NetworkError
from envbuild.net.index import make_client, read_links
from envbuild.net.web import CERTIFICATE_HINT, UNTRUSTED
from envbuild.progress import Silent
from envbuild.resolve.model import Request
from envbuild.resolve.stubs import write_wheel
from envbuild.resolve.uv.resolver import UvResolver
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings, load_settings
from tests.hosts import ROOT, ROOT_ONLY
from tests.resolve.conftest import base
from tests.resolve.loopback import Server
from tests.support import needs

pytestmark = needs("openssl")
VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")


@dataclass(frozen=True)
class Campus:
    """A running index with one package, and the file with its authority's certificate."""

    url: str
    bundle: Path


def openssl(folder: Path, *arguments: str) -> None:
    LocalRunner()(Command(argv=("openssl", *arguments), cwd=folder, timeout=60))


@pytest.fixture(scope="module")
def campus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campus]:
    folder = tmp_path_factory.mktemp("campus")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl(
        folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=Campus"
    )
    names = (
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    )
    signed = ("-CA", "ca.crt", "-CAkey", "ca.key")
    openssl(
        folder,
        "req",
        "-x509",
        *key,
        *signed,
        "-keyout",
        "index.key",
        "-out",
        "index.crt",
        "-subj",
        "/CN=i",
        *names,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "index.crt", folder / "index.key")
    server = Server()
    server.http.socket = context.wrap_socket(server.http.socket, server_side=True)
    wheel = write_wheel(folder, "demo", "1.0", ())
    server.page("demo", server.put(wheel.name, wheel.read_bytes()), text="")
    url = f"https://127.0.0.1:{server.http.server_address[1]}"
    server.files["simple/demo/"] = server.files["simple/demo/"].replace(
        server.url.encode(), url.encode()
    )
    yield Campus(f"{url}/simple", folder / "ca.crt")
    server.http.shutdown()
    server.http.server_close()


def settings_of(campus: Campus, folder: Path, **variables: str) -> Settings:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "UV_HTTP_RETRIES": "0",
        "ENVBUILD_INDEX": campus.url,
    }
    return load_settings({**env, **variables}, folder)


def locked(settings: Settings) -> list[str]:
    answer = UvResolver(open_context(settings, LocalRunner(), Silent()))(
        Request(facts=base(), requirements=("demo",))
    )
    return [f"{package.name} {package.version}" for package in answer.packages]


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_bundle_counts_for_uv_too(campus: Campus, tmp_path: Path, variable: str) -> None:
    settings = settings_of(campus, tmp_path, **{variable: str(campus.bundle)})
    assert locked(settings) == ["demo 1.0"]
    with make_client(settings) as client:
        assert [link.file for link in read_links(campus.url, "demo", client)] == [
            "demo-1.0-py3-none-any.whl"
        ]
    assert reach_index("package index", campus.url, settings, LocalRunner()).verdict == "fine"


def test_without_it_the_hint_talks_of_certificates(campus: Campus, tmp_path: Path) -> None:
    settings = settings_of(campus, tmp_path)
    with pytest.raises(NetworkError) as of_uv:
        locked(settings)
    with pytest.raises(NetworkError) as of_client, make_client(settings) as client:
        read_links(campus.url, "demo", client)
    for caught in (of_uv, of_client):
        assert (caught.value.what, caught.value.hint) == (UNTRUSTED, CERTIFICATE_HINT)
        assert (caught.value.where or "").startswith(campus.url)
    found = reach_index("package index", campus.url, settings, LocalRunner())
    assert (found.verdict, found.mend) == ("broken", CERTIFICATE_HINT)


def test_doctor_tells_where_uv_alone_does_not_trust(campus: Campus, tmp_path: Path) -> None:
    """As where somebody switches uv's trust in the system off."""
    settings = settings_of(campus, tmp_path, SSL_CERT_FILE=str(campus.bundle))

    def distrusting(command: Command, *, check: bool = True) -> object:
        env = {name: value for name, value in (command.env or {}).items() if "CERT" not in name}
        return LocalRunner()(
            Command(argv=command.argv, env=env, stdin=command.stdin, timeout=60), check=check
        )

    found = reach_index("package index", campus.url, settings, distrusting)  # type: ignore[arg-type]
    assert (found.verdict, found.mend) == ("broken", CERTIFICATE_HINT)
    assert found.value == f"{campus.url} does not answer uv: {UNTRUSTED}"


@pytest.mark.live
@ROOT_ONLY
@needs("unshare")
def test_the_systems_certificates_count(campus: Campus, tmp_path: Path) -> None:
    """The file that Debian's update-ca-certificates writes, in a mount namespace of this command only."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "ENVBUILD_INDEX": campus.url,
        "PYTHONPATH": str(ROOT),
    }
    script = 'mount --bind "$0" /etc/ssl/certs/ca-certificates.crt && exec "$@"'
    doctor = (sys.executable, "-m", "envbuild", "doctor")
    argv = ("unshare", "-m", "sh", "-c", script, str(campus.bundle), *doctor)
    with_it = LocalRunner()(Command(argv=argv, env=env, cwd=tmp_path, timeout=120), check=False)
    without = LocalRunner()(Command(argv=doctor, env=env, cwd=tmp_path, timeout=120), check=False)
    line = {
        text: next(row for row in text.splitlines() if campus.url in row)
        for text in (with_it.stdout, without.stdout)
    }
    assert "cannot be reached" not in line[with_it.stdout]
    assert "does not answer" not in line[with_it.stdout]
    assert "CERTIFICATE_VERIFY_FAILED" in line[without.stdout]
