"""How this project writes a record: frozen, its fields by name, without a dictionary of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

Kind = TypeVar("Kind")

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    @dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
    def frozen_record(cls: type[Kind]) -> type[Kind]:
        """Make a dataclass of a class: frozen, with keywords only, and with slots."""
else:
    frozen_record = dataclass(frozen=True, kw_only=True, slots=True)
