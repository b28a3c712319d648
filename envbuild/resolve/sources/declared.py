"""Read requirements where they are written down: pyproject.toml, setup.cfg, egg-info."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Mapping
from typing import Any

from envbuild.store.units import join_numbers

SECTION = re.compile(r"\[([^\]:]*)(?::(.*))?\]\Z")
ELSEWHERE = {"git", "path", "url", "file"}
"""Keys of a Poetry dependency that no index has."""


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


def project_requires(data: Mapping[str, Any]) -> list[str] | None:
    """Return what [project] requires, with extras; None where it leaves that to the build."""
    project = data.get("project")
    if not isinstance(project, dict) or "dependencies" in _text_items(project.get("dynamic")):
        return None
    found = _text_items(project.get("dependencies"))
    for extra, lines in inner_table(project, "optional-dependencies").items():
        found += [_with_extra(line, str(extra)) for line in _text_items(lines)]
    return found


def poetry_requires(data: Mapping[str, Any]) -> list[str] | None:
    """Return what [tool.poetry] requires as PEP 508; None where there is no such table."""
    poetry = inner_table(data, "tool", "poetry")
    if not poetry:
        return None
    tables = inner_table(poetry, "extras")
    extras = {str(name): _text_items(members) for name, members in tables.items()}
    found: list[str] = []
    for name, wish in inner_table(poetry, "dependencies").items():
        if name.lower() == "python":
            continue
        for wanted in wish if isinstance(wish, list) else [wish]:
            table = dependency_table(wanted)
            if ELSEWHERE & set(table):
                continue
            bounds = poetry_bounds(str(table.get("version", "*")))
            line = f"{name}{write_extras(table)}{bounds}{poetry_marker(table)}"
            if not table.get("optional"):
                found.append(line)
            own = [extra for extra, members in extras.items() if name in members]
            found += [_with_extra(line, extra) for extra in own]
    return found


def dependency_table(wish: object) -> dict[str, Any]:
    """Return what Poetry, Pipenv or pixi ask of a package as a table; a text is its version."""
    return wish if isinstance(wish, dict) else {"version": wish}


def write_extras(table: Mapping[str, Any]) -> str:
    """Return the extras of a table as a requirement has them: "[a,b]", or nothing."""
    extras = table.get("extras")
    return f"[{','.join(map(str, extras))}]" if extras else ""


def poetry_marker(table: Mapping[str, Any]) -> str:
    """Return the marker of one wish of Poetry's: its own, its Python versions and its platform."""
    markers: list[str] = []
    if re.fullmatch(r"\w+", str(table.get("platform", ""))):
        markers.append(f"sys_platform == '{table['platform']}'")
    if table.get("markers"):
        markers.append(f"({table['markers']})")
    for bound in poetry_bounds(str(table.get("python", "*"))).split(","):
        version = bound.lstrip("<>=!~")
        sign = bound.removesuffix(version)
        if sign:
            markers.append(f"python_version {sign} '{version}'")
        elif bound:
            markers.append(bound)
    return f" ; {' and '.join(markers)}" if markers else ""


def poetry_bounds(text: str) -> str:
    """Return Poetry's version wishes as PEP 440 has them: "^1.2" is ">=1.2,<2"."""
    # of alternatives the first counts
    first = text.partition("||")[0]
    plain = " ".join(first.split())
    parts = map(str.strip, re.split(r"[, ](?= ?[<>=!~^\d*])", plain))
    bounds = [_poetry_bound(part) for part in parts if part]
    return ",".join(filter(None, bounds))


def _poetry_bound(part: str) -> str:
    if part == "*":
        return ""
    # "^0.2.3" is below 0.3: the first number that is not zero may not grow; "~1.2.3" is below 1.3
    series = re.fullmatch(r"([~^])\s*(\d{1,9}(?:\.\d{1,9})*)(?!\d)(.*)", part, re.DOTALL)
    if series is None:
        exact = re.fullmatch(r"=?(\d.*)", part)
        return f"=={exact[1]}" if exact else part.replace(" ", "")
    sign, version, rest = series.groups()
    numbers = [int(number) for number in version.split(".")]
    last = len(numbers) - 1
    fixed = min(1, last)
    if sign == "^":
        fixed = next((at for at, number in enumerate(numbers) if number), last)
    upper = [*numbers[:fixed], numbers[fixed] + 1]
    return f">={version}{rest},<{join_numbers(upper)}"


def cfg_requires(text: str, files: Mapping[str, str]) -> list[str] | None:
    """Return what [options] of a setup.cfg requires, with extras; None where it says nothing.

    ``files`` are the texts that it may name, by their path inside the archive's top folder.
    """
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    if not parser.has_option("options", "install_requires"):
        return None
    needs = parser.get("options", "install_requires").strip()
    if needs.startswith("file:"):
        named = [files.get(name.strip()) for name in needs.removeprefix("file:").split(",")]
        if None in named:
            return None
        needs = "\n".join(name or "" for name in named)
    found = list(_requirement_lines(needs.splitlines()))
    section = "options.extras_require"
    if not parser.has_section(section):
        return found
    for extra in parser.options(section):
        text = parser.get(section, extra)
        # in one line they are separated by semicolons, which in several lines begin markers
        lines = text.split("\n") if "\n" in text else text.split(";")
        found += [_with_extra(line, extra) for line in _requirement_lines(lines)]
    return found


def _with_extra(line: str, extra: str) -> str:
    """Return a requirement that an extra alone brings."""
    name, _, marker = extra.partition(":")
    wanted, _, own = line.partition(";")
    parts = [f"({text.strip()})" for text in (own, marker) if text.strip()]
    if name:
        parts.append(f'extra == "{name}"')
    return f"{wanted.strip()} ; {' and '.join(parts)}"


def _requirement_lines(lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        text = line.partition(" #")[0].strip()
        if text and text[0] not in "#-":
            yield text


def inner_table(data: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return a table inside tables; empty where it is missing or no table."""
    here: Any = data
    for key in keys:
        here = here.get(key) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else {}


def _text_items(value: object) -> list[str]:
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, str)]
