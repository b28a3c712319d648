"""The downloaders that a written definition carries, run against a real server."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from envbuild.plan.scripts import fetch_packages
from tests.plan.carried import load_program
from tests.support import http_server

fetch_debian = load_program("fetch_debian")
DATA = b"the file"
SUM = hashlib.sha256(DATA).hexdigest()
FILE = "My_Tool-1.0-py3-none-any.whl"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Serve an index and a mirror that hold one file each."""
    top = tmp_path / "served"
    for folder in ("simple/my-tool", "pool"):
        (top / folder).mkdir(parents=True)
    (top / "simple/my-tool/index.html").write_text(
        f"<a href='other.whl'>x</a><a class='y' href='../../pool/{FILE}?a=1#sha256={SUM}'>{FILE}</a>"
    )
    (top / "pool" / FILE).write_bytes(DATA)
    with http_server(SimpleHTTPRequestHandler, directory=str(top)) as url:
        yield url


def listed(folder: Path, *, sha256: str = SUM, file: str = FILE) -> str:
    path = folder / "packages.txt"
    path.write_text(f"My.Tool==1.0 --hash=sha256:{sha256}  # {file}\n# a comment\n")
    return str(path)


def test_a_package_is_found_on_its_page_and_verified(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{server}/simple/")
    fetch_packages.main(str(tmp_path), listed(tmp_path))
    assert (tmp_path / FILE).read_bytes() == DATA
    with pytest.raises(SystemExit, match=f"{FILE}: sha256 is {SUM}, the lock says 00"):
        fetch_packages.main(str(tmp_path), listed(tmp_path, sha256="00"))
    with pytest.raises(SystemExit, match=r"gone.whl is not on the package index any more"):
        fetch_packages.main(str(tmp_path), listed(tmp_path, file="gone.whl"))


def test_a_password_is_kept_for_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_packages, "passwords", {})
    monkeypatch.setenv("ENVBUILD_INDEX_OUR_LAB", "https://me:a%40b@mirror.invalid:8/simple/")
    assert fetch_packages.index_address("our-lab") == "https://mirror.invalid:8/simple"
    assert fetch_packages.passwords == {"mirror.invalid:8": "Basic bWU6YUBi"}
    with pytest.raises(SystemExit, match="set ENVBUILD_INDEX_OTHER to the address of"):
        fetch_packages.index_address("other")


def test_a_debian_package_is_verified(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBIAN_MIRROR", server)
    listing = tmp_path / "debian.txt"
    listing.write_text(f"{SUM} pool/{FILE}\n")
    fetch_debian.main(str(tmp_path), str(listing))
    assert (tmp_path / FILE).read_bytes() == DATA
    listing.write_text(f"00 pool/{FILE}\n")
    with pytest.raises(SystemExit, match=f"{FILE}: sha256 is {SUM}, the lock says 00"):
        fetch_debian.main(str(tmp_path), str(listing))


@pytest.mark.parametrize(
    "text",
    [
        "# deb http://no.invalid x\ndeb [signed-by=/k] http://mirror.invalid/debian bookworm main\n",
        "Types: deb\nURIs: http://mirror.invalid/debian\nSuites: bookworm\n",
    ],
)
def test_the_mirror_is_read_from_both_kinds_of_lists(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEBIAN_MIRROR", raising=False)
    with pytest.raises(SystemExit, match="this system names no Debian mirror: set DEBIAN_MIRROR"):
        fetch_debian.find_mirror(str(tmp_path))
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/a.sources").write_text(text)
    assert fetch_debian.find_mirror(str(tmp_path)) == "http://mirror.invalid/debian"
