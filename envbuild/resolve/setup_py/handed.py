"""What a setup.py hands to setup(), as values whose conditions are environment markers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envbuild.resolve.setup_py.conditions import TRUE, Condition


@dataclass(frozen=True, slots=True)
class Text:
    """A string; as a path, it is relative to the archive's top folder."""

    text: str


@dataclass(frozen=True, slots=True)
class Lines:
    """A list of strings, each with the condition under which it is in the list."""

    items: tuple[tuple[str, Condition], ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A dictionary with strings for keys; a value that is not known is None."""

    items: Mapping[str, Value | None] = field(default_factory=dict)


Value = Text | Lines | Table


@dataclass(frozen=True, kw_only=True, slots=True)
class Handed:
    """What setup() is called with: ``keywords`` by name, None where it is not known.

    ``ends`` tells that the file raises or exits in every case, and never builds anything.
    """

    keywords: Mapping[str, Value | None] = field(default_factory=dict)
    ends: bool = False

    def lines(self, name: str) -> tuple[str, ...] | None:
        """Return a keyword's list as PEP 508 strings, None where it is not known."""
        return _requirements(self.keywords.get(name, Lines()))

    def extras(self) -> tuple[str, ...] | None:
        """Return what extras_require says as PEP 508 strings, None where not all of it is known."""
        value = self.keywords.get("extras_require", Table())
        if not isinstance(value, Table):
            return None
        found: list[str] = []
        for key, wanted in value.items.items():
            lines = _requirements(wanted)
            if lines is None:
                return None
            name, _, marker = key.partition(":")
            conditions = [
                *([f"({marker})"] if marker else []),
                *([f'extra == "{name}"'] if name else []),
            ]
            found += [_with_marker(line, " and ".join(conditions)) for line in lines]
        return tuple(found)


def _requirements(value: Value | None) -> tuple[str, ...] | None:
    if isinstance(value, Text):
        value = Lines(tuple((line, TRUE) for line in lines_of(value.text)))
    if not isinstance(value, Lines):
        return None
    return tuple(_with_marker(text, condition.text()) for text, condition in value.items)


def _with_marker(line: str, marker: str) -> str:
    """Return a requirement under one more condition."""
    if not marker:
        return line
    wanted, _, own = line.partition(";")
    return (
        f"{wanted.strip()} ; ({own.strip()}) and {marker}"
        if own.strip()
        else f"{wanted.strip()} ; {marker}"
    )


def lines_of(text: str) -> list[str]:
    """Return the requirements of a requirements file: neither options nor comments."""
    lines = (line.partition(" #")[0].strip() for line in text.splitlines())
    return [line for line in lines if line and line[0] not in "#-"]
