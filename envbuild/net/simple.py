"""Read the pages of a package index: PEP 691 (JSON) and PEP 503 (HTML) give the same records."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from envbuild.limits import UNREADABLE

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"  # PEP 691
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPES = ("application/vnd.pypi.simple.v1+html", "text/html", "application/xhtml+xml")
ARCHIVE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._+!~%-]*\.(whl|tar\.gz|zip|tar\.bz2|tar\.xz|tgz)", re.ASCII
)
HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}[0-9.:Z+-]*", re.ASCII)


class PageError(ValueError):
    """A page that is no index page; its text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
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
        content = msgspec.json.decode(data, type=_Page)
    except UNREADABLE as error:
        raise PageError(f"is not an index page: {error}") from error
    _check_version(content.meta.version)
    return _usable_links(
        _make_link(
            page,
            file.url,
            name=file.filename,
            sha256=file.hashes.get("sha256"),
            size=file.size,
            uploaded=file.uploaded,
            yanked=file.yanked is not False,
            requires_python=file.requires_python,
        )
        for file in content.files
    )


def links_of_html(text: str, page: str) -> tuple[Link, ...]:
    """Read a PEP 503 page that came from the URL ``page``.  Raises PageError."""
    parser = _Anchors()
    try:
        parser.feed(text)
        parser.close()
    except AssertionError as error:  # html.parser's answer to some broken declarations
        raise PageError(f"is not an index page: {error}") from error
    _check_version(parser.version)
    try:
        base = urljoin(page, parser.base) if parser.base else page
    except ValueError as error:
        raise PageError(f"has an unusable base address: {error}") from error
    return _usable_links(
        _make_link(
            base,
            anchor["href"],
            sha256=_fragment_hash(anchor["href"]),
            uploaded=anchor.get("data-upload-time"),
            yanked="data-yanked" in anchor,
            requires_python=anchor.get("data-requires-python"),
            local=page.startswith("file:"),
        )
        for anchor in parser.anchors
    )


class _File(msgspec.Struct, frozen=True):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    size: int | None = None
    uploaded: str | None = msgspec.field(default=None, name="upload-time")
    yanked: bool | str = False
    requires_python: str | None = msgspec.field(default=None, name="requires-python")


class _Meta(msgspec.Struct, frozen=True):
    version: str = msgspec.field(default="1.0", name="api-version")


class _Page(msgspec.Struct, frozen=True):
    files: tuple[_File, ...]
    meta: _Meta = _Meta()


class _Anchors(HTMLParser):
    """Collect the links of a page, its base address and its version."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: list[dict[str, str]] = []
        self.base = ""
        self.version = "1.0"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in found:
            self.anchors.append(found)
        elif tag == "base" and not self.base:
            self.base = found.get("href", "")
        elif tag == "meta" and found.get("name") == "pypi:repository-version":
            self.version = found.get("content", self.version)


def _check_version(version: str) -> None:
    if version.partition(".")[0] != "1":
        raise PageError(f"is of version {version[:20]!r}; this envbuild reads version 1")


def _usable_links(links: Iterable[Link | None]) -> tuple[Link, ...]:
    return tuple(link for link in links if link is not None)


def _fragment_hash(href: str) -> str | None:
    found = re.search(r"#(?:.*&)?sha256=([^&]*)", href)
    return found[1] if found else None


def _make_link(
    page: str,
    href: str,
    *,
    name: str | None = None,
    sha256: str | None = None,
    size: int | None = None,
    uploaded: str | None = None,
    yanked: bool = False,
    requires_python: str | None = None,
    local: bool | None = None,
) -> Link | None:
    """Return a link's record, None for no package file or a forbidden address."""
    try:
        parts = urlsplit(urljoin(page, href.strip()))
        _ = parts.port
    except ValueError:
        return None
    file = unquote(parts.path.rsplit("/", 1)[-1]) if name is None else name
    if local is None:
        local = page.startswith("file:")
    allowed = ("http", "https", "file") if local else ("http", "https")
    if len(file) > 255 or not ARCHIVE.fullmatch(file) or parts.scheme not in allowed:
        return None
    digest = (sha256 or "").lower()
    return Link(
        file=file,
        url=parts._replace(fragment="").geturl(),
        sha256=digest if HASH.fullmatch(digest) else None,
        size=size if size is not None and size >= 0 else None,
        uploaded=uploaded if uploaded and TIME.fullmatch(uploaded) else None,
        yanked=yanked,
        requires_python=requires_python or None,
    )
