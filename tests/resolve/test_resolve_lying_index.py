"""An index on 127.0.0.1 that breaks, hangs or lies: a clear error each time, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.errors import EnvbuildError, IntegrityError, NetworkError, NoSolutionError
from envbuild.resolve.model import Resolution
from envbuild.resolve.stubs import write_wheel
from tests.resolve.conftest import sdist_bytes
from tests.resolve.loopback import Server

WHEEL = "six-1.16.0-py3-none-any.whl"
SDIST = "six-1.16.0.tar.gz"
SETUP = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: six\nVersion: 1.16.0\n",
    "setup.py": "import nothing\n",
}


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
    ask_server: Callable[..., Resolution],
) -> None:
    lie(server, tmp_path)
    with pytest.raises(told[0]) as caught:
        ask_server("six")
    assert told[1] in str(caught.value)
    assert caught.value.hint
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("envbuild")] == []


def test_page_of_a_login_is_suspected(
    server: Server, tmp_path: Path, ask_server: Callable[..., Resolution]
) -> None:
    show_login(server, tmp_path)
    with pytest.raises(NoSolutionError) as caught:
        ask_server("six")
    assert caught.value.hint == (
        "look at what the index answers for six: a login or error page of a proxy offers nothing either"
    )


def test_honest_index(
    server: Server, tmp_path: Path, ask_server: Callable[..., Resolution]
) -> None:
    server.page("six", server.put(WHEEL, wheel(tmp_path)))
    assert [(package.name, package.version) for package in ask_server("six").packages] == [
        ("six", "1.16.0")
    ]
