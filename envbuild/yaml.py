"""Read YAML of others: plain values only, and no more of them than the text has room for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import yaml

from envbuild.errors import UsageError
from envbuild.limits import MIB

ROOM = 16 * MIB
"""Characters that aliases may add to a text; what tools write has none, people repeat a few lines."""
DEPTH = 100
"""Lists and tables in each other; the fast loader ends the process at some ten thousand."""
ENDLESS = 1 << 62
TAG = "tag:yaml.org,2002:"
PLAIN = {f"{TAG}{kind}" for kind in ("null", "bool", "str", "seq", "map")}
_SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast one may be missing


class _PlainLoader(_SafeLoader):  # type: ignore[misc, valid-type]
    """Makes texts, truth values, nothing, lists and tables.

    A version like 3.10 is no number.  Numbers of base 60 and merged tables take hours to make.
    """

    yaml_constructors: ClassVar = {
        tag: make
        for tag, make in _SafeLoader.yaml_constructors.items()
        if tag in PLAIN or tag is None  # the last one refuses all others
    }
    yaml_implicit_resolvers: ClassVar = {
        first: [rule for rule in rules if rule[0] in PLAIN]
        for first, rules in _SafeLoader.yaml_implicit_resolvers.items()
    }

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Leave ``<<`` a name like others."""


def parse_yaml(text: str, where: str | Path) -> Any:
    """Parse YAML text.

    Raises UsageError with the line for what is no YAML, and for aliases that unfold to too much.
    """
    try:
        _refuse_depth(text, where)
        data = yaml.load(text, Loader=_PlainLoader)  # noqa: S506  (safer than the safe one)
    except (yaml.YAMLError, ValueError, LookupError) as error:
        place = getattr(error, "problem_mark", None)
        raise UsageError(
            "is not YAML",
            where=where if place is None else f"{where}, line {place.line + 1}",
            hint="correct it, or name another file",
        ) from error
    if _unfolded_size(data, {}, DEPTH) > len(text) + ROOM:
        raise UsageError(
            f"its aliases (*) unfold to more than {ROOM // MIB} MiB, or {DEPTH} lists in each other",
            where=where,
        )
    return data


def _refuse_depth(text: str, where: str | Path) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH:
            raise UsageError(f"has more than {DEPTH} lists or tables in each other", where=where)


def _unfolded_size(value: object, known: dict[int, int], depth: int) -> int:
    """Return the characters of a value with a copy for each alias.

    A list in itself has no end, and one deeper than ``depth`` counts as such.
    """
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, (list, dict)):
        return 1
    if depth == 0:
        return ENDLESS
    if id(value) not in known:
        known[id(value)] = ENDLESS
        inner = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_unfolded_size(one, known, depth - 1) for one in inner)
    return known[id(value)]
