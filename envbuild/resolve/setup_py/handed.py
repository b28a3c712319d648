"""What a setup.py hands to setup(), as values whose conditions are environment markers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from envbuild.names import Texts
from envbuild.records import field, frozen_record
from envbuild.resolve.setup_py.conditions import ALWAYS, NEVER, Condition


class Line(NamedTuple):
    """A string of a list, and the condition under which it is in the list."""

    text: str
    when: Condition = ALWAYS

    def under(self, condition: Condition) -> Line:
        """Return the line under one more condition."""
        return Line(self.text, self.when.both(condition))


Value: TypeAlias = "str | tuple[Line, ...] | Mapping[str, Value | None]"
"""A string (as a path, relative to the archive's top folder), a list, or a table; None is what is
not known."""


@frozen_record
class Handed:
    """What setup() is called with: ``keywords`` by name, None where it is not known.

    ``ends`` says that the file raises or exits in every case, and never builds anything.
    """

    keywords: Mapping[str, Value | None] = field(default_factory=dict)
    ends: bool = False

    def lines(self, name: str) -> Texts | None:
        """Return a keyword's list as PEP 508 strings, None where it is not known."""
        return _requirements(self.keywords.get(name, ()))

    def extras(self) -> Texts | None:
        """Return what extras_require says as PEP 508 strings, None where not all of it is known."""
        table = self.keywords.get("extras_require", {})
        if not isinstance(table, Mapping):
            return None
        found: list[str] = []
        for key, wanted in table.items():
            lines = _requirements(wanted)
            if lines is None:
                return None
            # setuptools writes "extra:marker" as a key, and ":marker" for what no extra brings
            name, _, marker = key.partition(":")
            conditions = [f"({marker})"] if marker else []
            conditions += [f'extra == "{name}"'] if name else []
            found += [_with_marker(line, " and ".join(conditions)) for line in lines]
        return tuple(found)


def _requirements(value: Value | None) -> Texts | None:
    if isinstance(value, str):
        return tuple(lines_of(value))
    if not isinstance(value, tuple):
        return None
    lines = [line for line in value if line.when != NEVER]
    return tuple(_with_marker(line.text, line.when.text) for line in lines)


def _with_marker(line: str, marker: str) -> str:
    """Return a requirement under one more condition."""
    if not marker:
        return line
    wanted, _, own = line.partition(";")
    both = f"({own.strip()}) and {marker}" if own.strip() else marker
    return f"{wanted.strip()} ; {both}"


def lines_of(text: str) -> list[str]:
    """Return the requirements of a requirements file: neither options nor comments."""
    lines = (line.partition(" #")[0].strip() for line in text.splitlines())
    return [line for line in lines if line and line[0] not in "#-"]
