"""How this project declares a record (frozen, its fields by name), and makes another one of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

__all__ = ["field", "frozen_record", "replace"]
Kind = TypeVar("Kind")

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    @dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
    def frozen_record(cls: type[Kind]) -> type[Kind]:
        """Make a dataclass of a class: frozen, with keywords only, and with slots."""
else:
    frozen_record = dataclass(frozen=True, kw_only=True, slots=True)
