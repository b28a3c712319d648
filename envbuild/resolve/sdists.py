"""Read what an sdist declares without running any of it: its requirements and its build requirements."""

from __future__ import annotations

import contextlib
import re
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from envbuild.errors import IntegrityError, UsageError
from envbuild.resolve.metadata import headers
from envbuild.resolve.stubs import parsed
from envbuild.toml import parse_toml

LEGACY_BUILD = ("setuptools", "wheel")
"""What is needed to build an sdist that has no build-system table (PEP 518)."""
BIGGEST_MEMBER = 8 * 1024 * 1024
MOST_MEMBERS = 500_000
WANTED = re.compile(
    r"^(?:\./)?[^/]+/(PKG-INFO|pyproject\.toml|(?:[^/]+/){0,2}[^/]+\.egg-info/(?:PKG-INFO|requires\.txt))$"
)
SECTION = re.compile(r"^\[([^\]:]*):?(.*)\]$")


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What an sdist says: PEP 508 strings to run it and to build it.

    ``read_from`` tells where the former stand: "pkg-info", "egg-info", "pyproject", or "none" where nothing is said.
    """

    requires: tuple[str, ...]
    build: tuple[str, ...]
    read_from: str
    requires_python: str | None = None


def read_sdist(path: Path, name: str) -> Declared:
    """Read an sdist file; ``name`` is its file name.  Raises IntegrityError when it is not an archive."""
    try:
        members = dict(_members(path, name))
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise IntegrityError(f"is not a readable source archive: {error}", where=name) from error
    return declared(members, name)


def declared(members: Mapping[str, str], where: str) -> Declared:
    """Decide from an sdist's own files (path inside its top folder to text) what it declares."""
    information = headers(members.get("PKG-INFO", ""))
    project = _pyproject(members.get("pyproject.toml"), where)
    egg = {path.rsplit("/", 1)[1]: text for path, text in sorted(members.items()) if ".egg-info/" in path}
    table = project.get("project", {})
    listed = table.get("dependencies") if isinstance(table, dict) else None
    if information.requires:
        requires, read_from = information.requires, "pkg-info"
    elif egg:
        requires, read_from = _clean(egg_requires(egg.get("requires.txt", ""))), "egg-info"
    elif isinstance(listed, list):
        requires, read_from = _clean(listed), "pyproject"
    else:
        requires, read_from = (), "none"
    return Declared(
        requires=requires, build=_build(project), read_from=read_from, requires_python=information.requires_python
    )


def egg_requires(text: str) -> list[str]:
    """Turn an egg-info/requires.txt, with its ``[extra:marker]`` sections, into PEP 508 strings."""
    found: list[str] = []
    marker = ""
    for line in map(str.strip, text.splitlines()):
        section = SECTION.match(line)
        if section:
            extra = f'extra == "{section[1]}"' if section[1] else ""
            condition = f"({section[2]})" if section[2] else ""
            marker = " and ".join(filter(None, (condition, extra)))
        elif line:
            found.append(f"{line} ; {marker}" if marker else line)
    return found


def _build(project: Mapping[str, Any]) -> tuple[str, ...]:
    system = project.get("build-system")
    listed = system.get("requires") if isinstance(system, dict) else None
    return _clean(listed) if isinstance(listed, list) else LEGACY_BUILD


def _clean(texts: list[Any]) -> tuple[str, ...]:
    return tuple(str(requirement) for requirement in parsed(tuple(text for text in texts if isinstance(text, str))))


def _pyproject(text: str | None, where: str) -> dict[str, Any]:
    if text is None:
        return {}
    with contextlib.suppress(UsageError):
        return parse_toml(text, where)
    return {}


def _members(path: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield (path inside the top folder, text) of the few files that are read."""
    reader = _zip_members if name.endswith(".zip") else _tar_members
    for count, (member, data) in enumerate(reader(path)):
        if count > MOST_MEMBERS:
            raise ValueError(f"more than {MOST_MEMBERS} members")
        if data is not None:
            yield member, data.decode("utf-8", "replace")


def _tar_members(path: Path) -> Iterator[tuple[str, bytes | None]]:
    with tarfile.open(path) as archive:
        for member in archive:
            found = WANTED.match(member.name)
            file = archive.extractfile(member) if found and member.isfile() else None
            yield (found[1] if found else ""), file.read(BIGGEST_MEMBER) if file else None


def _zip_members(path: Path) -> Iterator[tuple[str, bytes | None]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            found = WANTED.match(info.filename)
            if found:
                with archive.open(info) as file:
                    yield found[1], file.read(BIGGEST_MEMBER)
            else:
                yield "", None
