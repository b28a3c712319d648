from __future__ import annotations

import dataclasses
import gzip
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild import limits, pip_files
from envbuild.errors import IntegrityError, NetworkError, UsageError
from envbuild.net import index as index_module
from envbuild.net import web
from envbuild.net.index import index_url, make_client, read_links
from envbuild.net.redact import redact
from envbuild.net.simple import JSON_TYPE
from envbuild.net.web import GoneError, StoppedError
from envbuild.settings import Settings
from tests.store.server import Page, Server
from tests.support import ScriptedRunner, context_for

HELP = "      --default-index <X>\n          The default package index (by\n          default: <https://mirror.invalid/uv>)\n"
HTML = {"Content-Type": "text/html"}


def _uv() -> ScriptedRunner:
    return ScriptedRunner({"pip compile --help": (0, HELP, "")})


@pytest.fixture
def bare(tmp_path: Path) -> Settings:
    """Settings of a machine without any configuration of its own."""
    base = Settings(
        store=tmp_path / "store",
        recipe_folders=(),
        shipped=tmp_path,
        tmpdir=tmp_path,
        home=tmp_path,
        cwd=tmp_path,
        config=tmp_path / ".config" / "envbuild" / "config.toml",
    )
    return dataclasses.replace(
        base, environment={"XDG_CONFIG_DIRS": str(tmp_path / "xdg"), "PIP_CONFIG_FILE": ""}
    )


@pytest.fixture(autouse=True)
def no_system_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Move /etc aside: this machine's own configuration must not decide these tests."""
    real = Path

    def moved(text: str | Path) -> Path:
        return real(tmp_path / "root" / str(text)[1:] if str(text).startswith("/etc") else text)

    for module in (index_module, pip_files):
        monkeypatch.setattr(module, "Path", moved)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "prefix"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def test_without_any_configuration_uv_is_asked_once(bare: Settings) -> None:
    runner = _uv()
    assert index_url(context_for(bare, runner)) == "https://mirror.invalid/uv"
    assert index_url(context_for(bare, runner)) == "https://mirror.invalid/uv"
    assert len(runner.calls) == 1


def test_a_uv_that_does_not_tell_is_an_error_with_a_way_out(bare: Settings) -> None:
    with pytest.raises(UsageError) as caught:
        index_url(context_for(bare, ScriptedRunner({"--help": (0, "nothing", "")})))
    assert str(caught.value) == "uv does not print its default package index"
    assert caught.value.hint == "set ENVBUILD_INDEX to its address"


SOURCES = [
    ("prefix/pip.conf", "[global]\nindex-url = {url}\n"),
    (
        ".config/uv/uv.toml",
        '[[index]]\nname = "x"\nurl = "https://no.invalid"\n[[index]]\nurl = "{url}"\ndefault = true\n',
    ),
    (".config/uv/uv.toml", 'index-url = "{url}"\n'),
    (".config/uv/uv.toml", '[pip]\nindex-url = "{url}"\n'),
    ("xdg/uv/uv.toml", 'index-url = "{url}"\n'),
    ("root/etc/uv/uv.toml", 'index-url = "{url}"\n'),
    (".config/pip/pip.conf", "[global]\nindex-url = {url}\n"),
    (".pip/pip.conf", "[install]\nindex_url = {url}\n[global]\nindex-url = https://no.invalid\n"),
    ("root/etc/pip.conf", "[download]\nindex-url={url}\n"),
    ("xdg/pip/pip.conf", "[global]\nindex-url: {url}\n"),
]


@pytest.mark.parametrize(("file", "text"), SOURCES)
def test_configuration_files_of_uv_and_pip_are_read(
    bare: Settings, tmp_path: Path, file: str, text: str
) -> None:
    _write(tmp_path / file, text.replace("{url}", "https://mirror.invalid/100%25/simple"))
    assert index_url(context_for(bare, _uv())) == "https://mirror.invalid/100%25/simple"


def test_the_order_of_precedence(bare: Settings, tmp_path: Path) -> None:
    def url(name: str) -> str:
        return f"https://{name}.invalid/simple"

    _write(tmp_path / "root/etc/pip.conf", f"[global]\nindex-url = {url('etc-pip')}\n")
    assert index_url(context_for(bare, _uv())) == url("etc-pip")
    _write(tmp_path / ".config/pip/pip.conf", f"[global]\nindex-url = {url('pip')}\n")
    assert index_url(context_for(bare, _uv())) == url("pip")
    _write(tmp_path / "own.conf", f"[global]\nindex-url = {url('own')}\n")
    environment = {**bare.environment, "PIP_CONFIG_FILE": str(tmp_path / "own.conf")}
    bare = dataclasses.replace(bare, environment=environment)
    assert index_url(context_for(bare, _uv())) == url("own")
    _write(tmp_path / ".config/uv/uv.toml", f'index-url = "{url("uv")}"\n')
    assert index_url(context_for(bare, _uv())) == url("uv")
    for variable in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        environment[variable] = url(variable.replace("_", "-").lower())
        assert (
            index_url(context_for(dataclasses.replace(bare, environment=dict(environment)), _uv()))
            == environment[variable]
        )
    bare = dataclasses.replace(bare, environment=environment, indexes={"default": url("settings")})
    assert index_url(context_for(bare, _uv())) == url("settings")
    assert index_url(context_for(bare, _uv()), "default") == url("settings")


def test_a_configuration_file_that_the_environment_names_replaces_the_usual_ones(
    bare: Settings, tmp_path: Path
) -> None:
    _write(tmp_path / ".config/uv/uv.toml", 'index-url = "https://no.invalid"\n')
    _write(tmp_path / ".config/pip/pip.conf", "[global]\nindex-url = https://no.invalid\n")
    environment = {"UV_CONFIG_FILE": str(tmp_path / "absent.toml"), "PIP_CONFIG_FILE": "/dev/null"}
    assert (
        index_url(context_for(dataclasses.replace(bare, environment=environment), _uv()))
        == "https://mirror.invalid/uv"
    )


def test_extra_indexes_and_find_links_of_pip_are_not_the_default(
    bare: Settings, tmp_path: Path
) -> None:
    text = "[global]\nextra-index-url = https://extra.invalid\nfind-links = /opt/wheels\n"
    _write(tmp_path / ".config/pip/pip.conf", text)
    assert index_url(context_for(bare, _uv())) == "https://mirror.invalid/uv"


def test_a_broken_configuration_of_pip_is_named(bare: Settings, tmp_path: Path) -> None:
    _write(tmp_path / ".pip/pip.conf", "index-url = x\n")
    with pytest.raises(UsageError) as caught:
        index_url(context_for(bare, _uv()))
    assert str(caught.value).startswith(
        f"{tmp_path}/.pip/pip.conf: is not a configuration file of pip: "
    )


def test_a_broken_configuration_of_uv_is_named(bare: Settings, tmp_path: Path) -> None:
    _write(tmp_path / ".config/uv/uv.toml", "index-url = \n")
    with pytest.raises(UsageError, match=r"uv\.toml, line 1, column 13: is not valid TOML"):
        index_url(context_for(bare, _uv()))


@pytest.mark.parametrize(
    ("value", "url"),
    [
        (" https://mirror.invalid/simple \n", "https://mirror.invalid/simple"),
        ("lab=https://mirror.invalid/simple", "https://mirror.invalid/simple"),
        ("file:///srv/simple", "file:///srv/simple"),
        ("http://u:p@mirror.invalid:8080/simple", "http://u:p@mirror.invalid:8080/simple"),
    ],
)
def test_addresses_are_taken_as_written(bare: Settings, value: str, url: str) -> None:
    assert (
        index_url(
            context_for(dataclasses.replace(bare, environment={"UV_DEFAULT_INDEX": value}), _uv())
        )
        == url
    )


@pytest.mark.parametrize(
    "value",
    [
        "mirror",
        "/srv/simple",
        "ftp://mirror.invalid",
        "https://",
        "https:// x",
        "file://host/x",
        "https://m?x=1",
    ],
)
def test_what_is_no_address_is_refused(bare: Settings, value: str) -> None:
    settings = dataclasses.replace(
        bare, indexes={"default": value}, origin={"index": "ENVBUILD_INDEX"}
    )
    with pytest.raises(UsageError) as caught:
        index_url(context_for(settings, _uv()))
    assert (
        str(caught.value)
        == f"ENVBUILD_INDEX: {redact(value)!r} is not the address of a package index"
    )
    assert (
        caught.value.hint
        == "write it as https://…/simple, or file:///… for a folder on this machine"
    )


def test_named_indexes_come_from_the_settings_only(bare: Settings, tmp_path: Path) -> None:
    settings = dataclasses.replace(
        bare, indexes={"torch": "https://mirror.invalid/torch", "default": "https://no.invalid"}
    )
    assert index_url(context_for(settings, _uv()), "torch") == "https://mirror.invalid/torch"
    with pytest.raises(UsageError) as caught:
        index_url(context_for(settings, _uv()), "torhc")
    assert (
        str(caught.value) == "no index is called 'torhc' on this machine; did you mean \"torch\"?"
    )
    assert caught.value.hint == (
        f'write its address into {tmp_path}/.config/envbuild/config.toml:\n[indexes]\ntorhc = "https://…/simple"\n'
        "or set ENVBUILD_INDEX_TORHC"
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@mirror.invalid/simple", "https://***@mirror.invalid/simple"),
        ("https://token@mirror.invalid:1/x?sig=secret#y", "https://***@mirror.invalid:1/x"),
        ("https://mirror.invalid/a@b/", "https://mirror.invalid/a@b/"),
        ("https://mirror.invalid/\x1b[31m", "https://mirror.invalid/?[31m"),
    ],
)
def test_secrets_and_control_characters_are_not_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_json_is_preferred_and_html_is_read(server: Server, settings: Settings) -> None:
    entry = {"filename": "demo-1.0.zip", "url": "/files/demo-1.0.zip", "hashes": {}, "size": 3}
    body = json.dumps({"files": [entry]}).encode()
    server.pages["/simple/demo-x/"] = Page(body=body, headers={"Content-Type": JSON_TYPE})
    server.pages["/simple/demo-y/"] = Page(
        body=b'<a href="demo-1.0.zip">x</a>', headers={"Content-Type": "text/html; charset=utf-8"}
    )
    with make_client(settings) as client:
        assert [link.size for link in read_links(server.index, "Demo_X", client)] == [3]
        assert [link.url for link in read_links(server.index + "/", "demo.y", client)] == [
            f"{server.index}/demo-y/demo-1.0.zip"
        ]
    assert server.asked[0].headers["accept"].startswith("application/vnd.pypi.simple.v1+json")
    assert server.asked[0].headers["user-agent"].startswith("envbuild/")


def test_redirects_are_followed_and_links_are_relative_to_the_last_page(
    server: Server, settings: Settings
) -> None:
    server.pages["/simple/demo/"] = Page(status=301, headers={"Location": "/other/demo/"})
    server.pages["/other/demo/"] = Page(body=b'<a href="demo-1.0.zip">x</a>', headers=HTML)
    with make_client(settings) as client:
        (link,) = read_links(server.index, "demo", client)
    assert link.url == f"{server.url}/other/demo/demo-1.0.zip"


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAGE", 4096)


BAD_PAGES = [
    (Page(status=403), "refuses access (HTTP 403)", 1),
    (Page(status=401), "refuses access (HTTP 401)", 1),
    (Page(status=500), "answers with HTTP 500 (3 attempts)", 3),
    (Page(status=429), "answers with HTTP 429 (3 attempts)", 3),
    (
        Page(status=429, headers={"Retry-After": "3600"}),
        "answers with HTTP 429 and asks to wait 3600 s",
        1,
    ),
    (Page(status=418), "answers with HTTP 418, which is of no use here", 1),
    (Page(status=302, headers={"Location": "/simple/demo/"}), "redirects in a circle", 11),
    (
        Page(status=302, headers={"Location": "file:///etc/passwd"}),
        "is not a usable http or https address",
        1,
    ),
    (Page(hang=True), "did not answer in time (3 attempts)", 3),
    (
        Page(body=b"x", headers={"Content-Type": "application/zip"}),
        "is application/zip, not an index page",
        1,
    ),
    (Page(body=b"x"), "is of no stated type, not an index page", 1),
    (Page(body=b"<a>" * 50, headers=HTML, cuts=[10, 10, 10]), "broke off: ", 3),
    (Page(body=b"no gzip", headers={**HTML, "Content-Encoding": "gzip"}), "broke off: ", 3),
    (
        Page(body=b"xx" * 50, headers=HTML, drip=(1, 0.02)),
        "took longer than 1 s over one answer",
        1,
    ),
    (Page(body=b"{", headers={"Content-Type": JSON_TYPE}), "is not an index page: ", 1),
]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.usefixtures("small_pages")
def test_a_page_without_end(packed: bool, server: Server, settings: Settings) -> None:
    body = b"x" * 5000
    page = Page(body=body, headers=HTML)
    if packed:
        page = Page(body=gzip.compress(body), headers={**HTML, "Content-Encoding": "gzip"})
    server.pages["/simple/demo/"] = page
    with make_client(settings) as client, pytest.raises(IntegrityError) as caught:
        read_links(server.index, "demo", client)
    assert caught.value.what == "sends more than 4096 bytes: too much for such an answer"


@pytest.mark.parametrize(("page", "text", "requests"), BAD_PAGES)
@pytest.mark.usefixtures("small_pages")
def test_bad_answers_are_network_errors(
    server: Server,
    settings: Settings,
    page: Page,
    text: str,
    requests: int,
    *,
    lose_patience: Callable[[Page], None],
) -> None:
    lose_patience(page)
    server.pages["/simple/demo/"] = page
    with make_client(settings) as client, pytest.raises(NetworkError) as caught:
        read_links(server.index, "demo", client)
    assert str(caught.value).startswith(f"{server.index}/demo/: {text}")
    assert caught.value.code == 5
    assert len(server.asked) == requests


def test_a_project_that_is_not_there(server: Server, settings: Settings) -> None:
    with make_client(settings) as client, pytest.raises(GoneError) as caught:
        read_links(server.index, "demo", client)
    assert str(caught.value) == f"{server.index}/demo/: the index has no project 'demo'"


def test_a_server_that_is_not_there(settings: Settings) -> None:
    with make_client(settings) as client, pytest.raises(NetworkError) as caught:
        read_links("http://127.0.0.1:9/simple", "demo", client)
    assert "cannot be reached: " in str(caught.value)
    assert caught.value.hint == web.NETWORK_HINT


@pytest.mark.parametrize(
    ("status", "wait"),
    [(500, None), (503, "0"), (429, "Thu, 01 Jan 1970 00:00:00 GMT"), (429, "soon")],
)
def test_a_passing_failure_is_sat_out(
    server: Server, settings: Settings, status: int, wait: str | None
) -> None:
    headers = {**HTML, **({"Retry-After": wait} if wait else {})}
    server.pages["/simple/demo/"] = Page(
        body=b'<a href="demo-1.0.zip">x</a>', headers=headers, first=[status, status]
    )
    with make_client(settings) as client:
        assert len(read_links(server.index, "demo", client)) == 1
    assert len(server.asked) == 3


def test_a_stop_ends_the_pause_before_the_next_attempt(server: Server, settings: Settings) -> None:
    server.pages["/simple/demo/"] = Page(status=500, headers={"Retry-After": "30"})
    stop = threading.Event()
    stop.set()
    with make_client(settings) as client, pytest.raises(StoppedError):
        read_links(server.index, "demo", client, stop=stop)


def _authorization(server: Server) -> list[str | None]:
    return [asked.headers.get("authorization") for asked in server.asked]


def test_a_password_in_the_address_is_sent_to_its_host_only(
    server: Server, settings: Settings
) -> None:
    from tests.store.server import serving

    with serving() as other:
        other.pages["/elsewhere"] = Page(headers=HTML)
        server.pages["/simple/a/"] = Page(headers=HTML)
        server.pages["/simple/b/"] = Page(
            status=302, headers={"Location": f"{other.url}/elsewhere"}
        )
        with make_client(settings) as client:
            read_links(server.index.replace("//", "//user:secret@"), "a", client)
            read_links(server.index, "b", client)
            read_links(server.index, "a", client)
        assert _authorization(server) == ["Basic dXNlcjpzZWNyZXQ="] * 3
        assert _authorization(other) == [None]


def test_a_refused_password_is_not_shown(server: Server, settings: Settings) -> None:
    server.pages["/simple/a/"] = Page(status=401)
    with make_client(settings) as client, pytest.raises(NetworkError) as caught:
        read_links(server.index.replace("//", "//user:secret@"), "a", client)
    assert "secret" not in f"{caught.value}{caught.value.hint}"
    assert "//***@127.0.0.1" in str(caught.value)


def test_netrc_is_honoured(server: Server, settings: Settings) -> None:
    (settings.home / ".netrc").write_text("machine 127.0.0.1 login user password secret\n")
    (settings.home / ".netrc").chmod(0o600)
    server.pages["/simple/a/"] = Page(headers=HTML)
    with make_client(settings) as client:
        read_links(server.index, "a", client)
    assert _authorization(server) == ["Basic dXNlcjpzZWNyZXQ="]


def test_a_broken_netrc_is_passed_over(server: Server, settings: Settings) -> None:
    (settings.home / ".netrc").write_text("machine\n")
    server.pages["/simple/a/"] = Page(headers=HTML)
    with make_client(settings) as client:
        read_links(server.index, "a", client)
    assert _authorization(server) == [None]


@pytest.mark.parametrize("content", [None, "no certificate", ""])
def test_an_unusable_certificate_bundle_is_named(
    settings: Settings, tmp_path: Path, content: str | None
) -> None:
    bundle = tmp_path / "ca.pem"
    if content is not None:
        bundle.write_text(content)
    with pytest.raises(UsageError) as caught:
        make_client(dataclasses.replace(settings, certificates=bundle))
    assert str(caught.value).startswith(f"{bundle}: is not a readable bundle of certificates: ")
    assert "SSL_CERT_FILE" in (caught.value.hint or "")


def test_a_folder_of_certificates_will_do(settings: Settings, tmp_path: Path) -> None:
    for certificates in (tmp_path, None):
        with make_client(dataclasses.replace(settings, certificates=certificates)) as client:
            assert not client.is_closed


def test_an_index_in_a_folder(settings: Settings, tmp_path: Path) -> None:
    page = tmp_path / "my index" / "demo" / "index.html"
    _write(page, '<a href="demo-1.0.zip">x</a> <a href="../../other/demo-2.0.zip">y</a>')
    index = (tmp_path / "my index").as_uri()
    with make_client(settings) as client:
        assert [link.url for link in read_links(index, "demo", client)] == [
            (page.parent / "demo-1.0.zip").as_uri(),
            (tmp_path / "other" / "demo-2.0.zip").as_uri(),
        ]
        with pytest.raises(GoneError, match="the index has no project 'absent'"):
            read_links(index, "absent", client)
        page.with_name("index.html").unlink()
        page.mkdir()
        with pytest.raises(NetworkError, match="cannot be read: Is a directory"):
            read_links(index, "demo", client)
