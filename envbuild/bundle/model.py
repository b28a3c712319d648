"""The table of contents of a bundle (docs/bundle.md): the first member of the tar, which names the others."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from envbuild.formats.fields import Sha256, Size
from envbuild.lock.model import Digest
from envbuild.recipe.model import Name, OneLine

TABLE = "bundle.json"
BIGGEST_TABLE = 32 * 1024 * 1024
"""Bytes; the table of ten thousand files has three million."""
MemberPath = Annotated[
    str,
    Meta(
        pattern=r"^(?!.*(^|/)\.\.?(/|$))[A-Za-z0-9._][A-Za-z0-9._+!~%-]*(/[A-Za-z0-9._][A-Za-z0-9._+!~%-]*)*\Z",
        max_length=400,
    ),
]
"""A relative path without "." and ".." as a part of it."""
Use = Literal["store", "project", "plain"]
"""What a file is for: the store, the folder of recipe and lock, or building without envbuild."""


class Member(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a bundle, below its top folder; ``size`` in bytes."""

    path: MemberPath
    size: Size
    sha256: Sha256
    use: Use


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a bundle holds.

    ``lock`` is the lock's digest, ``python`` the Python versions that the wheels below ``tool/``
    are for ("3.10, 3.11", "" where there are none).
    """

    schema: Literal[1]
    name: Name
    lock: Digest
    envbuild: OneLine
    python: OneLine
    members: tuple[Member, ...]
