"""Search the newest entry of every name, over all shelves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from envbuild.errors import IntegrityError
from envbuild.names import Texts
from envbuild.shelf.client import ShelfClient, StoredEntry
from envbuild.shelf.model import Entry


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A search result; ``gpu`` are those it passed on, ``state`` why it is refused, or ""."""

    shelf: str
    name: str
    digest: str = ""
    number: int = 0
    summary: str = ""
    framework: str = ""
    cuda: str = ""
    python: str = ""
    base: str = ""
    who: str = ""
    when: str = ""
    image: bool = False
    verdict: str = ""
    gpu: Texts = ()
    state: str = ""


def search_entries(
    libraries: Iterable[ShelfClient],
    words: Iterable[str] = (),
    *,
    framework: str | None = None,
    gpu: str | None = None,
    cuda: str | None = None,
) -> tuple[SearchResult, ...]:
    """Return the names that all words and filters fit, best first: a word in the name counts most.

    ``framework`` is a name, or "torch 2.5"; ``cuda`` a version or its beginning; ``gpu`` a part of
    the name of a GPU on which the image passed its check.
    """
    asked = tuple(word.casefold() for word in words)
    filtered = bool(framework or gpu or cuda)
    ranked: list[tuple[int, SearchResult]] = []
    for library in libraries:
        known = library.last_verified.read_heads()
        for name, found in library.newest_entries().items():
            if isinstance(found, IntegrityError):
                if not filtered and all(word in name.casefold() for word in asked):
                    refused = f"refused: {found}"
                    ranked.append((0, SearchResult(shelf=library.name, name=name, state=refused)))
                continue
            rank = _rank_entry(found.entry, asked)
            if rank is None:
                continue
            if _fits_filters(found.entry, framework=framework, gpu=gpu, cuda=cuda):
                behind = name in known and found.entry.number < known[name].number
                state = "refused: rolled back" if behind else ""
                ranked.append((rank, _search_result(library.name, found, state)))
    ranked.sort(key=lambda item: (item[0], item[1].name, item[1].shelf))
    return tuple(result for _, result in ranked)


def _search_result(shelf: str, stored: StoredEntry, state: str) -> SearchResult:
    """Return the row of an entry."""
    entry, about = stored.entry, stored.entry.about
    last = max(entry.verdicts, key=lambda one: (one.target is None, one.when), default=None)
    has_image = entry.image is not None and entry.image.pieces is not None
    verdict = f"{last.outcome} {last.when[:10]}" if last else ""
    return SearchResult(
        shelf=shelf,
        name=entry.name,
        digest=stored.digest,
        number=entry.number,
        summary=about.summary,
        framework=about.framework or "",
        cuda=about.cuda or "",
        python=about.python,
        base=about.base,
        who=entry.who,
        when=entry.when,
        image=has_image,
        verdict=verdict,
        gpu=_proven_gpus(entry),
        state=state,
    )


def _proven_gpus(entry: Entry) -> Texts:
    found: set[str] = set()
    for one in entry.verdicts:
        if one.outcome == "passed":
            found.update(one.gpu)
    return tuple(sorted(found))


def _fits_filters(
    entry: Entry, *, framework: str | None, gpu: str | None, cuda: str | None
) -> bool:
    about = entry.about
    if framework:
        name, *version = re.split(r"[\s=]+", framework.casefold().strip())
        held = (about.framework or "").casefold().split()
        if len(held) != 2 or held[0] != name or not _version_begins(held[1], version):
            return False
    if cuda and not _version_begins(about.cuda or "", [cuda]):
        return False
    return gpu is None or any(gpu.casefold() in one.casefold() for one in _proven_gpus(entry))


def _version_begins(version: str, wanted: list[str]) -> bool:
    """Tell whether a version begins with the wanted one: 12.1.1 with 12, not with 1."""
    return not wanted or f"{version}.".startswith(f"{wanted[0].rstrip('.*')}.")


def _rank_entry(entry: Entry, asked: Sequence[str]) -> int | None:
    about = entry.about
    name = entry.name.casefold()
    text = " ".join((about.summary, about.base, about.framework or "", *about.direct)).casefold()
    if not all(word in name or word in text for word in asked):
        return None
    if all(word == name for word in asked):
        return 0
    return 1 if all(word in name for word in asked) else 2
