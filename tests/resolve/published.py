"""What an index says of projects, their releases and single files in them, fetched by range and kept by content."""

from __future__ import annotations

import io
import json
import re
import tarfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import httpx
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from envbuild.net.index import Link, index_url, read_links
from envbuild.net.web import GoneError, open_response, with_retries
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.sources.artifacts import RANGE, describe_files, stored_file
from envbuild.resolve.sources.metadata import TAIL, Remote
from envbuild.settings import Settings
from envbuild.store.atomic import write_text
from envbuild.store.layout import Store
from tests.support import quiet_context

LARGEST_EXTENSION = 1_200_000
"""Compressed bytes of an extension module that is still fetched."""
SMALL = 25_000_000
"""Bytes of a wheel that is fetched in one piece when many of its files are read."""
MOST_OPENED = 16
"""Archives that are kept open, as several questions about one follow each other."""
MOST_EXTENSIONS = 12
NUMPY = re.compile(rb"numpy\._core")
ANY_NUMPY = re.compile(rb"numpy\.core|numpy\._core")
PREFERRED = ("cp312", "abi3", "cp311", "cp310", "py3-none", "cp39", "cp38", "cp37")
"""Which of a release's wheels for Linux on x86_64 is looked at."""


@dataclass
class Opened:
    """An opened wheel or source archive."""

    entries: Mapping[str, Callable[[], bytes]]
    sizes: dict[str, int]

    def names(self) -> list[str]:
        """Return the files' names, without what an archive has above them."""
        return sorted(self.entries)

    def data(self, path: str) -> bytes:
        """Return a file's bytes; none where it is not there."""
        return self.entries[path]() if path in self.entries else b""

    def text(self, path: str) -> str:
        """Return a file's text."""
        return self.data(path).decode("utf-8", "replace")


class Published:
    """The index of this machine.  Answers about a file never change: they are kept in the store by its sha256."""

    def __init__(self, settings: Settings, client: httpx.Client) -> None:
        self.settings, self.client = settings, client
        self.index = index_url(quiet_context(settings))
        self._pages: dict[str, dict[Version, Link]] = {}
        self._locks: dict[object, threading.Lock] = {}
        self._guard = threading.Lock()
        self._opened: dict[str | None, Opened] = {}

    def releases(self, name: str) -> list[Version]:
        """Return the final releases of a project that have a file for Linux on x86_64, in order."""
        return sorted(self._files(name))

    def uploaded(self, name: str, version: Version) -> str:
        """Return the day of a release, as an ISO date."""
        return (self._files(name)[version].uploaded or "")[:10]

    def requires(self, name: str, version: Version) -> tuple[str, ...]:
        """Return a wheel's Requires-Dist; nothing of a release that is there as source only."""
        link = self._files(name)[version]
        if not link.file.endswith(".whl"):
            return ()
        candidate = _candidate(link)
        with self._lock(link.sha256):
            return describe_files([candidate], quiet_context(self.settings))[
                candidate.sha256
            ].requires

    def text(self, name: str, version: Version, member: str) -> str | None:
        """Return the files of a release whose path matches, one after the other; None where there is none."""
        link = self._files(name)[version]

        def read() -> str | None:
            found = _read_members(self._archive(link), link.file, re.compile(member))
            return (
                None if not found else "\n".join(data.decode("utf-8", "replace") for data in found)
            )

        return cast("str | None", self._kept(link, f"text {member}", read))

    def modules(self, name: str) -> set[str]:
        """Return top folders and modules in the newest wheel, as its directory's end names them; none where it has none."""
        wheels = {
            version: link
            for version, link in self._files(name).items()
            if link.file.endswith(".whl")
        }
        if not wheels:
            return set()
        link = wheels[max(wheels)]

        def read() -> list[str]:
            tail = with_retries(lambda: _tail(link, self.client)[0], url=link.url)
            return sorted(_named_in(tail))

        return set(cast("list[str]", self._kept(link, "top folders", read)))

    def learn(
        self, name: str, version: Version, question: str, answer: Callable[[Opened], Any]
    ) -> Any:
        """Return what ``answer`` reads in a release's opened archive (as JSON); it is asked once for each file."""
        link = self._files(name)[version]

        def read() -> Any:
            if link.sha256 not in self._opened:
                while len(self._opened) >= MOST_OPENED:
                    self._opened.pop(next(iter(self._opened)), None)
                self._opened[link.sha256] = opened_archive(
                    self._archive(link, whole=SMALL), link.file
                )
            return answer(self._opened[link.sha256])

        return self._kept(link, question, read)

    def knows_numpy_2(self, name: str, version: Version, member: str | None = None) -> bool | None:
        """Whether a small extension module, or a named one, knows numpy._core: all compiled against numpy 2 do."""
        link = self._files(name)[version]
        question = f"numpy 2 {member}" if member else "numpy 2"
        return cast(
            "bool | None",
            self._kept(link, question, lambda: _extension(self._archive(link), member)),
        )

    def _files(self, name: str) -> dict[Version, Link]:
        with self._lock(name):
            if name not in self._pages:
                self._pages[name] = _best(_links(self.index, name, self.client))
            return self._pages[name]

    def _archive(self, link: Link, *, whole: int = 0) -> BinaryIO:
        """Open a file; a wheel by its parts, unless it has no more than ``whole`` bytes."""
        if not link.file.endswith(".whl"):
            path = stored_file(
                _candidate(link), self.client, Store(self.settings.store), threading.Event()
            )
            return path.open("rb")
        tail, size = with_retries(lambda: _tail(link, self.client), url=link.url)

        def part(first: int, last: int) -> bytes:
            return with_retries(
                lambda: _part(link, f"bytes={first}-{last}", self.client)[0], url=link.url
            )

        return (
            io.BytesIO(part(0, size - 1))
            if size <= whole
            else cast("BinaryIO", Remote(size, part, tail))
        )

    def _kept(self, link: Link, question: str, answer: Callable[[], Any]) -> Any:
        path = Store(self.settings.store).folder("metadata") / f"{link.sha256}-rows.json"
        with self._lock(link.sha256):
            known = _read_known(path)
            if question not in known:
                known[question] = answer()
                write_text(path, json.dumps(known))
            return known[question]

    def _lock(self, key: object) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())


def _read_known(path: Path) -> dict[str, Any]:
    """Return what was read before; nothing where there is none, or a process was stopped while it wrote."""
    try:
        return cast("dict[str, Any]", json.loads(path.read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def opened_archive(file: BinaryIO, name: str) -> Opened:
    """Open a wheel or a source archive; it is read as long as ``file`` is open."""
    if name.endswith((".whl", ".zip")):
        archive = zipfile.ZipFile(file)
        found = {info.filename: info for info in archive.infolist() if not info.is_dir()}
        entries = {path: partial(archive.read, info) for path, info in found.items()}
        return Opened(entries, {path: info.compress_size for path, info in found.items()})
    tar = tarfile.open(fileobj=file)  # noqa: SIM115  open as long as it is read
    inside = {
        member.name.partition("/")[2].removeprefix("src/"): member
        for member in tar
        if member.isfile()
    }
    members = {path: partial(_member, tar, member) for path, member in inside.items()}
    return Opened(members, {path: member.size for path, member in inside.items()})


def _member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""


def _links(index: str, name: str, client: httpx.Client) -> tuple[Link, ...]:
    try:
        return read_links(index, name, client)
    except GoneError:
        return ()


def _best(links: tuple[Link, ...]) -> dict[Version, Link]:
    """Return one file of each final release: the wheel that is looked at, else the source."""
    found: dict[Version, tuple[int, Link]] = {}
    for link in links:
        version, rank = _ranked(link)
        known = (
            version is not None and link.sha256 and not link.yanked and not version.is_prerelease
        )
        if version is not None and known and (version not in found or rank < found[version][0]):
            found[version] = (rank, link)
    return {version: link for version, (_, link) in found.items()}


def _ranked(link: Link) -> tuple[Version | None, int]:
    try:
        if link.file.endswith(".whl"):
            version = parse_wheel_filename(link.file)[1]
            if not re.search(r"-any\.whl$|manylinux\w*x86_64\.whl$", link.file):
                return None, 0
            tags = [rank for rank, tag in enumerate(PREFERRED) if tag in link.file]
            return version, min(tags, default=len(PREFERRED))
        return parse_sdist_filename(link.file)[1], len(PREFERRED) + 1
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None, 0


def _candidate(link: Link) -> Candidate:
    return Candidate(file=link.file, url=link.url, sha256=link.sha256 or "", size=link.size)


def _tail(link: Link, client: httpx.Client) -> tuple[bytes, int]:
    return _part(link, f"bytes=-{TAIL}", client)


def _part(link: Link, wanted: str, client: httpx.Client) -> tuple[bytes, int]:
    headers = {"Accept-Encoding": "identity", "Range": wanted}
    with open_response(client, link.url, headers=headers, accept=(200, 206)) as response:
        data = response.read()
        found = RANGE.fullmatch(response.headers.get("Content-Range", ""))
        return data, int(found[3]) if found else len(data)


def _read_members(file: BinaryIO, name: str, wanted: re.Pattern[str]) -> list[bytes]:
    with file:
        if name.endswith((".whl", ".zip")):
            with zipfile.ZipFile(file) as archive:
                return [
                    archive.read(info)
                    for info in archive.infolist()
                    if wanted.fullmatch(info.filename)
                ]
        with tarfile.open(fileobj=file) as tar:
            inside = [m for m in tar if m.isfile() and wanted.fullmatch(m.name.partition("/")[2])]
            return [opened_.read() for m in inside if (opened_ := tar.extractfile(m)) is not None]


def _named_in(tail: bytes) -> set[str]:
    """Return the top folders and modules in the directory at a zip's end, of which the first may be cut off."""
    found = set()
    for match in re.finditer(rb"PK\x01\x02.{24}(..).{16}", tail, re.DOTALL):
        length = int.from_bytes(match[1], "little")
        name = tail[match.end() : match.end() + length].decode("utf-8", "replace")
        name = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", name)
        if re.fullmatch(r"\w+\.py", name):
            found.add(name.removesuffix(".py"))
        if "/" in name and not re.match(r"[^/]+\.(dist-info|data|libs)/", name):
            found.add(
                name.split("/")[0]
                if not name.startswith("nvidia/")
                else "/".join(name.split("/")[:2])
            )
    return found


def _extension(file: BinaryIO, member: str | None) -> bool | None:
    """Return whether the first small extension that mentions numpy knows numpy 2; None where none mentions it."""
    wanted = re.compile(member or r"(?!.*\.libs/).*\.so")
    with file, zipfile.ZipFile(file) as archive:
        modules = [info for info in archive.infolist() if wanted.fullmatch(info.filename)]
        modules = [i for i in modules if i.compress_size <= LARGEST_EXTENSION]
        for info in sorted(modules, key=lambda i: i.compress_size)[:MOST_EXTENSIONS]:
            data = archive.read(info)
            if ANY_NUMPY.search(data):
                return NUMPY.search(data) is not None
    return None


def settings_with(settings: Settings, store: Path) -> Settings:
    """Return settings that keep what they learn in another store."""
    from dataclasses import replace

    return replace(settings, store=store)
