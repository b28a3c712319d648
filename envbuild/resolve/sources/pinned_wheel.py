"""The wheel of one exact release, from the index's page: no resolver has to be asked."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.names import DIRECT
from envbuild.net.fetch import ask_sizes
from envbuild.net.index import index_url, read_links
from envbuild.net.simple import Link
from envbuild.net.web import make_client
from envbuild.resolve.model import Found, FoundFile
from envbuild.resolve.platform import best_wheel, tag_order


def pinned_wheels(
    name: str, version: str, bases: Iterable[BaseFacts], context: Context
) -> tuple[Found, ...]:
    """Return the wheel of a release that fits each base best, without those that lack one.

    Raises NetworkError, and UsageError for an index that is no URL.
    """
    index = index_url(context)
    with make_client(context.settings) as client:
        links = {link.file: link for link in read_links(index, name, client)}
        wheels = [link for link in links.values() if _is_wheel_of(link, version)]
        files = [link.file for link in wheels]
        # the same order of tags as for every other package (PEP 425)
        chosen = [best_wheel(files, tag_order(base)) for base in bases]
        wanted = [links[file] for file in chosen if file is not None]
        known = ask_sizes([link.url for link in wanted if link.size is None], client)
    return tuple(_found_wheel(name, version, link, known) for link in wanted)


def pinned_wheel(name: str, version: str, base: BaseFacts, context: Context) -> Found | None:
    """Return the wheel of a release that fits a base best; None where there is none."""
    try:
        return next(iter(pinned_wheels(name, version, (base,), context)), None)
    except EnvbuildError:
        return None


def _is_wheel_of(link: Link, version: str) -> bool:
    # a name of thousands is not parsed: that takes long
    return link.sha256 is not None and link.file.endswith(".whl") and f"-{version}-" in link.file


def _found_wheel(name: str, version: str, link: Link, known: dict[str, int]) -> Found:
    uploaded = link.uploaded[:10] if link.uploaded else None
    file = FoundFile(
        file=link.file,
        sha256=link.sha256 or "",
        size=known.get(link.url, link.size or 0),
        url=link.url,
        uploaded=uploaded,
    )
    return Found(name=name, version=version, file=file, via=(DIRECT,))
