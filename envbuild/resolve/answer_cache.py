"""Remember an answer for as long as the index's pages that it is from count as fresh.

uv does not ask again for a page that it has seen in the last ten minutes (CACHE_CONTROL in
uv/query.py), so that the same question has the same answer until then: it is kept in the store, by
everything that it depends on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from envbuild import __version__
from envbuild.context import Context
from envbuild.errors import NoSolutionError
from envbuild.limits import decode_kept
from envbuild.names import Pairs
from envbuild.net.index import index_url
from envbuild.records import replace
from envbuild.resolve.model import Request, Resolution, Resolver
from envbuild.store.atomic import is_older, write_bytes
from envbuild.store.hashing import hash_bytes
from envbuild.tools import installed_version

FRESH_SECONDS = 600
PRIVATE = 0o600
"""The addresses in an answer may hold what an index is entered with."""


class CachedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, or the what and hint of a NoSolutionError; ``at`` in seconds since 1970.

    ``preferred`` are the versions that it was asked to keep.
    """

    at: float
    preferred: Pairs = ()
    resolution: Resolution | None = None
    what: str = ""
    hint: str | None = None


class CachedResolver:
    """A Resolver before another one, which is made and asked only for what is not known.

    A request to answer ``refresh``, and one to an index in a folder, which no page of is ever kept,
    are always put.
    """

    def __init__(self, context: Context, make: Callable[[], Resolver]) -> None:
        self.context = context
        self.make = make

    def __call__(self, request: Request) -> Resolution:
        """Resolve.  Raises what the other one raises."""
        settings = self.context.settings
        indexes = {name: index_url(self.context, name) for name in (*request.indexes, "default")}
        # the files of a folder may change at any time, so that no answer from one is kept
        if not all(url.startswith("http") for url in indexes.values()):
            return self.make()(request)
        key = _question_key(request, indexes, host_builds=settings.host_builds)
        path = self.context.store.folder("answers") / f"{key}.json"
        kept = None if request.refresh else _read_answer(path, request.keep)
        if kept is None:
            kept = self._ask_backend(request)
            _remove_old(path.parent)
            write_bytes(path, msgspec.json.encode(kept), mode=PRIVATE)
        if kept.resolution is None:
            raise NoSolutionError(kept.what, hint=kept.hint)
        return kept.resolution

    def _ask_backend(self, request: Request) -> CachedAnswer:
        at = time.time()
        try:
            found = self.make()(request)
            return CachedAnswer(at=at, preferred=request.keep, resolution=found)
        except NoSolutionError as refusal:
            return CachedAnswer(at=at, preferred=request.keep, what=refusal.what, hint=refusal.hint)


def _question_key(request: Request, indexes: Mapping[str, str], *, host_builds: bool) -> str:
    """Return the digest of all that an answer depends on but the index's pages and preferences."""
    own = Path(__file__).parent
    # a change of envbuild's code or tables may change the answer,
    # so that old answers do not count then
    rules = [path.stat() for path in sorted(own.rglob("*.py"))]
    rules += [path.stat() for path in sorted((own.parent / "data").glob("*.toml"))]
    question = msgspec.json.encode(
        (
            replace(request, refresh=False, keep=()),
            dict(sorted(indexes.items())),
            [(stat.st_size, stat.st_mtime_ns) for stat in rules],
            (__version__, installed_version("uv"), sys.executable, host_builds),
        )
    )
    return hash_bytes(question)


def _read_answer(path: Path, preferred: Pairs) -> CachedAnswer | None:
    """Return what is known, unless it is too old or other versions are to be kept now."""
    kept = decode_kept(path, CachedAnswer)
    if kept is None or not 0 <= time.time() - kept.at < FRESH_SECONDS:
        return None
    return kept if kept.preferred == preferred or _is_preferred(kept, preferred) else None


def _is_preferred(kept: CachedAnswer, preferred: Pairs) -> bool:
    """Whether an answer consists of the very versions to keep, as those of the lock made of it."""
    if kept.resolution is None:
        return False
    versions = dict(preferred)
    return all(versions.get(one.name) == one.version for one in kept.resolution.packages)


def _remove_old(folder: Path) -> None:
    """Remove what is too old to be used."""
    for path in folder.glob("*.json"):
        with suppress(OSError):
            if is_older(path, FRESH_SECONDS):
                path.unlink()
