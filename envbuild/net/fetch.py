"""Download artifacts into the store: many at a time, resumable, checked by hash."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from envbuild.context import Context
from envbuild.errors import IntegrityError, NetworkError, SpaceError, UsageError
from envbuild.host import free_bytes
from envbuild.names import Texts
from envbuild.net.channels import channel_urls
from envbuild.net.download import Download, download_file
from envbuild.net.index import index_url, read_links
from envbuild.net.parallel import for_each_parallel
from envbuild.net.partial import is_complete, partial_path
from envbuild.net.redact import redact, without_user
from envbuild.net.web import GoneError, local_path, make_client, open_response, with_retries
from envbuild.progress import Reporter, Transfer
from envbuild.records import frozen_record
from envbuild.settings import Settings
from envbuild.store.atomic import os_errors_as, size_of
from envbuild.store.layout import Store
from envbuild.store.units import human_bytes

if TYPE_CHECKING:
    import httpx

RESERVE = 64 * 1024 * 1024
"""Bytes that a download leaves free, so that the file system is not filled to its last block."""
LOOKUPS = 8
"""Requests for sizes at the same time."""


@frozen_record
class Artifact:
    """One artifact: file name, size in bytes, sha256 in hex, and the package it belongs to.

    ``path`` is the pool path of a Debian package, or the path of a conda package in its channel;
    ``index`` the name of a wheel's extra index (None for the default), or of a conda channel.
    Raises IntegrityError for a hash or path that no lock may hold, since both become file names and
    addresses.
    """

    file: str
    size: int
    sha256: str
    kind: Literal["python", "debian", "conda"]
    project: str
    path: str | None = None
    index: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise IntegrityError(f"{self.sha256[:80]!r} is not a sha256 in hex", where=self.file)
        if self.kind != "python" and not _is_pool_path(self.path or ""):
            place = "a Debian mirror" if self.kind == "debian" else "a conda channel"
            raise IntegrityError(f"{self.path!r} is not a path inside {place}", where=self.file)


def total_size(wanted: Iterable[Artifact]) -> int:
    """Return the bytes of all different artifacts."""
    return sum(item.size for item in _distinct(wanted))


def missing_artifacts(wanted: Iterable[Artifact], store: Store) -> tuple[Artifact, ...]:
    """Return what the store lacks, each content once; a stored file counts by its size."""
    return tuple(
        item
        for item in _distinct(wanted)
        if not is_complete(store.artifact(item.sha256), item.size)
    )


def fetch_artifacts(
    wanted: Iterable[Artifact], context: Context, *, debian_mirror: str | None = None
) -> None:
    """Download what the store lacks, ``settings.downloads`` files at a time.

    Whatever ends it, what has arrived stays and is continued by the next call.  Raises SpaceError
    before the start when the files will not fit; NetworkError, GoneError (exit 5) when a file
    cannot be had; IntegrityError when something else arrives than was recorded.
    """
    todo = sorted(missing_artifacts(wanted, context.store), key=lambda item: -item.size)
    if not todo:
        return
    _check_space(todo, context.store)
    indexes = {
        name: index_url(context, name) for name in {i.index for i in todo if i.kind == "python"}
    }
    channels = {
        name: channel_urls(context.settings, name)
        for name in {i.index or "" for i in todo if i.kind == "conda"}
    }
    mirror = _debian_mirror(todo, context.settings, debian_mirror)
    with (
        make_client(context.settings) as client,
        context.report.transfer("download", files=len(todo), size=total_size(todo)) as transfer,
    ):
        session = _Session(
            indexes=indexes,
            channels=channels,
            mirror=mirror,
            store=context.store,
            client=client,
            transfer=transfer,
            report=context.report,
        )
        for_each_parallel(todo, session.download, workers=context.settings.downloads)


def locate_files(wanted: Iterable[Artifact], context: Context) -> dict[str, str]:
    """Return addresses of Python files on this machine's indexes, by sha256.

    Raises GoneError for a file that its index does not list any more, NetworkError where one does
    not answer, IntegrityError where it offers the file with other content.
    """
    todo = [item for item in _distinct(wanted) if item.kind == "python"]
    indexes = {name: index_url(context, name) for name in {item.index for item in todo}}
    found: dict[str, str] = {}
    with make_client(context.settings) as client:

        def one(item: Artifact, stop: threading.Event) -> None:
            url = _python_url(item, indexes, client, stop)
            found[item.sha256] = without_user(url).partition("#")[0]

        for_each_parallel(todo, one, workers=LOOKUPS)
    return found


def ask_sizes(urls: Iterable[str], client: httpx.Client) -> dict[str, int]:
    """Return the size in bytes of what each URL leads to, asked for without downloading.

    Raises NetworkError when a server does not answer or does not tell.
    """
    found: dict[str, int] = {}

    def one(url: str, stop: threading.Event) -> None:
        found[url] = _linked_size(url, client, stop)

    for_each_parallel(dict.fromkeys(urls), one, workers=LOOKUPS)
    return found


@frozen_record
class _Session:
    """Where files come from (indexes and channels by name, the Debian mirror) and go to."""

    indexes: Mapping[str | None, str]
    channels: Mapping[str, Texts]
    mirror: str
    store: Store
    client: httpx.Client
    transfer: Transfer
    report: Reporter

    def download(self, item: Artifact, stop: threading.Event) -> None:
        """Find and download one artifact; of several mirrors the first that has it."""
        *others, last = self.urls(item, stop)
        if not any(self.is_served(url, item, stop) for url in others):
            self.download_from(last, item, stop)

    def is_served(self, url: str, item: Artifact, stop: threading.Event) -> bool:
        """Download one artifact from a mirror that may lack it; return whether it has arrived."""
        try:
            self.download_from(url, item, stop)
        except NetworkError as error:
            self.report.detail(f"{redact(url)}: {error}")
            return False
        return True

    def download_from(self, url: str, item: Artifact, stop: threading.Event) -> None:
        """Download one artifact from an address."""
        self.report.detail(f"download {item.file} from {redact(url)}")
        final = self.store.artifact(item.sha256)
        job = Download(url=url, name=item.file, size=item.size, sha256=item.sha256, final=final)
        try:
            download_file(
                job, client=self.client, transfer=self.transfer, report=self.report, stop=stop
            )
        except GoneError as error:
            raise GoneError(
                f"{item.file} is gone", where=redact(url), hint=_gone_hint(item)
            ) from error
        self.report.detail(item.file)

    def urls(self, item: Artifact, stop: threading.Event) -> Texts:
        """Find an artifact's addresses.  Raises GoneError when its index no longer lists it."""
        path = quote(item.path or "", safe="/~+")
        if item.kind == "debian":
            return (f"{self.mirror.rstrip('/')}/{path}",)
        if item.kind == "conda":
            return tuple(f"{url}/{path}" for url in self.channels[item.index or ""])
        return (_python_url(item, self.indexes, self.client, stop),)


def _python_url(
    item: Artifact, indexes: Mapping[str | None, str], client: httpx.Client, stop: threading.Event
) -> str:
    index = indexes[item.index]
    links = read_links(index, item.project, client, stop=stop)
    same = [link for link in links if link.sha256 == item.sha256]
    named = [link for link in links if link.file == item.file]
    unhashed = [link for link in named if link.sha256 is None]
    if same or unhashed:
        return (same or unhashed)[0].url
    if named:
        raise IntegrityError(
            f"the index offers {item.file} with other content: expected sha256 {item.sha256}, "
            f"it says {named[0].sha256}",
            where=redact(index),
            hint="nothing was downloaded; find out why before you lock again",
        )
    raise GoneError(f"{item.file} is not on the index", where=redact(index), hint=_gone_hint(item))


def _gone_hint(item: Artifact) -> str:
    if item.kind == "debian":
        return "mirrors drop superseded versions; take today's with: envbuild lock NAME --upgrade-system"
    return f"choose another version with: envbuild lock NAME --upgrade {item.project}"


def _distinct(wanted: Iterable[Artifact]) -> list[Artifact]:
    return list({item.sha256: item for item in wanted}.values())


def _is_pool_path(path: str) -> bool:
    parts = path.split("/")
    return (
        all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+!~%-]*", part) for part in parts)
        and len(path) <= 400
    )


def _debian_mirror(todo: Iterable[Artifact], settings: Settings, mirror: str | None) -> str:
    if not any(item.kind == "debian" for item in todo):
        return ""
    if not mirror:
        hint = f'write its address into {settings.config}:\n[mirrors]\ndebian = "https://…/debian"'
        raise UsageError("no Debian mirror is known on this machine", hint=hint)
    if not re.match(r"https?://[^/]|file:/", mirror):
        raise UsageError(
            f"{redact(mirror)!r} is not the address of a Debian mirror", where="[mirrors] debian"
        )
    return mirror


def _check_space(todo: Iterable[Artifact], store: Store) -> None:
    folder = store.folder("artifacts")
    arrived = sum(size_of(partial_path(store.artifact(item.sha256))) for item in todo)
    needed = total_size(todo) - arrived
    with os_errors_as(folder):
        free = free_bytes(folder)
    if needed + RESERVE > free:
        raise SpaceError(
            f"{human_bytes(needed)} are to be downloaded, {human_bytes(free)} are free",
            where=folder,
            hint="free space there, or point ENVBUILD_STORE to a larger file system",
        )


def _linked_size(url: str, client: httpx.Client, stop: threading.Event) -> int:
    path = local_path(url)
    if path is not None:
        try:
            return path.stat().st_size
        except OSError as error:
            raise GoneError(f"cannot be read: {error.strerror}", where=path) from error
    return with_retries(lambda: _size_by_request(url, client), url=url, stop=stop)


def _size_by_request(url: str, client: httpx.Client) -> int:
    """Ask with HEAD; where that is not answered usefully, with a request for the first byte."""
    plain = {"Accept-Encoding": "identity"}
    try:
        with open_response(client, url, method="HEAD", headers=plain) as response:
            length = response.headers.get("Content-Length", "")
    except NetworkError:
        length = ""  # some stores of files refuse HEAD, with any status
    if length.isdecimal():
        return int(length)
    with open_response(
        client, url, headers={**plain, "Range": "bytes=0-0"}, accept=(200, 206)
    ) as response:
        if response.status_code == 206:
            length = response.headers.get("Content-Range", "").rpartition("/")[2]
        else:
            length = response.headers.get("Content-Length", "")
    if not re.fullmatch("[0-9]{1,18}", length):
        raise NetworkError("does not give the size of this file", where=redact(url))
    return int(length)
