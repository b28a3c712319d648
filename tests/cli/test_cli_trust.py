"""A package index behind a certificate authority of its own: doctor and lock trust the same bundle, however it is named."""

from __future__ import annotations

import json
import os
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from envbuild.app.doctor.network import reach_index
from envbuild.errors import NetworkError
from envbuild.net.index import make_client, read_links
from envbuild.net.web import CERTIFICATE_HINT, UNTRUSTED
from envbuild.resolve.model import Request
from envbuild.resolve.stubs import write_wheel
from envbuild.resolve.uv.resolver import UvResolver
from envbuild.run import Command, LocalRunner, Result
from envbuild.settings import CERTIFICATE_VARIABLES, Settings, load_settings
from tests.hosts import ROOT, ROOT_ONLY
from tests.resolve.conftest import base
from tests.resolve.loopback import Server
from tests.support import context_for, http_server, needs, quiet_context

pytestmark = needs("openssl")
FAR = "index.invalid"
"""The host of an index that only the proxy answers for."""


@dataclass(frozen=True)
class Campus:
    """A running index with one package, and the file with its authority's certificate."""

    url: str
    bundle: Path
    context: ssl.SSLContext
    server: Server


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
        f"subjectAltName=IP:127.0.0.1,DNS:{FAR}",
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
    yield Campus(f"{url}/simple", folder / "ca.crt", context, server)
    server.http.shutdown()
    server.http.server_close()


def settings_of(campus: Campus, folder: Path, **variables: str) -> Settings:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "UV_HTTP_RETRIES": "0",
        "ENVBUILD_INDEX": campus.url,
        "PIP_CONFIG_FILE": "/dev/null",
    }
    return load_settings({**env, **variables}, folder)


def locked(settings: Settings) -> list[str]:
    answer = UvResolver(quiet_context(settings))(Request(facts=base(), requirements=("demo",)))
    return [f"{package.name} {package.version}" for package in answer.packages]


@pytest.mark.parametrize("variable", CERTIFICATE_VARIABLES)
def test_a_bundle_counts_for_uv_too(campus: Campus, tmp_path: Path, variable: str) -> None:
    settings = settings_of(campus, tmp_path, **{variable: str(campus.bundle)})
    assert locked(settings) == ["demo 1.0"]
    with make_client(settings) as client:
        assert [link.file for link in read_links(campus.url, "demo", client)] == [
            "demo-1.0-py3-none-any.whl"
        ]
    assert reach_index("package index", campus.url, quiet_context(settings)).verdict == "fine"


def test_a_bundle_of_pips_configuration_counts_too(campus: Campus, tmp_path: Path) -> None:
    configuration = tmp_path / ".config/pip/pip.conf"
    configuration.parent.mkdir(parents=True)
    configuration.write_text("[global]\ncert = ~/campus.crt\n")
    (tmp_path / "campus.crt").write_bytes(campus.bundle.read_bytes())
    assert locked(settings_of(campus, tmp_path, PIP_CONFIG_FILE="")) == ["demo 1.0"]
    settings = settings_of(campus, tmp_path, PIP_CONFIG_FILE="", PIP_CERT="/other.crt")
    assert settings.certificates == Path("/other.crt")
    settings = settings_of(campus, tmp_path, PIP_CONFIG_FILE="", SSL_CERT_DIR="/other")
    assert settings.certificates is None


def test_a_broken_configuration_of_pip_stops_no_command(campus: Campus, tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("cert = ~/campus.crt\n")
    settings = settings_of(campus, tmp_path, PIP_CONFIG_FILE=str(tmp_path / "pip.conf"))
    assert str(settings.certificates) != str(tmp_path / "campus.crt")


def test_without_it_the_hint_talks_of_certificates(campus: Campus, tmp_path: Path) -> None:
    settings = settings_of(campus, tmp_path)
    with pytest.raises(NetworkError) as of_uv:
        locked(settings)
    with pytest.raises(NetworkError) as of_client, make_client(settings) as client:
        read_links(campus.url, "demo", client)
    for caught in (of_uv, of_client):
        assert (caught.value.what, caught.value.hint) == (UNTRUSTED, CERTIFICATE_HINT)
        assert (caught.value.where or "").startswith(campus.url)
    found = reach_index("package index", campus.url, quiet_context(settings))
    assert (found.verdict, found.mend) == ("broken", CERTIFICATE_HINT)


def test_doctor_tells_where_uv_alone_does_not_trust(campus: Campus, tmp_path: Path) -> None:
    """As where somebody switches uv's trust in the system off."""
    settings = settings_of(campus, tmp_path, SSL_CERT_FILE=str(campus.bundle))

    def distrusting(command: Command, *, check: bool = True) -> object:
        env = {name: value for name, value in (command.env or {}).items() if "CERT" not in name}
        return LocalRunner()(
            Command(argv=command.argv, env=env, stdin=command.stdin, timeout=60), check=check
        )

    found = reach_index("package index", campus.url, context_for(settings, distrusting))  # type: ignore[arg-type]
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


@dataclass(frozen=True)
class Proxy:
    """A proxy that opens every TLS connection and shows a certificate of its own, as campus networks have."""

    url: str
    asked: list[str]
    """Who was asked for, by CONNECT."""


@pytest.fixture
def proxy(campus: Campus) -> Iterator[Proxy]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            asked.append(self.path)
            self.send_response(200, "Connection established")
            self.end_headers()
            self.close_connection = True
            try:
                inner = campus.context.wrap_socket(self.connection, server_side=True)
            except (ssl.SSLError, OSError):
                return  # the client does not trust us
            self.rfile, self.wfile = inner.makefile("rb"), inner.makefile("wb", buffering=0)  # type: ignore[assignment]
            self.handle_one_request()
            inner.close()

        def do_GET(self) -> None:
            self.answer(send=True)

        def do_HEAD(self) -> None:
            self.answer(send=False)

        def answer(self, *, send: bool) -> None:
            page = b'<a href="https://%s/demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>'
            data = page % FAR.encode()
            if self.path.endswith(".whl"):
                data = campus.server.files["demo-1.0-py3-none-any.whl"]
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            if send:
                self.wfile.write(data)

    with http_server(Handler) as url:
        yield Proxy(url, asked)


def run_python(folder: Path, *arguments: str, **variables: str) -> Result:
    """Run in a process of its own: proxies and folders of certificates are read from its environment."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT)}
    env |= {"PIP_CONFIG_FILE": "/dev/null", **variables}
    argv = (sys.executable, *arguments)
    return LocalRunner()(Command(argv=argv, env=env, cwd=folder, timeout=120), check=False)


def doctors_index(folder: Path, **variables: str) -> dict[str, str]:
    """Return what the whole verb says of the package index."""
    told = run_python(folder, "-m", "envbuild", "doctor", "--json", **variables)
    findings = json.loads(told.stdout)["findings"]
    return next(one for one in findings if one["name"] == "package index")


LOCK = """\
from envbuild.errors import NetworkError
from envbuild.settings import load_settings
from tests.cli.test_cli_trust import locked
try:
    print(*locked(load_settings()), end="")
except NetworkError as error:
    print(error.hint, end="")
"""


@pytest.mark.parametrize("variable", [*CERTIFICATE_VARIABLES, "SSL_CERT_DIR", None])
def test_behind_a_proxy_that_opens_tls(
    campus: Campus, proxy: Proxy, tmp_path: Path, variable: str | None
) -> None:
    """Doctor says of the index what lock then finds."""
    index = f"https://{FAR}/simple"
    variables = {"https_proxy": proxy.url, "ENVBUILD_INDEX": index, "UV_HTTP_RETRIES": "0"}
    if variable == "SSL_CERT_DIR":
        openssl(campus.bundle.parent, "rehash", ".")
        variables[variable] = str(campus.bundle.parent)
    elif variable:
        variables[variable] = str(campus.bundle)
    found = doctors_index(tmp_path, **variables)
    lock = run_python(tmp_path, "-c", LOCK, **variables)
    if variable:
        assert (found["verdict"], found["value"]) == ("fine", index)
        assert lock.stdout == "demo 1.0", lock.stderr
    else:
        assert (found["verdict"], found["mend"]) == ("broken", CERTIFICATE_HINT)
        assert lock.stdout == CERTIFICATE_HINT, lock.stderr
    assert set(proxy.asked) >= {f"{FAR}:443"}


def test_a_proxy_without_a_usable_address_is_named(tmp_path: Path) -> None:
    found = doctors_index(tmp_path, https_proxy="nonsense://", ENVBUILD_INDEX=f"https://{FAR}/s")
    assert found["verdict"] == "broken"
    assert found["value"].startswith("https_proxy: a proxy is named that has no usable address: ")


def test_a_bundle_without_a_certificate_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.crt"
    empty.write_text("")
    found = doctors_index(tmp_path, SSL_CERT_FILE=str(empty), ENVBUILD_INDEX=f"https://{FAR}/s")
    assert found["verdict"] == "broken"
    assert (
        found["value"]
        == f"{empty}: is not a readable bundle of certificates: it holds no certificate"
    )
