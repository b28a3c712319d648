"""Types of fields that records of several stages share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

FOLDER = r"(/(?!\.{1,2}(/|\Z))[A-Za-z0-9._+-]+)+"
"""A plain absolute path, as a pattern (regular expression)."""
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Size = Annotated[int, Meta(ge=0, lt=2**40)]
"""Bytes; more than a terabyte is no image, wheel or layer but a mistake or an attack."""
PackageName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")]
Version = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_~:-]*\Z", max_length=100)]
