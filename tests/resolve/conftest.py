"""A package index made in a folder, and a resolver that knows no other."""

from __future__ import annotations

import hashlib
import html
import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envbuild.base.model import BaseFacts, Dist
from envbuild.resolve.model import Request, Resolution
from envbuild.resolve.stubs import write_wheel
from envbuild.resolve.uv.resolver import UvResolver
from envbuild.settings import Settings, load_settings
from tests.resolve.loopback import Server
from tests.support import quiet_context


class SyntheticIndex:
    """A PEP 503 index in a folder: wheels without content, sdists with a setup.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.simple = folder / "simple"
        self.simple.mkdir(parents=True)

    @property
    def url(self) -> str:
        return f"file://{self.simple}"

    def wheel(
        self,
        name: str,
        *versions: str,
        requires: tuple[str, ...] = (),
        day: str = "2024-01-01",
        python: str | None = None,
        tag: str = "py3-none-any",
    ) -> None:
        for version in versions:
            (self.simple / name).mkdir(exist_ok=True)
            path = write_wheel(self.simple / name, name, version, requires)
            named = path.with_name(path.name.replace("py3-none-any", tag))
            self._list(path.replace(named), day, python)

    def sdist(
        self, name: str, version: str, *, files: dict[str, str], day: str = "2024-01-01"
    ) -> Path:
        (self.simple / name).mkdir(exist_ok=True)
        path = self.simple / name / f"{name}-{version}.tar.gz"
        path.write_bytes(sdist_bytes(f"{name}-{version}", files))
        self._list(path, day)
        return path

    def _list(self, path: Path, day: str, python: str | None = None) -> None:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        limit = f' data-requires-python="{html.escape(python)}"' if python else ""
        anchor = f'<a href="{path.name}#sha256={sha256}" data-upload-time="{day}T00:00:00Z"{limit}>{path.name}</a>\n'
        with (path.parent / "index.html").open("a") as page:
            page.write(anchor)


def sdist_bytes(top: str, files: dict[str, str]) -> bytes:
    """Return a .tar.gz with text files under one top folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def dists(*pins: str, **requires: tuple[str, ...]) -> tuple[Dist, ...]:
    """Return distributions from ``name==version``; ``requires`` by name, with _ for -."""
    return tuple(
        Dist(name=name, version=version, requires=requires.get(name.replace("-", "_"), ()))
        for name, _, version in (pin.partition("==") for pin in pins)
    )


def base(*pins: str, requires: Any = None, **other: str) -> BaseFacts:
    """Return the facts of a base with these distributions: Python 3.11, glibc 2.36, created in June 2024.

    ``requires`` maps names to tuples of PEP 508 strings.
    """
    given = {
        "image": "example/base:1",
        "python": "3.11.2",
        "machine": "x86_64",
        "glibc": "2.36",
        "created": "2024-06-14",
    }
    wanted = {name.replace("-", "_"): value for name, value in (requires or {}).items()}
    return BaseFacts(**{**given, **other}, dists=dists(*pins, **wanted))  # type: ignore[arg-type]


@pytest.fixture
def index(tmp_path: Path) -> SyntheticIndex:
    return SyntheticIndex(tmp_path / "index")


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture
def settings(tmp_path: Path, index: SyntheticIndex, uv_cache: Path) -> Settings:
    """Settings of a user whose only index is the synthetic one; what would leak in is set."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "TMPDIR": str(tmp_path),
        "UV_CACHE_DIR": str(uv_cache),
        "ENVBUILD_INDEX": index.url,
        "ENVBUILD_STORE": str(tmp_path / "store"),
        "UV_CONSTRAINT": "/nonexistent/constraints.txt",
        "UV_EXTRA_INDEX_URL": "https://mirror.invalid/extra/simple",
        "PIP_FIND_LINKS": "/nonexistent/wheels",
    }
    return load_settings(environment, tmp_path)


@pytest.fixture
def resolver_with(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., UvResolver]:
    """Return a resolver on the synthetic index, for a user with other settings.

    Hints are tried to the end, on a busy machine too.
    """
    monkeypatch.setattr("envbuild.resolve.conflict.suggestions.SECONDS", 600.0)
    return lambda **changes: UvResolver(quiet_context(replace(settings, **changes)))


@pytest.fixture
def resolve(resolver_with: Callable[..., UvResolver]) -> Callable[..., Resolution]:
    """Resolve requirements against a base on the synthetic index."""
    resolver = resolver_with()

    def ask(facts: BaseFacts, *requirements: str, **other: object) -> Resolution:
        return resolver(Request(facts=facts, requirements=requirements, **other))  # type: ignore[arg-type]

    return ask


@pytest.fixture
def server() -> Iterator[Server]:
    served = Server()
    yield served
    served.ended.set()
    served.http.shutdown()
    served.http.server_close()


@pytest.fixture
def resolver_at(
    settings: Settings, resolver_with: Callable[..., UvResolver]
) -> Callable[..., UvResolver]:
    """Return a resolver whose only index is at another address; it asks once."""

    def make(url: str, **variables: str) -> UvResolver:
        environment = {**settings.environment, "UV_HTTP_RETRIES": "0", **variables}
        return resolver_with(indexes={"default": f"{url}/simple"}, environment=environment)

    return make


@pytest.fixture
def ask_server(
    server: Server, resolver_at: Callable[..., UvResolver], tmp_path: Path
) -> Callable[..., Resolution]:
    """Resolve names on the server, with short patience; uv's cache is new, as its server is."""
    cache = str(tmp_path / "uv-cache")
    resolver = resolver_at(server.url, UV_HTTP_TIMEOUT="1", UV_CACHE_DIR=cache)
    return lambda *names: resolver(Request(facts=base(), requirements=names))


def versions(resolution: Resolution) -> dict[str, str]:
    """Return the version of each package that was chosen."""
    return {package.name: package.version for package in resolution.packages}
