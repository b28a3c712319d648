"""An index on 127.0.0.1 that breaks, hangs or lies: a clear error each time, and nothing left behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.context import open_context
from envbuild.errors import EnvbuildError, IntegrityError, NetworkError, NoSolutionError
from envbuild.progress import Silent
from envbuild.resolve.model import Request, Resolution
from envbuild.resolve.stubs import write_wheel
from envbuild.resolve.uv.resolver import UvResolver
from envbuild.run import LocalRunner
from envbuild.settings import Settings
from tests.resolve.conftest import base, sdist_bytes
from tests.resolve.loopback import Server

WHEEL = "six-1.16.0-py3-none-any.whl"
SDIST = "six-1.16.0.tar.gz"
SETUP = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: six\nVersion: 1.16.0\n",
    "setup.py": "import nothing\n",
}


@pytest.fixture
def ask(server: Server, settings: Settings, tmp_path: Path) -> Callable[[], Resolution]:
    """Resolve ``six`` on the server, with short patience; uv's cache is new, as its server is."""
    environment = {**settings.environment, "UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "1"}
    environment["UV_CACHE_DIR"] = str(tmp_path / "uv-cache")
    there = dataclasses.replace(
        settings, indexes={"default": f"{server.url}/simple"}, environment=environment
    )
    return lambda: UvResolver(open_context(there, LocalRunner(), Silent()))(
        Request(facts=base(), requirements=("six",))
    )


def wheel(tmp_path: Path) -> bytes:
    return write_wheel(tmp_path, "six", "1.16.0", ()).read_bytes()


def hang_page(server: Server, tmp_path: Path) -> None:
    server.stuck.add("simple/six/")


def hang_file(server: Server, tmp_path: Path) -> None:
    server.page("six", server.put(WHEEL, wheel(tmp_path)))
    server.stuck.add(WHEEL)


def break_page(server: Server, tmp_path: Path) -> None:
    server.page("six")
    server.status["simple/six/"] = 500


def lose_file(server: Server, tmp_path: Path) -> None:
    server.page("six", server.put(WHEEL, wheel(tmp_path)))
    server.status[WHEEL] = 404


def show_login(server: Server, tmp_path: Path) -> None:
    server.page("six", text="<html><body><form>please log in</form></body></html>")


def offer_garbage(server: Server, tmp_path: Path) -> None:
    server.page("six", server.put(WHEEL, b"no zip at all" * 9000))


def offer_another_package(server: Server, tmp_path: Path) -> None:
    server.page("six", server.put(WHEEL, write_wheel(tmp_path, "evil", "1.16.0", ()).read_bytes()))


def change_sdist(server: Server, tmp_path: Path) -> None:
    server.page("six", server.put(SDIST, sdist_bytes("six-1.16.0", SETUP), sha256="0" * 64))


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (
            hang_page,
            (NetworkError, "/simple/six/: the package index did not answer: operation timed out"),
        ),
        (
            hang_file,
            (NetworkError, f"/{WHEEL}: the package index did not answer: operation timed out"),
        ),
        (
            break_page,
            (
                NetworkError,
                "/simple/six/: the package index did not answer: HTTP status server error (500",
            ),
        ),
        (
            lose_file,
            (
                NetworkError,
                f"/{WHEEL}: the package index did not answer: HTTP status client error (404",
            ),
        ),
        (show_login, (NoSolutionError, "- the index offers no release of six at all")),
        (offer_garbage, (NoSolutionError, "- what the index offers as six==1.16.0 is no package")),
        (
            offer_another_package,
            (NoSolutionError, "- what the index offers as six==1.16.0 is no package"),
        ),
        (
            change_sdist,
            (
                IntegrityError,
                "six-1.16.0.tar.gz is not the file that was locked: expected sha256 0000",
            ),
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_lie_is_told_and_nothing_is_left(
    lie: Callable[[Server, Path], None],
    told: tuple[type[EnvbuildError], str],
    server: Server,
    tmp_path: Path,
    ask: Callable[[], Resolution],
) -> None:
    lie(server, tmp_path)
    with pytest.raises(told[0]) as caught:
        ask()
    assert told[1] in str(caught.value)
    assert caught.value.hint
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("envbuild")] == []


def test_page_of_a_login_is_suspected(
    server: Server, tmp_path: Path, ask: Callable[[], Resolution]
) -> None:
    show_login(server, tmp_path)
    with pytest.raises(NoSolutionError) as caught:
        ask()
    assert caught.value.hint == (
        "look at what the index answers for six: a login or error page of a proxy offers nothing either"
    )


def test_honest_index(server: Server, tmp_path: Path, ask: Callable[[], Resolution]) -> None:
    server.page("six", server.put(WHEEL, wheel(tmp_path)))
    assert [(package.name, package.version) for package in ask().packages] == [("six", "1.16.0")]
