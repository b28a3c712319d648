"""Names that another project, a placeholder or a later owner has taken."""

from __future__ import annotations

import datetime as dt
import threading
import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from envbuild.context import Context
from envbuild.data.package_tables import load_aliases
from envbuild.errors import EnvbuildError, IntegrityError, NoSolutionError
from envbuild.limits import reading
from envbuild.names import DIRECT, Texts
from envbuild.net.index import read_links
from envbuild.net.parallel import for_each_parallel
from envbuild.net.simple import Link
from envbuild.net.web import GoneError, make_client
from envbuild.records import frozen_record
from envbuild.resolve.conflict.explain import HEADING
from envbuild.resolve.dates import read_date
from envbuild.resolve.graph import Edge
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.sources.artifacts import stored_file
from envbuild.resolve.versions import release_of
from envbuild.store.atomic import write_text
from envbuild.store.units import human_bytes
from envbuild.tarread import archive_members

if TYPE_CHECKING:
    from envbuild.resolve.uv.session import Session

GAP_DAYS = 30
"""Projects that belong together are published within days: the name of one that comes later was not
there before."""
FEW_RELEASES = 3
TINY = 20_000
"""Bytes; pyairports had 3,147 when somebody else took its name, the package that it was had 400
kB."""
LOOKUPS = 12
"""Pages that are read at the same time."""
LARGEST_READ = 4 * 1024 * 1024
"""Bytes of a file that is fetched to see what modules it holds; larger ones are no trap of this
kind."""


def impostor_names(held: Collection[str]) -> Texts:
    """Return the names that count only with wheels: as source they are something else.

    ``held`` are canonical names that come from elsewhere: the base's, trees of the project.
    """
    return tuple(name for name in load_aliases().impostors.names if name not in held)


@frozen_record
class Late:
    """A name registered anew: first day, number of releases, bytes of the largest file."""

    name: str
    first: str
    releases: int
    size: int
    has_module: bool

    @property
    def suspicious(self) -> bool:
        """Whether it looks like somebody else's: hardly anything there, no such module."""
        return self.releases <= FEW_RELEASES and (self.size < TINY or not self.has_module)

    def __str__(self) -> str:
        count = "one release" if self.releases == 1 else f"{self.releases} releases"
        module = "" if self.has_module else f", without a module {self.name.replace('-', '_')}"
        return (
            f"{self.name} was registered on {self.first} ({count}, "
            f"{human_bytes(self.size)}{module})"
        )


def registered_late(
    name: str, before: str, indexes: Mapping[str, str], context: Context
) -> Late | None:
    """Return a name whose first file came GAP_DAYS after an ISO date, else None.

    Raises NetworkError.
    """
    with make_client(context.settings) as client:
        links: tuple[Link, ...] = ()
        for url in indexes.values():
            try:
                links = read_links(url, name, client)
                break
            except GoneError:
                continue
        days = [link.uploaded[:10] for link in links if link.uploaded]
        first = min(days, default=None)
        if first is None or read_date(first, name) - read_date(before, name) <= dt.timedelta(
            days=GAP_DAYS
        ):
            return None
        # the newest file tells what the name is today
        newest = max(links, key=lambda link: link.uploaded or "")
        size = max((link.size or 0 for link in links), default=0)
        modules = None
        if newest.sha256 is not None and size <= LARGEST_READ:
            candidate = Candidate(
                file=newest.file, url=newest.url, sha256=newest.sha256, size=newest.size
            )
            path = stored_file(candidate, client, context.store, threading.Event())
            modules, size = modules_of(path, newest.file), max(size, path.stat().st_size)
        return Late(
            name=name,
            first=first,
            releases=len({_version_text(link.file) for link in links}),
            size=size,
            has_module=modules is None or canonicalize_name(name) in modules,
        )


def registered_anew(
    edges: Iterable[Edge],
    files: Mapping[str, Candidate],
    indexes: Mapping[str, str],
    context: Context,
) -> dict[str, tuple[Late, str]]:
    """Return by name what was registered long after all that require it, and one of those.

    Such a name was not there when the requirement was written, or was somebody else's.  What the
    user names himself is his to choose, and of what the base holds no day is known: neither is
    looked at.
    """
    wanting: dict[str, set[str]] = {}
    for edge in edges:
        wanting.setdefault(edge.target, set()).add(edge.source)
    folder = context.store.folder("metadata")
    asked: dict[str, tuple[str, str]] = {}
    known: dict[str, Path] = {}
    for name, file in files.items():
        sources = wanting.get(name, {DIRECT})
        days = {one: files[one].uploaded for one in sources if one in files}
        dated = {one: day for one, day in days.items() if day}
        # a large file is no placeholder
        is_large = file.size is not None and file.size > LARGEST_READ
        if not dated or len(dated) < len(sources) or is_large:
            continue
        youngest = max(dated, key=lambda one: dated[one])
        written = dated[youngest]
        if _is_long_after(file.uploaded, written):
            # here it is kept that the file is of the project itself
            known[name] = folder / f"{file.sha256}-{written}.known"
            asked[name] = written, youngest
    found: dict[str, tuple[Late, str]] = {}

    def look_up(name: str, stop: threading.Event) -> None:
        written, source = asked[name]
        late = None if stop.is_set() else registered_late(name, written, indexes, context)
        if late is not None and late.suspicious:
            found[name] = late, source
        else:
            write_text(known[name], "")

    unknown = [name for name in asked if not known[name].is_file()]
    for_each_parallel(unknown, look_up, workers=LOOKUPS)
    return dict(sorted(found.items()))


def refuse_registered_anew(
    session: Session, edges: Iterable[Edge], files: Mapping[str, Candidate]
) -> None:
    """Raise NoSolutionError for a name that somebody else seems to have taken.

    ``edges`` are the requirements in force, ``files`` what was chosen by name.
    """
    found = registered_anew(edges, files, session.indexes, session.context).values()
    if found:
        lines = (
            f"- {late}, long after {one}, which requires it: it may be somebody else's"
            for late, one in found
        )
        raise NoSolutionError(
            "\n".join([HEADING, *lines]),
            hint=(
                "look at what it is, and write it under [python] dependencies if it is what you "
                "want\n"
                f"or ask for another release of {', '.join(sorted({one for _, one in found}))}"
            ),
        )


def _is_long_after(day: str | None, before: str) -> bool:
    return bool(day) and read_date(day or "", "") - read_date(before, "") > dt.timedelta(
        days=GAP_DAYS
    )


def modules_of(path: Path, file: str) -> frozenset[str]:
    """Return the top modules of a wheel or sdist, named as projects; none of a broken one."""
    try:
        with reading("is damaged", file):
            members = archive_members(path, as_zip=zipfile.is_zipfile(path))
            names = [name for name, _ in members]
    except IntegrityError:
        return frozenset()
    parts = [PurePosixPath(name).parts for name in names]
    if not file.endswith(".whl"):
        # an sdist has one top folder, and often src/ in it
        parts = [path[2:] if path[1:2] == ("src",) else path[1:] for path in parts]
    return frozenset(_top_modules(parts))


def _top_modules(paths: Iterable[Texts]) -> Iterable[str]:
    for path in paths:
        if len(path) > 1 and path[1].endswith((".py", ".so", ".pyx")):
            yield canonicalize_name(path[0])
        elif len(path) == 1 and path[0].endswith((".py", ".so", ".pyx")):
            yield canonicalize_name(path[0].partition(".")[0])


def _version_text(file: str) -> str:
    found = release_of(file)
    return file if found is None else str(found[1])


def refused_page(
    names: Iterable[str], indexes: Mapping[str, str], context: Context
) -> EnvbuildError | None:
    """Return the error of an index that refuses a page, which uv takes for a missing name."""
    with make_client(context.settings) as client:
        for name in names:
            for url in indexes.values():
                try:
                    read_links(url, name, client)
                except EnvbuildError as error:  # noqa: PERF203  (a few names at most)
                    if not isinstance(error, GoneError):
                        return error
    return None
