"""Download one file: continue, check size and hash, then give it its name."""

from __future__ import annotations

import contextlib
import functools
import re
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild import limits
from envbuild.errors import IntegrityError, NetworkError
from envbuild.net.partial import CHUNK, Partial, locked_partial
from envbuild.net.redact import redact
from envbuild.net.web import (
    SERVER_HINT,
    PassingError,
    StoppedError,
    local_errors,
    local_path,
    open_response,
    with_retries,
)
from envbuild.progress import Reporter, Transfer
from envbuild.records import frozen_record
from envbuild.store.units import human_bytes

if TYPE_CHECKING:
    import httpx

PROGRESS = 1024 * 1024
"""Bytes that a broken connection must have brought for failures to be counted from one again."""


Until = tuple[threading.Event, float]
"""What ends a download: an event, and a time of time.monotonic()."""


@frozen_record
class Download:
    """One file to bring: its address, its name for messages, what it must be, and where it goes."""

    url: str
    name: str
    size: int
    sha256: str
    final: Path


def download_file(
    download: Download,
    *,
    client: httpx.Client,
    transfer: Transfer,
    report: Reporter,
    stop: threading.Event,
) -> None:
    """Bring one file to its final place, continuing what an earlier run left.

    Raises IntegrityError, whose partial file is removed; GoneError, NetworkError, SpaceError,
    HostError, StoppedError, after which what has arrived stays.
    """

    def waiting() -> None:
        report.detail(f"waiting for another process that downloads {download.name}")

    with locked_partial(download.final, download.size, stop=stop, waiting=waiting) as partial:
        if partial is None:
            transfer.advance(download.size)
            return
        partial.adopt(download.size)
        transfer.advance(partial.have)
        try:
            receiver = _Receiver(download, partial, client, transfer, stop)
            receiver.receive_whole()
        except BaseException as error:
            if isinstance(error, IntegrityError) or not partial.have:
                partial.remove()
            raise
        partial.finish(download.final)


@dataclass(frozen=True, slots=True)
class _Receiver:
    """A file while it is received, over as many connections as it takes."""

    download: Download
    partial: Partial
    client: httpx.Client
    transfer: Transfer
    stop: threading.Event

    def receive_whole(self) -> None:
        """Receive what is missing and check the hash of the whole."""
        partial, wanted = self.partial, self.download.sha256
        self._fill_partial()
        if partial.sha256() != wanted and partial.continued:
            # what lay there may be another's, or holes after a power cut:
            # only a fresh copy accuses the server
            self._start_again()
            self._fill_partial()
        if partial.sha256() != wanted:
            what = f"expected sha256 {wanted}, got {partial.sha256()}"
            raise _integrity_error(self.download, what)

    def _fill_partial(self) -> None:
        """Receive until all bytes are there."""
        size = self.download.size
        if self.partial.have < size:
            deadline = time.monotonic() + limits.FILE_SECONDS + size / limits.SLOWEST_FILE
            receive = functools.partial(self._receive_body, (self.stop, deadline))
            with_retries(receive, url=self.download.url, stop=self.stop)

    def _receive_body(self, until: Until) -> None:
        """Receive from one connection.  Raises PassingError unless everything came."""
        begun = self.partial.have
        try:
            self._append_all(until)
        except _CannotContinue as error:
            self._start_again()
            raise PassingError(str(error)) from error
        except PassingError as error:
            have = self.partial.have
            self.partial.continued = have > 0
            progressed = have - begun >= PROGRESS
            raise PassingError(
                error.reason, wait=error.wait, progressed=progressed, hint=error.hint
            ) from error

    def _append_all(self, until: Until) -> None:
        download, partial = self.download, self.partial
        with _watch_chunks(download, partial.have, self.client) as (start, chunks):
            if start != partial.have:
                self._start_again()
            for chunk in _watch_stall(chunks, until, download):
                if partial.have + len(chunk) > download.size:
                    raise _size_error(download, "the server sends more")
                partial.append(chunk)
                self.transfer.advance(len(chunk))
        if partial.have < download.size:
            raise PassingError(f"ended after {partial.have} of {download.size} bytes")

    def _start_again(self) -> None:
        """Start from the first byte.  Raises NetworkError where that leads nowhere."""
        restarts = self.partial.restarts
        if restarts >= limits.RESTARTS:
            what = f"breaks off and does not continue where it broke off ({restarts} times)"
            raise NetworkError(what, where=redact(self.download.url), hint=SERVER_HINT)
        self.transfer.advance(-self.partial.have)
        self.partial.restart()


class _CannotContinue(Exception):  # noqa: N818  (no failure: the download starts again)
    """The server does not continue where we stopped."""


@contextlib.contextmanager
def _watch_chunks(
    download: Download, have: int, client: httpx.Client
) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Yield (offset, chunks); the offset is ``have``, or 0 where ranges are ignored."""
    path = local_path(download.url)
    if path is not None:
        with _read_local(path, download, have) as chunks:
            yield have, chunks
        return
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    with open_response(
        client, download.url, headers=headers, accept=(200, 206, 416) if have else (200,)
    ) as response:
        start = _range_start(download, response, have)
        yield start, response.iter_raw()


def _range_start(download: Download, response: httpx.Response, have: int) -> int:
    """Check the announced size and range; return the offset of the first byte."""
    length = response.headers.get("Content-Length", "")
    if response.status_code == 200:
        if length.isdecimal() and int(length) != download.size:
            what = f"the server announces {int(length)}"
            if response.headers.get("Content-Type", "").startswith("text/html"):
                what += "; a proxy's or login page may have come in its place"
            raise _size_error(download, what)
        return 0
    found = re.fullmatch(r"bytes (\d{1,18})-\d+/(.+)", response.headers.get("Content-Range", ""))
    if response.status_code == 416 or not found or int(found[1]) != have:
        raise _CannotContinue("does not continue where the last connection ended")
    if found[2] not in ("*", str(download.size)):
        raise _size_error(download, f"the server announces {found[2]}")
    return have


@contextlib.contextmanager
def _read_local(path: Path, download: Download, start: int) -> Iterator[Iterator[bytes]]:
    with local_errors(path):
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise NetworkError("is not a regular file", where=path)
        if found.st_size != download.size:
            raise _size_error(download, f"it has {found.st_size}")
        with path.open("rb") as file:
            file.seek(start)
            yield iter(lambda: file.read(CHUNK), b"")


def _watch_stall(chunks: Iterator[bytes], until: Until, download: Download) -> Iterator[bytes]:
    """Pass chunks on.  Raises StoppedError, PassingError (too slow), NetworkError (deadline)."""
    stop, deadline = until
    since, brought = time.monotonic(), 0
    for chunk in chunks:
        if stop.is_set():
            raise StoppedError
        brought += len(chunk)
        yield chunk
        now = time.monotonic()
        if now > deadline:
            what = f"{download.name} ({human_bytes(download.size)}) comes too slowly: it is not whole after all the time it may take"
            raise NetworkError(
                what,
                where=redact(download.url),
                hint="what has arrived is kept; name a nearer mirror or index",
            )
        if now - since > limits.STALL_SECONDS:
            if brought < limits.STALL_BYTES:
                raise PassingError(f"sent only {human_bytes(brought)} in {now - since:.0f} s")
            since, brought = now, 0


def _size_error(download: Download, found: str) -> IntegrityError:
    return _integrity_error(download, f"expected {download.size} bytes, {found}")


def _integrity_error(download: Download, what: str) -> IntegrityError:
    return IntegrityError(
        f"{download.name} is not the file that was locked: {what}",
        where=redact(download.url),
        hint="nothing of it was kept; a damaged or hostile mirror or proxy does this, so find out before you go on",
    )
