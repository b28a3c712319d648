"""Read lists as tools print them: conda list, conda list --export, pip list."""

from __future__ import annotations

import re

BY_CONDA = re.compile(
    r"(?P<name>[A-Za-z0-9_][\w.-]*)(=|[ \t]+)(?P<version>\d[\w.!+]*)(=|[ \t]+)"
    r"(?P<build><pip>|[\w.]+)([ \t]+\S+)?"
)
"""A line of conda list: name, version, build, and perhaps the channel."""
BY_PIP = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)[ \t]+(?P<version>\d[\w.!+]*)([ \t]+\S+)?")
"""A line of pip list: name, version, and perhaps the folder of a project."""
PIP_HEADER = re.compile(r"^Package[ \t]+Version\b.*\n-{3,}", re.MULTILINE)
OF_PIP = ("pypi_0", "<pip>")
"""What conda calls the build of a package that pip had installed."""


def printed_by_conda(text: str) -> tuple[list[str], list[str]] | None:
    """Return what conda had installed (name=version=build) and what pip had (name==version).

    None for text that conda has not printed: most of its lines must be such.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]
    found = [match for line in lines if (match := BY_CONDA.fullmatch(line))]
    if len(found) <= len(lines) / 2:
        return None
    with_conda = [match for match in found if match["build"] not in OF_PIP]
    with_pip = [match for match in found if match["build"] in OF_PIP]
    return (
        [f"{one['name']}={one['version']}={one['build']}" for one in with_conda],
        [f"{one['name']}=={one['version']}" for one in with_pip],
    )


def printed_by_pip(text: str) -> str:
    """Return the text with pip list's table as requirements; other text as it is.

    Without its head it is one where each line has a name and a version.
    """
    table = [line.strip() for line in PIP_HEADER.sub("", text).splitlines() if line.strip()]
    found = [BY_PIP.fullmatch(line) for line in table]
    if PIP_HEADER.search(text) is None and not (table and all(found)):
        return text
    return "\n".join(f"{one['name']}=={one['version']}" for one in found if one)
