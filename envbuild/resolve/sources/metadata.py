"""Read core metadata: of a text, and of a wheel that is not downloaded."""

from __future__ import annotations

import email.parser
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.errors import IntegrityError
from envbuild.formats.fast_zip import require_one_reading
from envbuild.limits import reading
from envbuild.names import Numbers, Texts
from envbuild.net.web import PassingError
from envbuild.records import frozen_record
from envbuild.resolve.stubs import parse_requirements
from envbuild.resolve.versions import release_of

TAIL = 64 * 1024
"""Bytes read at a time from the end: directory and metadata of all but the largest wheels lie in
the last ones."""
BIGGEST_METADATA = 8 * 1024 * 1024
METADATA = re.compile(r"^[^/]+\.dist-info/METADATA$")


@frozen_record
class Headers:
    """The fields of core metadata that a resolution needs; ``requires`` are PEP 508 strings.

    ``name`` and ``release`` are the package's, "" where they are missing; ``version`` is that of
    the metadata's form; ``dynamic`` are the fields, in small letters, that a build may fill
    otherwise.
    """

    requires: Texts = ()
    requires_python: str | None = None
    name: str = ""
    release: str = ""
    version: Numbers = ()
    dynamic: Texts = ()


def headers(text: str) -> Headers:
    """Read core metadata (METADATA, PKG-INFO); requirements that are not PEP 508 are left out."""
    message = email.parser.HeaderParser().parsestr(text)
    requires = parse_requirements(
        tuple(str(value) for value in message.get_all("Requires-Dist") or ())
    )
    python = re.sub(r"[^\x20-\x7e]", "", str(message.get("Requires-Python") or "")).strip()
    form = re.findall(r"[0-9]{1,4}", str(message.get("Metadata-Version", "")))
    dynamic = message.get_all("Dynamic") or ()
    return Headers(
        requires=tuple(map(str, requires)),
        requires_python=python or None,
        name=str(message.get("Name", "")).strip(),
        release=str(message.get("Version", "")).strip(),
        version=tuple(map(int, form[:2])),
        dynamic=tuple(str(value).strip().lower() for value in dynamic),
    )


def wheel_headers(file: BinaryIO, name: str) -> Headers:
    """Read the fields of a wheel's metadata from a seekable file; ``name`` is its file name.

    Raises IntegrityError when it is not a wheel, or that of another package.
    """
    found = headers(wheel_text(file, name))
    require_same(found, name)
    return found


def require_same(found: Headers, file: str) -> None:
    """Raise IntegrityError where metadata names another release than the file's name.

    What is no name or version of today's form (files of long ago) is not compared.
    """
    named = release_of(file)
    if named is None:
        return
    name, version = canonicalize_name(found.name), _parse_version(found.release)
    other = bool(name) and name != "unknown" and name != named[0]
    if other or (version is not None and name != "unknown" and version != named[1]):
        raise IntegrityError(
            f"says that it is {found.name[:80]} {found.release[:80]}: the name of its file says "
            "something else",
            where=file,
            hint="a damaged or hostile index or mirror does this, so find out before you go on",
        )


def _parse_version(version: str) -> Version | None:
    try:
        return Version(version)
    except ValueError:
        return None


def wheel_text(file: BinaryIO, name: str) -> str:
    """Read a wheel's metadata from a seekable file.  Raises IntegrityError."""
    with _opened(file, name) as archive:
        found = [info for info in archive.infolist() if METADATA.match(info.filename)]
        if len(found) != 1 or found[0].file_size > BIGGEST_METADATA:
            raise IntegrityError(f"has {len(found)} metadata files of usable size, a wheel has one")
        with archive.open(found[0]) as member:
            return member.read(BIGGEST_METADATA).decode("utf-8", "replace")


def member_names(file: BinaryIO, name: str) -> list[str]:
    """Return the names of a wheel's files.  Raises IntegrityError when it is not a wheel."""
    with _opened(file, name) as archive:
        return archive.namelist()


@contextmanager
def _opened(file: BinaryIO, name: str) -> Iterator[zipfile.ZipFile]:
    # a part of a remote wheel may have to be asked for again
    with reading("is not a wheel", name, passing=(PassingError,)), zipfile.ZipFile(file) as archive:
        require_one_reading(archive)
        yield archive


class Remote(io.RawIOBase):
    """A file of known size whose parts are fetched when they are read.

    ``fetch(first, last)`` returns the bytes of that range, both ends included.
    """

    def __init__(self, size: int, fetch: Callable[[int, int], bytes], tail: bytes = b"") -> None:
        self.size = size
        self.position = 0
        self._fetch = fetch
        self._parts: list[tuple[int, bytes]] = [(size - len(tail), tail)] if tail else []

    def seekable(self) -> bool:
        """Tell that it can."""
        return True

    def readable(self) -> bool:
        """Tell that it can."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move there; nothing is fetched."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        self.position = max(0, start + offset)
        return self.position

    def read(self, count: int = -1) -> bytes:
        """Return up to ``count`` bytes, fetching at least TAIL of them."""
        end = self.size if count < 0 else min(self.position + count, self.size)
        if end <= self.position:
            return b""
        for start, data in self._parts:
            if start <= self.position and end <= start + len(data):
                return self._take(start, data, end)
        last = min(max(end, self.position + TAIL), self.size) - 1
        data = self._fetch(self.position, last)
        self._parts.append((self.position, data))
        return self._take(self.position, data, end)

    def _take(self, start: int, data: bytes, end: int) -> bytes:
        taken = data[self.position - start : end - start]
        self.position += len(taken)
        return taken
