"""Messages of packages that say which release they ask for."""

from __future__ import annotations

import re

RELEASES = (
    (r"requires `([\w.-]+[<>=!~]=?[\d.]+)`", 'put "{0}" into [python] dependencies'),
    (
        r"([\w-]{1,80}) version \(\S+\) does not match [\w-]+ version \(([\w.]+)\)",
        'put "{0}=={1}" into [python] dependencies: both have to be of one release',
    ),
    (
        r"\b([A-Za-z][\w.-]{0,80}[<>=!~][^ ]{0,200}) is required .*but found ",
        'add "{0}" to the dependencies, lock and build again',
    ),
    (
        r"No module named 'pkg_resources'",
        'add "setuptools<81" to the dependencies, or take a newer release of the package',
    ),
    (
        r"cannot load MPI library",
        'add "openmpi-bin" to [system] packages, or bind the cluster\'s MPI into the image',
    ),
    (r"\b([a-z][\w-]{1,60}) must be installed\b", 'add "{0}" to [python] dependencies'),
    (r"\b[Ii]nstall ([a-z][\w-]{1,60}) to access\b", 'add "{0}" to [python] dependencies'),
    (r"Cannot find the ecCodes library", 'add "libeccodes0" to [system] packages'),
    (
        r"Descriptors cannot",
        'add "protobuf<3.21" to the dependencies, or take a newer release of the package',
    ),
    (
        r"_ARRAY_API|numpy\.core\.multiarray failed|numpy\.dtype size",
        'it was compiled for another NumPy: add "numpy<2" to the dependencies, or take a newer release of it',
    ),
    (
        r"is not a valid Sentinel\b",
        'add "click<8.3" to the dependencies, or take a newer release of the package',
    ),
    (r"PEFT backend is required", 'add "peft" to [python] dependencies'),
    (r"is now a separate project ([\w-]{1,80})", 'add "{0}" to [python] dependencies'),
    (
        r"\b(?:pip3?|conda to) install [`'\"]?(?!(?:as|it|this|them)\b)([A-Za-z][\w.[,\]-]*\b\]?)",
        'add "{0}" to [python] dependencies',
    ),
)
"""Messages that say which release is asked for, and what mends them ({0} is their first group)."""


def cure_of_version(error: str) -> str | None:
    """Say which release a message asks for."""
    newest = re.search(r"\bNumPy (\d{1,4})\.(\d{1,4}) or less", error)
    if newest:
        bound = f"numpy<{newest[1]}.{int(newest[2]) + 1}"
        return f'add "{bound}" to the dependencies, or take a newer release of it'
    for pattern, cure in RELEASES:
        found = re.search(pattern, error)
        if found:
            return cure.format(*found.groups())
    return None
