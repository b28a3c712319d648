"""Write amounts, versions and names the way people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def human_bytes(count: int) -> str:
    """Return a byte count in decimal units with one decimal: ``1234567`` becomes "1.2 MB"."""
    if abs(count) < 1000:
        return f"{count} B"
    value, unit = float(count), 0
    while abs(value) >= 999.95 and unit < len(UNITS) - 1:  # 999.95 would be written as 1000.0
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {UNITS[unit]}"


def count_noun(count: int, noun: str, plural: str = "") -> str:
    """Return "1 package", "2 packages"; ``plural`` is for nouns that do not just take an s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def listing(names: Sequence[str], limit: int = 5) -> str:
    """Write a few names, and how many more there are."""
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def join_numbers(version: Iterable[int]) -> str:
    """Write a version from its numbers: (3, 11) as "3.11"."""
    return ".".join(map(str, version))


def minor_version(version: str) -> str:
    """Return the first two numbers of a version, as it is written: "3.11.4" gives "3.11"."""
    return ".".join(version.split(".")[:2])


def as_printable(text: str) -> str:
    """Return a text without control characters: names of files and texts of images may hold some."""
    return "".join(char if char.isprintable() else "?" for char in text)
