"""Change the requirements of a recipe in its own text: comments, order and line ends stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomlkit
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, Table

from envbuild.errors import UsageError
from envbuild.recipe.trees import read_tree_line
from envbuild.toml import closest


def requirement_name(line: str) -> str:
    """Return the canonical name of a requirement; a folder's or a repository's line is its own name.

    Raises UsageError for what is not a requirement.
    """
    try:
        tree = read_tree_line(line)
        return line if tree is not None else canonicalize_name(Requirement(line).name)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        hint = 'write PKG, or "PKG>=VERSION"'
        raise UsageError(f"is not a requirement: {reason}", where=repr(line), hint=hint) from error


def add_requirements(text: str, lines: Sequence[str], path: Path) -> str:
    """Return a recipe's text with more requirements; a line takes the place of that of its package.

    Raises UsageError for what is not a requirement.
    """
    document, present = _open_dependencies(text, path)
    for line in lines:
        name = requirement_name(line)
        places = [place for place, old in enumerate(present) if _same_package(str(old), name)]
        if places:
            present[places[0]] = line
        else:
            _append_line(present, line)
    return tomlkit.dumps(document)


def remove_requirements(text: str, names: Sequence[str], path: Path) -> str:
    """Return a recipe's text without the requirements of these packages.

    Raises UsageError for a package that the recipe does not ask for.
    """
    document, present = _open_dependencies(text, path)
    for named in names:
        name = requirement_name(named)
        places = [place for place, old in enumerate(present) if _same_package(str(old), name)]
        if not places:
            known = [requirement_name(str(line)) for line in present]
            what = f"[python] dependencies has no {name}{closest(name, known)}"
            raise UsageError(
                what, where=str(path), hint="envbuild why shows what requires a package"
            )
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


def _same_package(line: str, name: str) -> bool:
    return requirement_name(line) == name


def _open_dependencies(text: str, path: Path) -> tuple[tomlkit.TOMLDocument, Array]:
    """Return a recipe as a document, and its list of requirements, added where it has none."""
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise UsageError(f"is not valid TOML: {error}", where=str(path)) from error
    section: Any = document.get("python")
    if section is None:
        section = tomlkit.table()
        document["python"] = section
    if isinstance(section, AoT) or not hasattr(section, "get"):
        raise UsageError("[python] is no table", where=str(path))
    if "dependencies" not in section:
        section["dependencies"] = tomlkit.array()
        _end_section(section)
    present = section["dependencies"]
    if not isinstance(present, Array):
        raise UsageError("[python] dependencies is no list", where=str(path))
    return document, present


def _end_section(section: Any) -> None:
    """Keep an empty line between a section that got its first key and the next one."""
    if isinstance(section, Table) and len(section) == 1:
        section.add(tomlkit.nl())
