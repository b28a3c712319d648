"""Sizes and metadata over HTTP, from a server on 127.0.0.1."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.errors import IntegrityError, NetworkError
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.sources.artifacts import About, describe_files, note_built
from envbuild.resolve.sources.metadata import Headers, Remote, headers, wheel_headers
from envbuild.resolve.stubs import write_wheel
from envbuild.settings import Settings
from envbuild.store.layout import Store
from tests.resolve.conftest import sdist_bytes
from tests.resolve.loopback import Server
from tests.support import quiet_context

Describe = Callable[[Sequence[Candidate]], dict[str, About]]


@pytest.fixture
def describe(settings: Settings) -> Describe:
    """Ask for size and metadata of files."""
    return partial(describe_files, context=quiet_context(settings))


def wheel_bytes(folder: Path, *, padding: int = 0, at_end: bool = False) -> bytes:
    """Return a wheel with padding before its metadata, or behind it."""
    path = write_wheel(folder, "a", "1.0", ("six>=1.10",))
    if not padding:
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    members.insert(len(members) if at_end else 0, ("a/big.bin", bytes(padding)))
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path.read_bytes()


def test_one_request_gives_size_and_metadata_of_a_large_wheel(
    server: Server, describe: Describe, tmp_path: Path
) -> None:
    data = wheel_bytes(tmp_path, padding=3_000_000)
    candidate = server.put("a-1.0-py3-none-any.whl", data)
    about = describe([candidate])[candidate.sha256]
    assert about == About(size=len(data), requires=("six>=1.10",))
    assert server.requests == [("GET", "/a-1.0-py3-none-any.whl", "bytes=-65536")]


def test_metadata_elsewhere_takes_further_requests_but_never_the_whole(
    server: Server, describe: Describe, tmp_path: Path
) -> None:
    candidate = server.put(
        "a-1.0-py3-none-any.whl", wheel_bytes(tmp_path, padding=3_000_000, at_end=True)
    )
    about = describe([candidate])[candidate.sha256]
    assert about.requires == ("six>=1.10",)
    assert [request[2] for request in server.requests] == ["bytes=-65536", "bytes=0-65535"]


def test_what_is_known_is_not_asked_again(
    server: Server, describe: Describe, settings: Settings, tmp_path: Path
) -> None:
    candidate = server.put("a-1.0-py3-none-any.whl", wheel_bytes(tmp_path))
    first = describe([candidate, candidate])
    assert describe([candidate]) == first
    assert len(server.requests) == 1
    kept = next((settings.store / "v1/metadata").glob(f"{candidate.sha256}-*.json"))
    kept.write_text('{"size": 1')
    assert describe([candidate]) == first
    assert len(server.requests) == 2


def test_server_without_ranges(server: Server, describe: Describe, tmp_path: Path) -> None:
    server.ranges = False
    data = wheel_bytes(tmp_path, padding=100_000)
    candidate = server.put("a-1.0-py3-none-any.whl", data)
    about = describe([candidate])[candidate.sha256]
    assert about == About(size=len(data), requires=("six>=1.10",))


def test_sdist_is_fetched_into_the_store_once(
    server: Server, describe: Describe, settings: Settings
) -> None:
    files = {
        "PKG-INFO": "Requires-Dist: six\nRequires-Python: >=3.8\n",
        "pyproject.toml": "[build-system]\nrequires=['flit-core']\n",
    }
    data = sdist_bytes("a-1.0", files)
    candidate = server.put("a-1.0.tar.gz", data)
    about = describe([candidate])[candidate.sha256]
    assert about == About(
        size=len(data),
        requires=("six",),
        requires_python=">=3.8",
        build=("flit-core",),
        read_from="pkg-info",
        backend="setuptools.build_meta:__legacy__",
    )
    assert Store(settings.store).artifact(candidate.sha256).read_bytes() == data
    assert [request[0] for request in server.requests] == ["HEAD", "GET"]


def test_what_a_build_gave_stands_above_what_an_author_packed(
    server: Server, describe: Describe, settings: Settings
) -> None:
    setup = "setup(install_requires=pick())\n"
    computed = {"setup.py": setup, "PKG-INFO": "Requires-Dist: six\n"}
    candidate = server.put("a-1.0.tar.gz", sdist_bytes("a-1.0", computed))
    written = server.put("b-1.0.tar.gz", sdist_bytes("b-1.0", {"PKG-INFO": "Requires-Dist: six\n"}))
    store = Store(settings.store)
    both = [candidate, written]
    first = describe(both)
    assert [first[one.sha256].read_from for one in both] == ["packed", "pkg-info"]

    for one in both:
        note_built(one.sha256, ("six", "pillow>=9"), store)
    after = describe(both)
    assert after[candidate.sha256].requires == ("six", "pillow>=9")
    assert after[candidate.sha256].read_from == "built"
    assert after[written.sha256] == first[written.sha256]

    (settings.store / f"v1/metadata/{candidate.sha256}-built.json").write_text("{")
    assert describe(both) == first


def test_sdist_with_other_content_than_the_index_says(
    server: Server, describe: Describe, settings: Settings
) -> None:
    candidate = server.put("a-1.0.tar.gz", sdist_bytes("a-1.0", {}), sha256="0" * 64)
    with pytest.raises(
        IntegrityError,
        match=r"a-1\.0\.tar\.gz is not the file that was locked: expected sha256 0000",
    ):
        describe([candidate])
    assert not Store(settings.store).artifact(candidate.sha256).exists()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            b"<html>please log in</html>",
            "a-1.0-py3-none-any.whl: is not a wheel: File is not a zip file",
        ),
        (b"", "a-1.0-py3-none-any.whl: is not a wheel: File is not a zip file"),
    ],
)
def test_file_that_is_no_wheel(data: bytes, text: str, server: Server, describe: Describe) -> None:
    server.ranges = False
    candidate = server.put("a-1.0-py3-none-any.whl", data)
    with pytest.raises(IntegrityError) as caught:
        describe([candidate])
    assert str(caught.value) == text


def test_size_that_the_index_and_the_server_disagree_about(
    server: Server, describe: Describe, tmp_path: Path
) -> None:
    data = wheel_bytes(tmp_path)
    candidate = server.put("a-1.0-py3-none-any.whl", data, size=len(data) + 1)
    with pytest.raises(IntegrityError) as caught:
        describe([candidate])
    assert str(caught.value) == (
        f"{candidate.url}: the index says that a-1.0-py3-none-any.whl has {len(data) + 1} bytes, its server that it has "
        f"{len(data)}"
    )


def test_file_that_is_gone(server: Server, describe: Describe) -> None:
    candidate = Candidate(
        file="a-1.0-py3-none-any.whl", url=f"{server.url}/a-1.0-py3-none-any.whl", sha256="1" * 64
    )
    with pytest.raises(NetworkError) as caught:
        describe([candidate])
    assert str(caught.value) == f"{candidate.url}: is not there (HTTP 404)"


def test_index_that_gives_no_hash(describe: Describe) -> None:
    candidate = Candidate(
        file="a-1.0.tar.gz", url="https://u:p@mirror.invalid/a-1.0.tar.gz", sha256="md5"
    )
    with pytest.raises(IntegrityError) as caught:
        describe([candidate])
    assert str(caught.value) == "the index gives no sha256 for a-1.0.tar.gz"
    assert (
        caught.value.hint
        == "https://***@mirror.invalid/a-1.0.tar.gz does not name one: use another index"
    )


def archive_of(*members: tuple[str, bytes]) -> BinaryIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize(
    "members",
    [
        [],
        [("a/METADATA", b"")],
        [("a.dist-info/METADATA", b""), ("b.dist-info/METADATA", b"")],
        [("a.dist-info/METADATA", bytes(9 * 1024 * 1024))],
    ],
    ids=["empty", "elsewhere", "two", "bomb"],
)
def test_hostile_wheels(members: list[tuple[str, bytes]]) -> None:
    with pytest.raises(IntegrityError, match="metadata files of usable size, a wheel has one"):
        wheel_headers(archive_of(*members), "a.whl")


def test_hostile_headers_lose_what_is_not_a_requirement() -> None:
    text = "Requires-Dist: six\nRequires-Dist: -e .\nRequires-Dist: a b c\nRequires-Python: >=3.8\n ,<4\n\nRequires-Dist: x\n"
    assert headers(text) == Headers(requires=("six",), requires_python=">=3.8 ,<4")


@given(
    st.binary(min_size=1, max_size=300_000),
    st.integers(0, 70_000),
    st.lists(st.tuples(st.integers(0, 300_000), st.integers(-1, 5000)), max_size=6),
)
def test_remote_file_reads_like_the_file(
    data: bytes, tail: int, reads: list[tuple[int, int]]
) -> None:
    asked: list[tuple[int, int]] = []

    def part(first: int, last: int) -> bytes:
        asked.append((first, last))
        return data[first : last + 1]

    remote = Remote(len(data), part, data[max(0, len(data) - tail) :] if tail else b"")
    local = io.BytesIO(data)
    for offset, count in reads:
        remote.seek(offset)
        local.seek(offset)
        assert remote.read(count) == local.read(count)
    assert all(0 <= first <= last < len(data) for first, last in asked)
