"""Read TOML with errors that name file, line and key.

Write the few forms that envbuild's own files use.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli

from envbuild.errors import UsageError
from envbuild.limits import read_whole, readable
from envbuild.names import Texts

T = TypeVar("T")


class TomlTable(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """A table of a file that is ours: frozen, known keys only, names in kebab case."""


OTHER_SECTION = re.compile(r"^\s*\[[^\]\"']*\]\s*(#.*)?$")
KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "text",
}
"""Names of JSON's kinds, as msgspec has them, in TOML's words (https://toml.io/en/v1.0.0)."""
BIGGEST_FILE = 16 * 1024 * 1024
"""Bytes; a recipe or lock above this is refused unread."""
LONG_NUMBER = re.compile(r"\b0[xob][0-9A-Fa-f_]{3000}")
"""Python reads such a number, and raises ValueError where a message has it."""
UNSEEN = r"\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
"""Characters that nobody sees: marks of direction, of joining and of line ends."""
CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{UNSEEN}]")
"""What acts on a terminal or is not seen there: all controls but tab and line end, and UNSEEN."""


def json_schema(kind: type[msgspec.Struct], title: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) that every valid document of this kind satisfies."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return {**head, **msgspec.json.schema(kind)}


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Read a TOML file and return its data and its text.

    Raises UsageError when it cannot be read, is not UTF-8 or does not parse (line and column are
    named).
    """
    with readable(path):
        raw = read_whole(path, BIGGEST_FILE)
    try:
        # editors on Windows put a mark before the text, which TOML does not know
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 text (byte {error.start})"
        raise UsageError(what, where=path, hint="save it as UTF-8, in your editor") from error
    return parse_toml(text, str(path)), text


def parse_toml(text: str, where: str) -> dict[str, Any]:
    """Parse TOML text; raises UsageError with line and column."""
    if LONG_NUMBER.search(text):
        raise UsageError("has a number that is too long", where=where)
    try:
        data: dict[str, Any] = tomli.loads(text)
    except RecursionError as error:
        raise UsageError(f"is nested too deeply: {error}", where=where) from error
    except tomli.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        place = f"{where}, line {found[1]}, column {found[2]}" if found else f"{where}, at its end"
        message = re.sub(r"\s*\(at .*\)$", "", str(error))
        raise UsageError(f"is not valid TOML: {message}", where=place) from error
    except ValueError as error:  # int() takes so many digits
        raise UsageError(f"has a number that is too long: {error}", where=where) from error
    return data


def closest(word: str, known: Iterable[str], *, listed: bool = True) -> str:
    """Return a question for the nearest known word, else the list of known words, else nothing."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if near:
        return f'; did you mean "{near[0]}"?'
    return f"; known: {', '.join(names)}" if names and listed else ""


def line_of(text: str, path: Sequence[str | int]) -> int:
    """Return the line (from 1) where a key stands.

    The nearest enclosing one where it cannot be told.
    """
    lines = text.splitlines()
    found, start = 0, 0
    for depth, part in enumerate(path):
        if isinstance(part, int):
            break  # which item of a list is at fault is not known: its first line is told
        number = _find_top(lines, part) if depth == 0 else _find_inside(lines, start, part)
        if number is None:
            break
        found = start = number
        if lines[number].lstrip().startswith("["):
            start += 1
    return found + 1


def _find_top(lines: Sequence[str], name: str) -> int | None:
    """Return the place of a section's header, or of a key that stands before all sections."""
    header = re.compile(rf"^\s*\[\[?\s*[\"']?{re.escape(name)}[\"']?\s*(\.|\]|$)")
    key = _key(name)
    for number, line in enumerate(lines):
        if header.match(line) or key.match(line):
            return number
    return None


def _find_inside(lines: Sequence[str], start: int, name: str) -> int | None:
    """Return the place of a key in the section that goes on at ``start``."""
    key = _key(name)
    for number in range(start, len(lines)):
        if key.search(lines[number]):
            return number
        if OTHER_SECTION.match(lines[number]):
            return None
    return None


def place_of(where: str | Path, text: str, *keys: str | int) -> str:
    """Return file and line where a key stands, for an error."""
    return f"{where}, line {line_of(text, keys)}"


def _key(name: str) -> re.Pattern[str]:
    """Match a line that sets the key, alone or inside an inline table."""
    quoted = rf"[\"']?{re.escape(name)}[\"']?\s*="
    return re.compile(rf"^\s*(?:[\w\"'-]+\.)*{quoted}|[{{,]\s*{quoted}")


def convert(data: Any, kind: type[T], *, text: str, where: str) -> T:
    """Turn parsed TOML into a typed record.

    Raises UsageError naming file, line and key; unknown keys get a "did you mean".
    """
    if "\\" in text or CONTROL.search(text):
        _refuse_controls(data, text, where, ())
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _explain_invalid(str(error), kind, text, where) from error


def _explain_invalid(error: str, kind: Any, text: str, where: str) -> UsageError:
    """Return the error about a value that msgspec refuses, in TOML's words and with its line."""
    message, _, path_text = error.partition(" - at `")
    path = _path(path_text.rstrip("`"))
    section = ".".join(part for part in path if isinstance(part, str))
    inside = f" in [{section}]" if section else ""
    place = place_of(where, text, *path)
    unknown = re.search(r"unknown field `([^`]+)`", message)
    if unknown:
        name, noun = unknown[1], "key" if section else "section"
        what = f"unknown {noun} {name!r}{inside}{closest(name, _keys_at(kind, path))}"
        return UsageError(what, where=place_of(where, text, *path, name))
    missing = re.search(r"missing required field `([^`]+)`", message)
    if missing:
        return UsageError(f"{missing[1]!r} is missing{inside}", where=place)
    message = _in_words_of_toml(message)
    what = f"{section}: {message}" if section else message
    return UsageError(what, where=place, hint=_described_as(kind, path))


def _in_words_of_toml(message: str) -> str:
    """Say a message of msgspec, "Expected `array | null`, got `str`", as "takes a list, not text"."""

    def name_kinds(found: re.Match[str]) -> str:
        kinds = found[1].split(" | ")
        return " or ".join(KINDS.get(kind, kind) for kind in kinds if kind != "null")

    said = re.sub(r"`([^`]+)`", name_kinds, message)
    said = said.replace(" matching regex ", " that matches ").replace(", got ", ", not ")
    said = said.replace("Expected ", "takes ")
    return said[:1].lower() + said[1:]


def _refuse_controls(data: Any, text: str, where: str, path: Sequence[str | int]) -> None:
    """Raise UsageError for a string that would do something to the terminal that shows it."""
    if isinstance(data, str):
        found = CONTROL.search(data)
        if found:
            what = f"{'.'.join(map(str, path))}: has the control character U+{ord(found[0]):04X}"
            raise UsageError(what, where=place_of(where, text, *path))
    elif isinstance(data, (dict, list)):
        items = data.items() if isinstance(data, dict) else enumerate(data)
        for key, value in items:
            _refuse_controls(key, text, where, path)
            _refuse_controls(value, text, where, (*path, key))


def _path(text: str) -> tuple[str | int, ...]:
    parts: list[str | int] = []
    for name, index in re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", text.removeprefix("$")):
        if name:
            parts.append(name)
        else:
            parts.append(int(index) if index.isdigit() else 0)
    return tuple(parts)


def _keys_at(kind: Any, path: Sequence[str | int]) -> list[str]:
    """Return the keys that a record type knows at a path."""
    found = _inside(_type_at(kind, path))
    if not isinstance(found, msgspec.inspect.StructType):
        return []
    return [field.encode_name for field in found.fields]


def _described_as(kind: Any, path: Sequence[str | int]) -> str | None:
    """Return what the record type says of the value at a path; None where it says nothing."""
    found = _inside(_type_at(kind, path))
    if not isinstance(found, msgspec.inspect.Metadata):
        return None
    text = (found.extra_json_schema or {}).get("description", "")
    return f"it takes: {text[:1].lower()}{text[1:].removesuffix('.')}" if text else None


def _type_at(kind: Any, path: Sequence[str | int]) -> Any:
    info = msgspec.inspect.type_info(kind)
    for part in path:
        info = _inside(info)
        if isinstance(info, msgspec.inspect.StructType) and isinstance(part, str):
            info = next((f.type for f in info.fields if f.encode_name == part), info)
        elif isinstance(info, msgspec.inspect.DictType):
            info = info.value_type
    return info


def _inside(info: Any) -> Any:
    while True:
        if isinstance(info, msgspec.inspect.UnionType):
            info = next(
                (t for t in info.types if not isinstance(t, msgspec.inspect.NoneType)), info
            )
        elif isinstance(info, (msgspec.inspect.ListType, msgspec.inspect.VarTupleType)):
            info = info.item_type
        else:
            return info


def write_value(value: str | int | bool | list[str] | Texts | dict[str, Any]) -> str:
    """Write a string, number, flag, list of strings, or table of these, on one line."""
    if isinstance(value, dict):
        return f"{{ {', '.join(write_pairs(value))} }}"
    # TOML's strings are JSON's, but for this one character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def write_pairs(table: Mapping[str, Any]) -> list[str]:
    """Write the keys of a table with their values, one line each."""
    return [f"{write_key(key)} = {write_value(value)}" for key, value in table.items()]


def write_key(name: str) -> str:
    """Write a key, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quote(name)


def quote(text: str) -> str:
    """Write a TOML basic string."""
    return write_value(text)
