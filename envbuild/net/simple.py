"""Read the pages of a package index: PEP 691 (JSON) and PEP 503 (HTML) give the same records."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from envbuild.limits import LINKS, TAG, UNREADABLE
from envbuild.records import frozen_record, replace

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"  # PEP 691
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPES = ("application/vnd.pypi.simple.v1+html", "text/html", "application/xhtml+xml")
ARCHIVE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._+!~%-]*\.(whl|tar\.gz|zip|tar\.bz2|tar\.xz|tgz)", re.ASCII
)
HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
PLAIN = re.compile(r"https://[A-Za-z0-9.-]+(?::\d{1,4})?/[A-Za-z0-9._+!~%/-]*", re.ASCII)
"""An address that is absolute and clean as it is written: of pages with thousands of files most
are."""
ATTRIBUTES = (
    "href", "data-upload-time", "data-yanked", "data-requires-python", "name", "content",
)  # fmt: skip
TAGS = 8
"""Tags for a file at most: four begin and end, and comments."""
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}[0-9.:Z+-]*", re.ASCII)


class PageError(ValueError):
    """A page that is no index page; its text says why."""


@frozen_record
class Link:
    """One file: ``sha256`` in hex, ``size`` in bytes, ``uploaded`` as ISO time, where known.

    ``requires_python`` is a version specifier as the index writes it. ``file`` is a plain file name
    and ``url`` absolute, with the scheme http, https or (from a local index) file.
    """

    file: str
    url: str
    sha256: str | None = None
    size: int | None = None
    uploaded: str | None = None
    yanked: bool = False
    requires_python: str | None = None


def links_of_json(data: bytes, page: str) -> tuple[Link, ...]:
    """Read a PEP 691 page that came from the URL ``page``.  Raises PageError."""
    try:
        content = PAGE.decode(data)
    except UNREADABLE as error:
        raise PageError(f"is not an index page: {error}") from error
    _check_version(content.meta.version)
    _check_count(len(content.files))
    found = []
    for file in content.files:
        written = Link(
            file=file.filename,
            url=file.url,
            sha256=file.hashes.sha256,
            size=file.size,
            uploaded=file.uploaded,
            yanked=file.yanked is not False,
            requires_python=file.requires_python,
        )
        found.append(_usable_link(written, page, local=page.startswith("file:")))
    return tuple(link for link in found if link is not None)


def links_of_html(text: str, page: str) -> tuple[Link, ...]:
    """Read a PEP 503 page that came from the URL ``page``.  Raises PageError."""
    _check_count(text.count("<") // TAGS)
    parser = _Anchors()
    try:
        # in pieces: without ">", a whole page would be read again from each "<"
        for begin in range(0, len(text), TAG):
            parser.feed(text[begin : begin + TAG])
            _check_count(len(parser.anchors))
            if len(parser.rawdata) > TAG:
                raise PageError("has a tag of more than 64 KiB")
    except AssertionError as error:  # html.parser's answer to some broken declarations
        raise PageError(f"is not an index page: {error}") from error
    _check_version(parser.version)
    try:
        base = urljoin(page, parser.base) if parser.base else page
    except ValueError as error:
        raise PageError(f"has an unusable base address: {error}") from error
    found = []
    for anchor in parser.anchors:
        href = anchor["href"]
        written = Link(
            file=_name_in(href),
            url=href,
            sha256=_fragment_hash(href),
            uploaded=anchor.get("data-upload-time"),
            yanked="data-yanked" in anchor,
            requires_python=anchor.get("data-requires-python"),
        )
        found.append(_usable_link(written, base, local=page.startswith("file:")))
    return tuple(link for link in found if link is not None)


class _Hashes(msgspec.Struct, frozen=True):
    sha256: str | None = None


class _File(msgspec.Struct, frozen=True):
    filename: str
    url: str
    hashes: _Hashes = _Hashes()
    size: int | None = None
    uploaded: str | None = msgspec.field(default=None, name="upload-time")
    yanked: bool | str = False
    requires_python: str | None = msgspec.field(default=None, name="requires-python")


class _Meta(msgspec.Struct, frozen=True):
    version: str = msgspec.field(default="1.0", name="api-version")


class _Page(msgspec.Struct, frozen=True):
    files: tuple[_File, ...]
    meta: _Meta = _Meta()


# made when this is imported, as threads must not be the first to do (parts/cache.py)
PAGE = msgspec.json.Decoder(_Page)


class _Anchors(HTMLParser):
    """Collect the links of a page, its base address and its version."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: list[dict[str, str]] = []
        self.base = ""
        self.version = "1.0"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs if name in ATTRIBUTES}
        if tag == "a" and "href" in found:
            self.anchors.append(found)
        elif tag == "base" and not self.base:
            self.base = found.get("href", "")
        elif tag == "meta" and found.get("name") == "pypi:repository-version":
            self.version = found.get("content", self.version)


def _check_version(version: str) -> None:
    if version.partition(".")[0] != "1":
        raise PageError(f"is of version {version[:20]!r}; this envbuild reads version 1")


def _check_count(files: int) -> None:
    if files > LINKS:
        raise PageError(
            f"has tags or entries for more than {LINKS} files: too many for one project"
        )


def _fragment_hash(href: str) -> str | None:
    found = re.search(r"#(?:[^#]*&)?sha256=([^&]*)", href)
    return found[1] if found else None


def _name_in(href: str) -> str:
    """Return the file name at the end of an address, "" where it ends without one."""
    try:
        return unquote(urlsplit(href.strip()).path.rsplit("/", 1)[-1])
    except ValueError:
        return ""


def _usable_link(written: Link, page: str, *, local: bool) -> Link | None:
    """Check a link as a page wrote it: absolute, of a package file, with sane values, or None.

    Only a ``local`` page may lead to files of this machine.
    """
    if len(written.file) > 255 or not ARCHIVE.fullmatch(written.file):
        return None
    url = written.url
    if not PLAIN.fullmatch(url):
        try:
            parts = urlsplit(urljoin(page, url.strip()))
            _ = parts.port
        except ValueError:
            return None
        allowed = ("http", "https", "file") if local else ("http", "https")
        if parts.scheme not in allowed:
            return None
        url = parts._replace(fragment="").geturl()
    sha256, size, uploaded = (written.sha256 or "").lower(), written.size, written.uploaded
    if size is not None and size < 0:
        size = None
    if uploaded is not None and not TIME.fullmatch(uploaded):
        uploaded = None
    return replace(
        written,
        url=url,
        sha256=sha256 if HASH.fullmatch(sha256) else None,
        size=size,
        uploaded=uploaded,
        requires_python=written.requires_python or None,
    )
