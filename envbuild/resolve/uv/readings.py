"""What the source archives of some indexes require, kept in the store for later resolutions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from envbuild.base.model import BaseFacts
from envbuild.limits import decode_kept
from envbuild.resolve.platform import python_minor, uv_platform
from envbuild.resolve.sources.artifacts import FORM, About
from envbuild.resolve.uv.query import redacted
from envbuild.store.atomic import write_bytes
from envbuild.store.hashing import hash_text
from envbuild.store.layout import Store

Pin = tuple[str, str]
"""Name and version of a release."""


class Readings:
    """What source archives of some indexes say, kept for later resolutions."""

    def __init__(self, store: Store, facts: BaseFacts, indexes: Mapping[str, str]) -> None:
        source = "\n".join(
            (
                str(FORM),
                uv_platform(facts),
                str(python_minor(facts)),
                *map(redacted, indexes.values()),
            )
        )
        key = hash_text(source)[:16]
        self.path = store.folder("metadata") / f"sources-{key}.json"

    def load(self) -> dict[Pin, About]:
        """Return what is known."""
        known = decode_kept(self.path, dict[str, About]) or {}
        return {_pin_of(key): about for key, about in known.items()}

    def keep(self, pin: Pin, about: About) -> None:
        """Add one; what another process adds at the same moment is found out again."""
        known = {"==".join(key): value for key, value in (self.load() | {pin: about}).items()}
        write_bytes(self.path, msgspec.json.encode(known))


def _pin_of(key: str) -> Pin:
    name, _, version = key.partition("==")
    return name, version
