"""What a resolution says beside its packages; a lock has the same records."""

from __future__ import annotations

from envbuild.formats.fields import PackageName, Version
from envbuild.toml import TomlTable


class Provided(TomlTable, frozen=True, omit_defaults=True):
    """A distribution that the resolution uses and does not bring, as the base holds it.

    ``alias_of`` is the real one's name, in the base or in the resolution itself.
    """

    name: PackageName
    version: Version
    alias_of: PackageName | None = None


class Moved(TomlTable, frozen=True, omit_defaults=True):
    """A package of the base that the resolution replaces, and why."""

    name: PackageName
    before: Version
    after: Version
    reason: str


class HeldBack(TomlTable, frozen=True, omit_defaults=True):
    """A direct requirement that is older than the newest release, and why."""

    name: PackageName
    version: Version
    newest: Version
    reason: str
