"""The shelf's record (docs/shelf.md): an entry names by digest what was published."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from envbuild.check.model import Level, Outcome
from envbuild.errors import IntegrityError, UsageError
from envbuild.limits import UNREADABLE
from envbuild.lock.model import Digest
from envbuild.names import NAME
from envbuild.recipe.model import Name, OneLine
from envbuild.toml import TomlTable

SCHEMA = 1
Text = Annotated[str, Meta(pattern=r"^[^\x00-\x1f\x7f]*\Z", max_length=400)]
Number = Annotated[int, Meta(ge=1, le=999_999)]
Bytes = Annotated[int, Meta(ge=0, lt=2**43)]
Moment = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})\Z", max_length=40
    ),
]
SLOT = re.compile(rf"({NAME})\.(\d{{6}})")
"""A file of ``names/``: the name and the number of one entry of its history."""


class ImageDescriptor(TomlTable, frozen=True):
    """An image.

    ``digest`` is over its objects without signatures (of whatever file carries them), ``sha256``
    over the file's ``size`` bytes; ``pieces`` names the list of its pieces where the shelf keeps
    the bytes too, None where it does not.
    """

    digest: Digest
    sha256: Digest
    size: Bytes
    pieces: Digest | None = None


class CheckSummary(TomlTable, frozen=True):
    """The gist of a check report about the entry's image; ``report`` names the whole one."""

    report: Digest
    outcome: Outcome
    level: Level
    when: Moment
    gpu: tuple[Text, ...] = ()
    driver: Text | None = None
    target: Text | None = None


class EntrySummary(TomlTable, frozen=True):
    """What a search looks at, from recipe and lock; ``direct`` are direct requirements."""

    summary: Text = ""
    base: Text = ""
    framework: Text | None = None
    cuda: Text | None = None
    python: Text = ""
    platform: Text = ""
    direct: tuple[Text, ...] = ()
    packages: Bytes = 0


class Entry(TomlTable, frozen=True):
    """One publication of a name.

    ``number`` counts the name's entries from 1, ``previous`` is the digest of the one before;
    ``recipe``, ``lock``, ``definition`` and ``script`` are sha256 of the files' bytes, ``locked``
    is the lock's own digest; ``who`` is what the publisher calls himself (a signature proves it,
    this does not) and ``when`` what his clock said.
    """

    schema: Literal[1]
    name: Name
    number: Number
    previous: Digest | None
    who: OneLine
    when: Moment
    envbuild: OneLine
    recipe: Digest
    lock: Digest
    locked: Digest
    definition: Digest
    script: Digest | None = None
    image: ImageDescriptor | None = None
    verdicts: tuple[CheckSummary, ...] = ()
    about: EntrySummary = EntrySummary()

    @property
    def slot(self) -> str:
        """The file that this entry is in."""
        return slot_name(self.name, self.number)


class _SchemaField(msgspec.Struct, frozen=True):
    """What every entry says of itself, also one of a later envbuild."""

    schema: int


DECODER = msgspec.json.Decoder(Entry)


def slot_name(name: str, number: int) -> str:
    """Return the file of the entry of that number."""
    return f"{name}.{number:06d}"


def write_entry(entry: Entry) -> bytes:
    """Return the entry's only written form: these bytes are hashed and signed."""
    return msgspec.json.encode(entry, order="sorted") + b"\n"


def read_entry(data: bytes, where: str) -> Entry:
    """Read an entry.

    Raises UsageError for one of a newer envbuild, IntegrityError for anything that write_entry does
    not write.
    """
    try:
        entry = DECODER.decode(data)
    except UNREADABLE as error:
        schema = _schema_of(data)
        if schema > SCHEMA:
            what = f"is an entry of schema {schema}; this envbuild reads up to {SCHEMA}"
            raise UsageError(what, where=where, hint="update envbuild") from error
        raise IntegrityError(f"is damaged: {error}", where=where) from error
    if write_entry(entry) != data:
        raise IntegrityError("is damaged: it is not written as envbuild writes it", where=where)
    return entry


def _schema_of(data: bytes) -> int:
    """Return the schema number of any document, 0 where it has none."""
    try:
        return msgspec.json.decode(data, type=_SchemaField).schema
    except UNREADABLE:
        return 0
