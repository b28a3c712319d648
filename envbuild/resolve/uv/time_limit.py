"""How much time and memory resolving may take in all: a slow index never breaks off by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import NoReturn

from envbuild import limits
from envbuild.errors import EnvbuildError, IntegrityError, NetworkError
from envbuild.net.parallel import for_each_parallel
from envbuild.net.redact import redact
from envbuild.net.web import PassingError, make_client, open_response
from envbuild.settings import Settings

MOST_PROBED = 40
MOST_TOLD = 3
WITHOUT_BUILDS = "lock without --allow-host-builds: then only what archives say is read"


class TimeLimit:
    """The time that one resolution has: it begins when this is made."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def seconds(self, wished: float | None) -> tuple[float, bool]:
        """Return the seconds for one question, and whether our limit decides, not ``wished``."""
        # the last question may still tell what is slow
        left = max(1.0, limits.RESOLUTION_SECONDS - (time.monotonic() - self._started))
        ours = min(limits.QUESTION_SECONDS, left)
        return (wished, False) if wished is not None and wished < ours else (ours, True)

    def exceeded(self, asked: Iterable[str], built: Sequence[str], settings: Settings) -> NoReturn:
        """Raise NetworkError that names what is slow, last first.

        That is of the addresses ``asked`` what does not answer now, else the last build here.
        """
        took = time.monotonic() - self._started
        slow = _slow_addresses(list(dict.fromkeys(reversed(list(asked))))[:MOST_PROBED], settings)
        if built and not slow:
            raise NetworkError(
                f"resolving was ended after {took:.0f} s: the build of {built[-1]} did not end on "
                "this machine",
                hint=WITHOUT_BUILDS,
            )
        names = ", ".join(redact(url) for url in slow[:MOST_TOLD])
        raise NetworkError(
            f"resolving was ended after {took:.0f} s"
            + (f": {names} did not answer whole in time" if slow else ""),
            hint="what has arrived is kept, so that starting again goes on from there; "
            "another index is named under [indexes] in the settings",
        )


def memory_exceeded(asked: Sequence[str]) -> IntegrityError:
    """Return the error of pages over which uv took too much memory; ``asked``: in this order."""
    names = ", ".join(redact(url) for url in reversed(asked[-MOST_TOLD:]))
    return IntegrityError(
        f"uv took more than {limits.RESOLVER_MEMORY // limits.MIB} MiB of memory over what the "
        "indexes sent" + (f"; asked last: {names}" if names else ""),
        hint="a page with far more files than any project has does this; another index is named "
        "under [indexes] in the settings",
    )


def _slow_addresses(urls: list[str], settings: Settings) -> list[str]:
    """Return the addresses that do not answer whole within limits.SEARCH_SECONDS now."""
    found: set[str] = set()
    with make_client(settings) as client:

        def probe(url: str, stop: threading.Event) -> None:
            end = time.monotonic() + limits.SEARCH_SECONDS
            try:
                with open_response(client, url) as response:
                    for _ in response.iter_raw():
                        if stop.is_set() or time.monotonic() > end:
                            found.add(url)
                            return
            except (EnvbuildError, PassingError):
                if time.monotonic() > end:
                    found.add(url)

        for_each_parallel(urls, probe, workers=8)
    return [url for url in urls if url in found]
