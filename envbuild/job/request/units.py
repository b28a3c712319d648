"""Amounts with their unit: "2h" of time and "16 GiB" of memory; a bare number says neither."""

from __future__ import annotations

import re

from envbuild.errors import UsageError

MEMORY = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
TIME = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def parse_walltime(text: str, where: str) -> int:
    """Return the seconds of "36h", "1d12h", "90m" or "HH:MM:SS".

    Raises UsageError for a bare number and for zero.
    """
    clock = re.fullmatch(r"(\d{1,4}):([0-5]\d):([0-5]\d)", text)
    parts = re.fullmatch(r"(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,7})s)?", text)
    if clock:
        seconds = clock_seconds(*clock.groups())
    elif parts and text:
        days, hours, minutes, rest = (int(count or 0) for count in parts.groups())
        seconds = days * TIME["d"] + hours * TIME["h"] + minutes * TIME["m"] + rest
    else:
        hint = 'write a unit: "24h", "90m", "1d12h", or HH:MM:SS'
        if text.isdigit():
            hint += f" ({text} alone would be minutes to Slurm and seconds to Grid Engine)"
        raise UsageError(f"{text!r} is no time", where=where, hint=hint)
    if seconds == 0:
        raise UsageError("a walltime of zero", where=where)
    return seconds


def clock_seconds(hours: str, minutes: str, seconds: str) -> int:
    """Return the seconds of a time of three written numbers."""
    return int(hours) * TIME["h"] + int(minutes) * TIME["m"] + int(seconds)


def parse_memory(text: str, where: str) -> int:
    """Return the MiB of "16GiB" or "16 GB" (rounded up).

    Raises UsageError without a unit and for zero.
    """
    found = re.fullmatch(r"(\d{1,9})\s*([MGT]i?B)", text)
    if found is None:
        raise UsageError(
            f"{text!r} is not an amount of memory",
            where=where,
            hint='write a unit: "16GB", "64GiB", "900MB"',
        )
    size = -(-int(found[1]) * MEMORY[found[2]] // 2**20)
    if size == 0:
        raise UsageError("a memory of zero", where=where)
    return size


def clock(seconds: int) -> str:
    """Return seconds as HH:MM:SS, with more than two digits of hours where there are so many."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{rest:02d}"


def short_memory(mebibytes: int, gibi: str, mebi: str) -> str:
    """Write memory with a scheduler's two suffixes: in GiB where that is exact."""
    return f"{mebibytes // 1024}{gibi}" if mebibytes % 1024 == 0 else f"{mebibytes}{mebi}"


def time_text(seconds: int) -> str:
    """Return seconds as people write them in a site file: "1d12h"."""
    text = ""
    for unit, size in TIME.items():
        count, seconds = divmod(seconds, size)
        text += f"{count}{unit}" if count else ""
    return text
