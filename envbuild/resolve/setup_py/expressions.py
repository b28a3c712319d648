"""Expressions of a setup.py, read without running them."""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from envbuild.resolve.setup_py.conditions import ALWAYS, Condition, condition_of
from envbuild.resolve.setup_py.handed import Line, Value, lines_of

MOST_STEPS = 20_000
"""Expressions looked at in one file: real ones have some hundred."""
SAME = {
    "abspath", "realpath", "normpath", "str", "list", "tuple", "set", "sorted", "Path", "parse_requirements",
}  # fmt: skip
"""Calls whose result is their argument, as far as requirements go."""
STRIPPING = ("strip", "rstrip", "lstrip", "lower")
OF_LINES = ("splitlines", "readlines", "split")
CLEANING = {"strip", "rstrip", "lstrip", "startswith", "endswith", "len", "split", "str", "replace"}
"""What a comprehension may call that only cleans the lines of a requirements file."""
TAKING_APART = {"findall", "match", "fullmatch", "search", "split", "groups", "group", "strip"}
"""What a comprehension may call that takes a requirement's name from its line."""
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


class Unknown(Exception):  # noqa: N818  (a way out of the walk, not an error)
    """Only running the file would tell."""


class Expressions(ABC):
    """What is known of a file's names; ``files`` are the texts that it may read, by path."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.names: dict[str, Value | Condition | None] = {"__file__": "setup.py"}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.steps = 0

    @abstractmethod
    def call_function(self, function: ast.FunctionDef, call: ast.Call) -> Value:
        """Return what a function of the file returns.  Raises Unknown."""

    def condition(self, node: ast.expr) -> Condition | None:
        """Return what an expression asks of interpreter and platform; None for anything else."""
        return condition_of(node, self._condition_named)

    def _condition_named(self, name: str) -> Condition | None:
        known = self.names.get(name)
        return known if isinstance(known, Condition) else None

    def known(self, node: ast.expr) -> Value | None:
        """Return the value of an expression, None where only running the file would tell."""
        try:
            return self._value_of(node)
        except Unknown:
            return None

    def _value_of(  # noqa: C901, PLR0911, PLR0912  (a row for each kind of expression)
        self, node: ast.expr
    ) -> Value:
        # a hostile file may be as deep as it likes
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Unknown
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=name):
                return _require_value(self.names.get(name))
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return tuple(chain.from_iterable(map(self._lines_of, items)))
            case ast.Dict():
                return self._table_of(node)
            case ast.BinOp(left=left, op=operator, right=right):
                return _combine_values(self._value_of(left), operator, self._value_of(right))
            case ast.JoinedStr(values=parts):
                return "".join(map(self._text_of, parts))
            case ast.FormattedValue(value=inner):
                return self._text_of(inner)
            case ast.IfExp():
                return self._either_list(node)
            case ast.Subscript(value=table, slice=key):
                return self._table_item(table, key)
            case ast.Attribute(value=path, attr="parent"):
                return self._text_of(path).rpartition("/")[0]
            case ast.DictComp(generators=[only]):
                return self._table_by_name(only.iter)
            case (
                ast.ListComp(elt=element, generators=[only])
                | ast.GeneratorExp(elt=element, generators=[only])
            ):
                if isinstance(element, ast.Subscript) and not only.ifs:
                    return self._picked_lines(element, only)
                return self._cleaned_lines([element, *only.ifs], only.iter)
            case ast.Call():
                return self._call_result(node)
        raise Unknown

    def _text_of(self, node: ast.expr) -> str:
        value = self._value_of(node)
        if not isinstance(value, str):
            raise Unknown
        return value

    def _lines_of(self, node: ast.expr) -> tuple[Line, ...]:
        """Return what an element puts into its list: itself, or, with a star before it, its own."""
        if not isinstance(node, ast.Starred):
            return (Line(self._text_of(node)),)
        value = self._value_of(node.value)
        if not isinstance(value, tuple):
            raise Unknown
        return value

    def _table_of(self, node: ast.Dict) -> Mapping[str, Value | None]:
        items: dict[str, Value | None] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                items[self._text_of(key)] = self.known(value)
                continue
            inner = self._value_of(value)  # {**other}
            if not isinstance(inner, Mapping):
                raise Unknown
            items |= inner
        return items

    def _either_list(self, node: ast.IfExp) -> tuple[Line, ...]:
        test = self.condition(node.test)
        one, other = self._value_of(node.body), self._value_of(node.orelse)
        if test is None or not isinstance(one, tuple) or not isinstance(other, tuple):
            raise Unknown
        there = [line.under(test) for line in one]
        return (*there, *(line.under(test.negated()) for line in other))

    def _table_item(self, table: ast.expr, key: ast.expr) -> Value:
        value = self._value_of(table)
        if not isinstance(value, Mapping):
            raise Unknown
        return _require_value(value.get(self._text_of(key)))

    def _table_by_name(self, lines: ast.expr) -> Mapping[str, Value | None]:
        """Return requirements by their names, as ``{name: line for … in …}`` takes a list apart."""
        while isinstance(lines, ast.GeneratorExp | ast.ListComp) and len(lines.generators) == 1:
            if not _called_names([lines.elt, *lines.generators[0].ifs]) <= TAKING_APART:
                raise Unknown
            lines = lines.generators[0].iter
        value = self._value_of(lines)
        if not isinstance(value, tuple):
            raise Unknown
        named = ((NAME.match(line.text.strip()), line) for line in value)
        return {name[0]: line.text for name, line in named if name and line.when == ALWAYS}

    def _picked_lines(self, element: ast.Subscript, only: ast.comprehension) -> tuple[Line, ...]:
        """Return what a list of names picks from a table: ``[deps[name] for name in names]``."""
        names = self._value_of(only.iter)
        if not isinstance(only.target, ast.Name) or not isinstance(names, tuple):
            raise Unknown
        kept = self.names.get(only.target.id)
        found: list[Line] = []
        for name in names:
            self.names[only.target.id] = name.text
            found += self._lines_of(element)
        self.names[only.target.id] = kept
        return tuple(found)

    def _cleaned_lines(self, parts: Sequence[ast.expr], lines: ast.expr) -> tuple[Line, ...]:
        """Return the requirements among lines that an expression only cleans."""
        if not _called_names(parts) <= CLEANING:
            raise Unknown
        value = self._value_of(lines)
        if isinstance(value, str):
            return tuple(map(Line, lines_of(value)))
        if not isinstance(value, tuple):
            raise Unknown
        stripped = [Line(line.text.strip(), line.when) for line in value]
        return tuple(line for line in stripped if line.text[:1] not in ("", "#"))

    def _call_result(self, call: ast.Call) -> Value:
        """Return what a call gives."""
        name = name_of(call.func) or ""
        match call:
            case ast.Call(func=ast.Name()) if name in self.functions:
                return self.call_function(self.functions[name], call)
            case ast.Call(args=[first, *_]) if name in SAME:
                return self._value_of(first)
            case ast.Call(args=[function, lines]) if name == "map":
                return self._cleaned_lines([function], lines)
            case ast.Call(args=[]) if name == "dict":
                return {word.arg: self.known(word.value) for word in call.keywords if word.arg}
            case ast.Call(func=ast.Attribute(value=owner)) if name in OF_LINES:
                return self._split_lines(self._text_of(owner), name, call.args)
        return self._called_text(call, name)

    def _called_text(self, call: ast.Call, name: str) -> str:
        """Return the string that a call gives: a path, a file's text, a stripped string."""
        match call:
            case ast.Call(func=ast.Attribute(value=owner), args=parts) if name == "join":
                if name_of(owner) == "path":
                    lines = chain.from_iterable(map(self._lines_of, parts))
                    return _join_paths(line.text for line in lines)
            case ast.Call(args=[path, *_]) if name == "dirname":
                return self._text_of(path).rpartition("/")[0]
            case ast.Call(func=ast.Name() | ast.Attribute(), args=[path, *_]) if name == "open":
                return self._file_text(self._text_of(path))
            case ast.Call(func=ast.Attribute(value=owner)) if name in ("read_text", "open"):
                return self._file_text(self._text_of(owner))
            case ast.Call(func=ast.Attribute(value=owner)) if name == "read":
                return self._text_of(owner)
            case ast.Call(func=ast.Attribute(value=owner), args=[]) if name in STRIPPING:
                return str(getattr(self._text_of(owner), name)())
        raise Unknown

    def _split_lines(self, text: str, name: str, arguments: Sequence[ast.expr]) -> tuple[Line, ...]:
        by = self._text_of(arguments[0]) if name == "split" and arguments else None
        parts = text.split(by) if name == "split" and by != "" else text.splitlines()
        return tuple(map(Line, lines_of("\n".join(parts))))

    def _file_text(self, path: str) -> str:
        """Return the text of a file; an absolute path is one below the archive's top folder."""
        text = self.files.get(path.removeprefix("./").lstrip("/"))
        if text is None:
            raise Unknown
        return text


def name_of(node: ast.expr) -> str | None:
    """Return the last part of a dotted name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def lines_in(value: Value | Condition | None) -> tuple[Line, ...] | None:
    """Return a value that is a list, None for any other."""
    return value if isinstance(value, tuple) and not isinstance(value, Condition) else None


def _require_value(value: Value | Condition | None) -> Value:
    if value is None or isinstance(value, Condition):
        raise Unknown
    return value


def _called_names(nodes: Iterable[ast.AST]) -> set[str | None]:
    """Return the names of what is called in expressions."""
    found: set[str | None] = set()
    for node in nodes:
        found |= {name_of(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    return found


def _combine_values(left: Value, operator: ast.operator, right: Value) -> Value:
    if isinstance(left, tuple) and isinstance(right, tuple) and isinstance(operator, ast.Add):
        return left + right
    if not isinstance(left, str) or not isinstance(right, str):
        raise Unknown
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Div):
        return _join_paths((left, right))
    if isinstance(operator, ast.Mod) and left.count("%") == left.count("%s") == 1:
        return left.replace("%s", right)
    raise Unknown


def _join_paths(parts: Iterable[str]) -> str:
    return "/".join(part.strip("/") for part in parts if part.strip("/"))
