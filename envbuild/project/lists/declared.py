"""Read pyproject.toml (PEP 621, PEP 735, Poetry), setup.cfg and Pipfile."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from envbuild.base.suggest import framework_name
from envbuild.names import Pairs, Texts
from envbuild.project.lists.readme import own_extras
from envbuild.project.lists.requirements import (
    NO_ADDRESS,
    parse_commit,
    parse_requirement,
    parse_wheel_address,
    read_requirements,
)
from envbuild.project.model import FileFindings, Requirement
from envbuild.project.private import without_secrets
from envbuild.project.tree import ASIDE, is_inside, read_text, shown_path
from envbuild.resolve.sources.declared import (
    dependency_table,
    inner_table,
    poetry_bounds,
    poetry_marker,
    write_extras,
)
from envbuild.store.units import minor_version
from envbuild.toml import parse_toml


def split_requirements(
    lines: Iterable[object], where: str
) -> tuple[tuple[Requirement, ...], Pairs]:
    """Split PEP 508 lines into needs and what a recipe cannot express."""
    requirements: list[Requirement] = []
    aside: list[tuple[str, str]] = []
    for line in lines:
        text = str(line).strip()
        if not text:
            continue
        found = (
            parse_requirement(text, where)
            or parse_wheel_address(text, where)
            or parse_commit(text, where)
        )
        if found is not None:
            requirements.append(found)
        else:
            reason = (
                NO_ADDRESS
                if "@" in text or "://" in text
                else "not a requirement as PEP 508 has it"
            )
            aside.append((without_secrets(text)[:200], f"{where}: {reason}"))
    return tuple(requirements), tuple(aside)


def read_pyproject(path: Path, root: Path) -> FileFindings | None:
    """Read what a pyproject.toml says of running the project; None where it says nothing of it.

    Raises UsageError for one that is no TOML.
    """
    file = shown_path(path, root)
    data = parse_toml(read_text(path) or "", file)
    project, poetry = inner_table(data, "project"), inner_table(data, "tool", "poetry")
    if not project and not poetry:
        return None
    if poetry and "dependencies" not in project:
        return _read_poetry(poetry, file)
    requirements, aside = split_requirements(_list_of(project.get("dependencies")), file)
    notes: list[str] = []
    requirements, elsewhere = _without_sources(requirements, data, file)
    aside = (*aside, *elsewhere)
    dynamic = inner_table(data, "tool", "setuptools", "dynamic", "dependencies").get("file")
    if "dependencies" in _list_of(project.get("dynamic")) and dynamic:
        for name in _list_of([dynamic] if isinstance(dynamic, str) else dynamic):
            other = read_requirements(root / str(name), root)
            requirements = (*requirements, *other.requirements)
            aside = (*aside, *other.aside)
            notes += other.notes
    taken = own_extras(root) if path.parent == root else ()
    lines, taken = _group_lines(project, taken)
    chosen, odd = split_requirements(lines, file)
    requirements, aside = (*requirements, *chosen), (*aside, *odd)
    requirements = (*requirements, *_optional_framework(project, requirements, file))
    optional = inner_table(project, "optional-dependencies")
    groups = [name for name in optional if name not in taken]
    groups += inner_table(data, "dependency-groups")
    if groups:
        notes.append(f"{file}: its optional groups are not taken: {', '.join(groups)}")
    return FileFindings(
        file=file,
        requirements=requirements,
        aside=aside,
        python=_text_of(project.get("requires-python")),
        notes=tuple(notes),
        project=canonicalize_name(str(project.get("name", ""))) or None,
        complete=bool(requirements),
        members=bool(inner_table(data, "tool", "uv", "workspace")) or _takes_folders(data),
    )


def _takes_folders(data: Mapping[str, Any]) -> bool:
    """Whether Poetry's table has folders of the project beside a [project] table."""
    poetry = inner_table(data, "tool", "poetry", "dependencies").values()
    return any(isinstance(wish, dict) and "path" in wish for wish in poetry)


def _group_lines(project: Mapping[str, Any], taken: Iterable[str]) -> tuple[list[object], Texts]:
    """Return the lines of optional groups, and the groups with those that they name themselves.

    "NAME[GROUP]" of the project itself stands for that group.
    """
    groups = inner_table(project, "optional-dependencies")
    own = canonicalize_name(str(project.get("name", "")))
    todo, seen, lines = list(taken), set[str](), list[object]()
    while todo:
        group = todo.pop(0)
        if group in seen:
            continue
        seen.add(group)
        for line in _list_of(groups.get(group)):
            inner = re.match(r"([\w.-]+)\s*\[([^]]+)\]\s*$", str(line).strip())
            if inner and canonicalize_name(inner[1]) == own:
                todo += [name.strip() for name in inner[2].split(",")]
            else:
                lines.append(line)
    return lines, tuple(seen)


def _optional_framework(
    project: Mapping[str, Any], requirements: Iterable[Requirement], file: str
) -> tuple[Requirement, ...]:
    """Return the frameworks that only optional groups name, as the first group of each has it."""
    if any(framework_name(one.name, greater=True) for one in requirements):
        return ()
    first: dict[str | None, Requirement] = {}
    for group, lines in inner_table(project, "optional-dependencies").items():
        found, _ = split_requirements(_list_of(lines), f"{file}, group {group}")
        for one in () if ASIDE.search(group.lower()) else found:
            if name := framework_name(one.name, greater=True):
                first.setdefault(name, one)
    return tuple(first.values())


def _without_sources(
    requirements: tuple[Requirement, ...],
    data: Mapping[str, Any],
    file: str,
) -> tuple[tuple[Requirement, ...], Pairs]:
    """Take out what comes from no index: on a public one, that name could be anybody's."""
    tables = {
        **inner_table(data, "tool", "uv", "sources"),
        **inner_table(data, "tool", "poetry", "dependencies"),
    }
    reasons: dict[str, str] = {}
    for name, source in tables.items():
        rows = [
            row
            for row in (source if isinstance(source, list) else [source])
            if isinstance(row, dict)
        ]
        if any(row.get("workspace") for row in rows):
            reasons[canonicalize_name(name)] = (
                "part of this project, whose folder is bound when it runs"
            )
        elif any({"git", "path", "url", "file"} & set(row) for row in rows):
            reasons[canonicalize_name(name)] = NO_ADDRESS
    kept = tuple(requirement for requirement in requirements if requirement.name not in reasons)
    return kept, tuple(
        (requirement.text, f"{file}: {reasons[requirement.name]}")
        for requirement in requirements
        if requirement.name in reasons
    )


def _read_poetry(poetry: Mapping[str, Any], file: str) -> FileFindings:
    lines: list[str] = []
    notes: list[str] = []
    aside: list[tuple[str, str]] = []
    python = None
    for name, wish in inner_table(poetry, "dependencies").items():
        if name.lower() == "python":
            python = poetry_bounds(str(wish)) if isinstance(wish, str) else None
            continue
        for wanted in wish if isinstance(wish, list) else [wish]:
            table = dependency_table(wanted)
            if isinstance(table.get("url"), str):
                lines.append(f"{name} @ {table['url']}{poetry_marker(table)}")
            elif {"git", "path", "url", "file"} & set(table):
                aside.append((name, f"{file}: {NO_ADDRESS}"))
            elif not table.get("optional"):
                extras = (
                    f"[{','.join(map(str, table.get('extras', ())))}]"
                    if table.get("extras")
                    else ""
                )
                marker = poetry_marker(table)
                lines.append(
                    f"{name}{extras}{poetry_bounds(str(table.get('version', '*')))}{marker}"
                )
    groups = list(inner_table(poetry, "group")) + (
        ["dev"] if poetry.get("dev-dependencies") else []
    )
    if groups:
        notes.append(f"{file}: its groups are not taken: {', '.join(dict.fromkeys(groups))}")
    requirements, odd = split_requirements(lines, file)
    return FileFindings(
        file=file,
        requirements=requirements,
        aside=(*aside, *odd),
        python=python,
        notes=tuple(notes),
        project=canonicalize_name(str(poetry.get("name", ""))) or None,
        complete=True,
    )


def read_setup_cfg(path: Path, root: Path) -> FileFindings | None:
    """Read [options] of a setup.cfg; None where it has none or is no INI file."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    file = shown_path(path, root)
    try:
        parser.read_string(read_text(path) or "")
    except configparser.Error as error:
        return FileFindings(file=file, notes=(f"{file} is not read: {str(error).splitlines()[0]}",))
    if not parser.has_section("options"):
        return None
    lines = parser.get("options", "install_requires", fallback="")
    python = parser.get("options", "python_requires", fallback="").strip() or None
    if lines.strip().startswith("file:"):
        other = read_requirements(root / lines.strip().removeprefix("file:").strip(), root)
        return FileFindings(
            file=file,
            requirements=other.requirements,
            aside=other.aside,
            notes=other.notes,
            python=python,
        )
    requirements, aside = split_requirements(re.split(r"[\n]+", lines), file)
    return (
        FileFindings(
            file=file,
            requirements=requirements,
            aside=aside,
            python=python,
            complete=bool(requirements),
        )
        if requirements or aside or python
        else None
    )


def read_pipfile(path: Path, root: Path) -> FileFindings:
    """Read [packages] of a Pipfile.  Raises UsageError for one that is no TOML."""
    file = shown_path(path, root)
    data = parse_toml(read_text(path) or "", file)
    lines: list[str] = []
    aside: list[tuple[str, str]] = []
    for name, wish in inner_table(data, "packages").items():
        table = dependency_table(wish)
        if {"git", "path", "file", "editable"} & set(table):
            if table.get("path") != ".":
                aside.append((name, f"{file}: {NO_ADDRESS}"))
            continue
        version = str(table.get("version", "*"))
        marker = f" ; {table['markers']}" if table.get("markers") else ""
        bounds = "" if version == "*" else version
        lines.append(f"{name}{write_extras(table)}{bounds}{marker}")
    requirements, odd = split_requirements(lines, file)
    requires = inner_table(data, "requires")
    exact = _text_of(requires.get("python_full_version")) or ""
    python = _text_of(requires.get("python_version")) or minor_version(exact)
    notes = (f"{file}: [dev-packages] is not taken",) if inner_table(data, "dev-packages") else ()
    return FileFindings(
        file=file,
        requirements=requirements,
        aside=(*aside, *odd),
        python=f"=={python}.*" if python else None,
        notes=notes,
    )


def _list_of(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def read_python_file(root: Path) -> list[FileFindings]:
    """Return the Python that pyenv, uv or Heroku is told to take for a project."""
    for name in (".python-version", "runtime.txt"):
        text = read_text(root / name) if is_inside(root / name, root) else None
        if found := re.match(r"\s*(?:c?python-)?(3\.\d{1,2})(?:\.\d{1,3})?\s*(\n|$)", text or ""):
            return [FileFindings(file=name, python=f"=={found[1]}.*")]
    return []
