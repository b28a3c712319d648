"""Types of fields that records of several stages share."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Size = Annotated[int, Meta(ge=0, lt=2**40)]
"""Bytes; more than a terabyte is no image, wheel or layer but a mistake or an attack."""
