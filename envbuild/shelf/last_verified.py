"""The last entries that this user verified, so that a shelf cannot be rolled back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from filelock import FileLock

from envbuild.errors import IntegrityError
from envbuild.limits import UNREADABLE
from envbuild.lock.model import Digest
from envbuild.settings import Settings
from envbuild.store.atomic import os_errors_as, write_bytes
from envbuild.store.hashing import hash_text


class VerifiedHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest entry of a name that was verified here."""

    number: int
    digest: Digest


class LastVerified:
    """The last verified entry of every name of one shelf, in a file of this user's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_heads(self) -> Mapping[str, VerifiedHead]:
        """Return the heads by name.  Raises IntegrityError for a damaged file."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, VerifiedHead])
        except FileNotFoundError:
            return {}
        except UNREADABLE as error:
            hint = "look at what the shelf holds, then remove this file: it is written anew"
            raise IntegrityError(f"is damaged: {error}", where=self.path, hint=hint) from error

    def note_head(self, name: str, head: VerifiedHead) -> None:
        """Remember a verified entry; an older one than is known changes nothing."""
        with os_errors_as(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path.with_suffix(".lock")):
                heads = dict(self.read_heads())
                known = heads.get(name)
                if known is None or known.number < head.number:
                    heads[name] = head
                    write_bytes(self.path, msgspec.json.encode(heads, order="sorted"))

    def forget_all(self) -> None:
        """Forget what was verified, and start again."""
        self.path.unlink(missing_ok=True)


def last_verified_of(url: str, settings: Settings) -> LastVerified:
    """Return what was seen of the shelf at a place, under whatever name it is configured."""
    return LastVerified(settings.state / "shelves" / f"{hash_text(url)[:32]}.json")
