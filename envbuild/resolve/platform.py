"""The base as wheel tags see it: uv's name of the platform, the order of wheel tags, markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging import tags
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from envbuild.base.model import BaseFacts
from envbuild.errors import UsageError
from envbuild.names import BY_MACHINE, Numbers

PYTHON = re.compile(r"(\d{1,2})\.(\d{1,3})(?:\.\d{1,3}(?:(?:a|b|rc)\d{1,2})?)?", re.ASCII)
GLIBC_MINORS = (17, 28, *range(31, 41))
"""The glibc 2.x that ``uv --python-platform`` knows as manylinux_2_x (uv 0.13.8; 2_27 is
refused)."""
LEGACY_TAGS = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
"""Older tag names and their glibc 2.x (PEP 599, 571, 513, by way of PEP 600)."""


def python_minor(facts: BaseFacts) -> tuple[int, int]:
    """Return (major, minor) of the base's Python."""
    found = PYTHON.fullmatch(facts.python)
    if not found:
        raise UsageError(
            f"python {facts.python!r} is not a version such as 3.11.2", where=facts.image
        )
    return int(found[1]), int(found[2])


def _glibc_minor(facts: BaseFacts) -> int:
    """Return x of the base's glibc 2.x; raises UsageError for anything else."""
    major, _, minor = facts.glibc.partition(".")
    digits = minor.split(".")[0]
    if major != "2" or not re.fullmatch("[0-9]{1,4}", digits):
        raise UsageError(
            f"glibc {facts.glibc!r} is not a version such as 2.36",
            where=facts.image,
            hint=(
                "wheels need a base with glibc: Debian, Ubuntu, Rocky and their kin have it, "
                "Alpine has not"
            ),
        )
    return int(digits)


def uv_platform(facts: BaseFacts) -> str:
    """Return ``uv --python-platform`` nearest below the base, as ``x86_64-manylinux_2_36``."""
    if facts.machine not in BY_MACHINE:
        raise UsageError(
            f"machine {facts.machine!r} is not one of {', '.join(BY_MACHINE)}", where=facts.image
        )
    minor = _glibc_minor(facts)
    # uv knows some versions of glibc only: the next older one is safe
    known = [value for value in GLIBC_MINORS if value <= minor]
    if not known:
        raise UsageError(
            f"glibc {facts.glibc} is older than 2.17, the oldest that today's wheels are made for",
            where=facts.image,
        )
    return f"{facts.machine}-manylinux_2_{known[-1]}"


def tag_order(facts: BaseFacts) -> dict[Tag, int]:
    """Return the wheel tags that the base can use, best first, by its own glibc."""
    version = python_minor(facts)
    minor, machine = _glibc_minor(facts), facts.machine
    platforms: list[str] = []
    # a wheel for glibc 2.x runs on every newer one (PEP 600), and the newest fits best
    for value in range(minor, 4, -1):
        platforms.append(f"manylinux_2_{value}_{machine}")
        platforms += [f"{name}_{machine}" for name, glibc in LEGACY_TAGS.items() if glibc == value]
    platforms.append(f"linux_{machine}")
    interpreter = f"cp{version[0]}{version[1]}"
    ordered = [
        *tags.cpython_tags(version, platforms=platforms),
        *tags.compatible_tags(version, interpreter, platforms),
    ]
    return {tag: place for place, tag in enumerate(dict.fromkeys(ordered))}


def best_wheel(files: Iterable[str], order: Mapping[Tag, int]) -> str | None:
    """Return the wheel file that fits best (then by build tag), None where none fits."""
    ranked: list[tuple[int, Numbers, str]] = []
    for file in files:
        try:
            _, _, build, file_tags = parse_wheel_filename(file)
        except InvalidWheelFilename:
            continue
        # a file name may carry several tags (PEP 425): the best of them counts
        places = [order[tag] for tag in file_tags if tag in order]
        if places:
            ranked.append((min(places), (-build[0],) if build else (0,), file))
    return min(ranked)[2] if ranked else None


def marker_environment(facts: BaseFacts) -> dict[str, str]:
    """Return the marker environment (PEP 508) of the base, with no extra asked for."""
    major, minor = python_minor(facts)
    return {
        "python_version": f"{major}.{minor}",
        "python_full_version": facts.python,
        "platform_machine": facts.machine,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
        "implementation_version": facts.python,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_release": "",
        "platform_version": "",
        "extra": "",
    }
