"""Write a recipe as TOML for people: one list item a line, comments beside and below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from envbuild.names import Texts
from envbuild.recipe.model import Recipe
from envbuild.toml import quote, write_key, write_value

WIDTH = 100
"""Columns that a list without comments may take on one line."""
Beside = Mapping[tuple[str, str, str], str]


def write_recipe(
    recipe: Recipe,
    *,
    head: Sequence[str] = (),
    beside: Beside | None = None,
    below: Mapping[str, Texts] | None = None,
) -> str:
    """Return the text of a recipe file; keys that have their default are left out.

    ``head`` are comment lines at its top; ``beside`` comments by (section, key, item of a list, ""
    for the key itself); ``below`` comment lines at the end of a section, which is then written even
    if it is empty.
    """
    comments, after = beside or {}, below or {}
    out = [_comment_line(line) for line in head]
    for field in structs.fields(recipe):
        section = getattr(recipe, field.name)
        lines: list[str] = []
        for key, value in _changed_text(section):
            lines += _key_line(field.encode_name, key, value, comments)
        lines += [_comment_line(line) for line in after.get(field.encode_name, ())]
        if lines:
            if out:
                out.append("")
            out += [f"[{field.encode_name}]", *lines]
    return "\n".join(out) + "\n"


def _changed_text(section: msgspec.Struct | Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the keys that differ from their default, in order; all of a free table."""
    if isinstance(section, Mapping):
        return [(write_key(name), value) for name, value in section.items()]
    found = []
    for field in structs.fields(section):
        value = getattr(section, field.name)
        default = (
            field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        )
        if value != default and value not in ((), {}, None):
            found.append((field.encode_name, value))
    return found


def _key_line(section: str, key: str, value: Any, comments: Beside) -> list[str]:
    heading = comments.get((section, key, ""))
    if not isinstance(value, tuple):
        return [_with_comment(f"{key} = {write_value(msgspec.to_builtins(value))}", heading)]
    items = list(map(str, value))
    notes = [comments.get((section, key, item)) for item in items]
    quoted = list(map(quote, items))
    line = f"{key} = [{', '.join(quoted)}]"
    if len(line) <= WIDTH and not any(notes):
        return [_with_comment(line, heading)]
    pairs = zip(quoted, notes, strict=True)
    lines = [_with_comment(f"  {item},", note) for item, note in pairs]
    return [_with_comment(f"{key} = [", heading), *lines, "]"]


def _with_comment(line: str, comment: str | None) -> str:
    return f"{line}  {_comment_line(comment)}" if comment else line


def _comment_line(text: str) -> str:
    """Return a comment of one line, whatever a stranger's file had in it."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return f"# {shown}".rstrip()
