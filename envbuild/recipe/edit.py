"""Change the requirements of a recipe in its own text: comments, order and line ends stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import tomlkit
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, Table

from envbuild.errors import UsageError
from envbuild.recipe.conda import spec_name
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.recipe.trees import read_tree_line
from envbuild.toml import closest

ListSection = Literal["python", "conda"]
"""The sections of a recipe that have a list of dependencies."""


def requirement_name(line: str) -> str:
    """Return the canonical name of a requirement; a folder's or a repository's line is its own name.

    Raises UsageError for what is not a requirement.
    """
    try:
        tree = read_tree_line(line)
        return line if tree is not None else canonicalize_name(Requirement(line).name)
    except NO_REQUIREMENT as error:
        reason = str(error).splitlines()[0]
        hint = 'write PKG, or "PKG>=VERSION"'
        raise UsageError(f"is not a requirement: {reason}", where=repr(line), hint=hint) from error


def add_requirements(
    text: str, lines: Sequence[str], path: Path, section: ListSection = "python"
) -> str:
    """Return a recipe's text with more requirements; a line takes the place of that of its package.

    Raises UsageError for what is not a requirement.
    """
    document, present = _open_dependencies(text, path, section)
    for line in lines:
        places = _places_of(line, present, section)
        if places:
            present[places[0]] = line
        else:
            _append_line(present, line)
    return tomlkit.dumps(document)


def remove_requirements(
    text: str, names: Sequence[str], path: Path, section: ListSection = "python"
) -> str:
    """Return a recipe's text without the requirements of these packages.

    Raises UsageError for a package that the recipe does not ask for.
    """
    document, present = _open_dependencies(text, path, section)
    for named in names:
        places = _places_of(named, present, section)
        if not places:
            name = _name_of(named, section)
            known = [_name_of(str(line), section) for line in present]
            what = f"[{section}] dependencies has no {name}{closest(name, known)}"
            hint = "envbuild why shows what requires a package"
            folders = [line for line in known if line.startswith(".")]
            if folders:
                hint += f"\na project goes by its folder: envbuild remove NAME {folders[0]}"
            raise UsageError(what, where=path, hint=hint)
        for place in reversed(places):
            del present[place]
    return tomlkit.dumps(document)


def _append_line(present: Array, line: str) -> None:
    """Add a line as the ones before it stand; append repeats an empty line before the last one."""
    written = present.as_string()
    if re.search(r"\n[ \t]*\r?\n", written):
        indents = re.findall(r"^[ \t]+(?=[\"'])", written, re.MULTILINE)
        present.add_line(line, indent=indents[-1] if indents else "  ")
    else:
        present.append(line)


def _places_of(line: str, present: Array, section: ListSection) -> list[int]:
    """Return where a list has lines of the package that a line is about."""
    name = _name_of(line, section)
    return [place for place, old in enumerate(present) if _name_of(str(old), section) == name]


def _name_of(line: str, section: ListSection) -> str:
    return spec_name(line) if section == "conda" else requirement_name(line)


def _open_dependencies(
    text: str, path: Path, name: ListSection
) -> tuple[tomlkit.TOMLDocument, Array]:
    """Return a recipe as a document, and its list of requirements, added where it has none."""
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise UsageError(f"is not valid TOML: {error}", where=path) from error
    section: Any = document.get(name)
    if section is None:
        section = tomlkit.table()
        document[name] = section
    if isinstance(section, AoT) or not hasattr(section, "get"):
        raise UsageError(f"[{name}] is no table", where=path)
    if "dependencies" not in section:
        section["dependencies"] = tomlkit.array()
        _end_section(section)
    present = section["dependencies"]
    if not isinstance(present, Array):
        raise UsageError(f"[{name}] dependencies is no list", where=path)
    return document, present


def _end_section(section: Any) -> None:
    """Keep an empty line between a section that got its first key and the next one."""
    if isinstance(section, Table) and len(section) == 1:
        section.add(tomlkit.nl())
