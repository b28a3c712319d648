"""Whether wheels say of themselves what the index said of them, where in doubt.

uv resolves with the metadata that an index serves beside a wheel (PEP 658).  What is chosen is
described by the wheels themselves, so that a requirement that was added or left out shows: a
package that nobody wants, one that is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from envbuild.errors import IntegrityError
from envbuild.names import Texts
from envbuild.net.answers import read_bounded
from envbuild.net.parallel import for_each_parallel
from envbuild.net.web import GoneError, make_client, open_response, with_retries
from envbuild.resolve.graph import Edge
from envbuild.resolve.pylock import Candidate, Chosen
from envbuild.resolve.sources.metadata import BIGGEST_METADATA, headers

if TYPE_CHECKING:
    import httpx

    from envbuild.context import Context
    from envbuild.resolve.sources.artifacts import About

LOOKUPS = 12


def require_agreement(
    edges: Iterable[Edge],
    answer: Mapping[str, Chosen],
    files: Mapping[str, Candidate],
    abouts: Mapping[str, About],
    context: Context,
) -> None:
    """Raise IntegrityError for a wheel of which the index says something else than it says itself.

    ``edges`` are what the chosen files require; the index is asked only where they do not fit the
    answer.
    """
    # a page of metadata for every wheel is asked for only where the answer looks wrong
    if not _is_doubtful(edges, answer, files):
        return
    wheels = [
        file
        for file in files.values()
        if file.file.endswith(".whl") and file.url.startswith("http")
    ]
    with make_client(context.settings) as client:

        def one(file: Candidate, stop: threading.Event) -> None:
            listed = _index_requires(file, client, stop)
            if listed is not None and set(listed) != set(abouts[file.sha256].requires):
                raise IntegrityError(
                    "requires something else than the index says of it: "
                    f"{', '.join(sorted(set(listed) ^ set(abouts[file.sha256].requires)))[:300]}",
                    where=file.file,
                    hint=(
                        "a damaged or hostile index or mirror does this, so find out before you go "
                        "on"
                    ),
                )

        for_each_parallel(wheels, one, workers=LOOKUPS)


def _is_doubtful(
    edges: Iterable[Edge], answer: Mapping[str, Chosen], files: Mapping[str, Candidate]
) -> bool:
    wanted: set[str] = set()
    for edge in edges:
        wanted.add(edge.target)
        if edge.source in files and edge.requirement.url is None:
            chosen = answer.get(edge.target)
            if chosen is None or not edge.requirement.specifier.contains(
                chosen.version, prereleases=True
            ):
                return True
    return bool(set(files) - wanted)


def _index_requires(file: Candidate, client: httpx.Client, stop: threading.Event) -> Texts | None:
    """Return what the index says that a wheel requires, None where it says nothing."""
    url = f"{file.url.partition('#')[0]}.metadata"

    def ask() -> bytes:
        with open_response(client, url) as response:
            return read_bounded(response, BIGGEST_METADATA)

    try:
        return headers(with_retries(ask, url=url, stop=stop).decode("utf-8", "replace")).requires
    except GoneError:
        return None
