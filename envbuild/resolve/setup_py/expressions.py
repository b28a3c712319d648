"""Expressions of a setup.py, read without running them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import singledispatchmethod

from envbuild.resolve.setup_py.conditions import TRUE, Condition, condition_of
from envbuild.resolve.setup_py.handed import Lines, Table, Text, Value, lines_of

DEEPEST = 12
"""Calls within calls that are followed."""
MOST_STEPS = 20_000
"""Expressions looked at in one file: real ones have some hundred."""
METHODS = ("strip", "rstrip", "lstrip", "lower")
KEPT_AS_IS = (
    "abspath",
    "realpath",
    "normpath",
    "str",
    "list",
    "tuple",
    "set",
    "sorted",
    "Path",
    "parse_requirements",
)
"""Calls whose result is their argument, as far as requirements go."""
OF_LINES = ("splitlines", "readlines", "split")
MAPPED = 2
CLEANING = {"strip", "rstrip", "lstrip", "startswith", "endswith", "len", "split", "str", "replace"}
"""What a comprehension may call that only cleans the lines of a requirements file."""


class Unknown(Exception):  # noqa: N818  (a way out of the walk, not an error)
    """Only running the file would tell."""


class Expressions:
    """The names of a file and what is known of them; ``files`` are the texts that it may read, by path."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.names: dict[str, Value | Condition | None] = {"__file__": Text("setup.py")}
        self.functions: dict[str, ast.FunctionDef] = {}
        self.steps = 0

    def inside(self, function: ast.FunctionDef, call: ast.Call) -> Value:
        """Return what a function of the file returns.  Raises Unknown."""
        raise NotImplementedError

    def condition_named(self, name: str) -> Condition | None:
        """Return the condition that a name stands for."""
        found = self.names.get(name)
        return found if isinstance(found, Condition) else None

    def known(self, node: ast.expr) -> Value | None:
        """Return the value of an expression, None where only running the file would tell."""
        try:
            return self._value(node)
        except Unknown:
            return None

    def _value(self, node: ast.expr) -> Value:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Unknown
        return self._read(node)

    @singledispatchmethod
    def _read(self, node: ast.expr) -> Value:
        raise Unknown(type(node).__name__)

    @_read.register(ast.Constant)
    def _constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, str):
            return Text(node.value)
        raise Unknown

    @_read.register(ast.Name)
    def _named(self, node: ast.Name) -> Value:
        found = self.names.get(node.id)
        if found is None or isinstance(found, Condition):
            raise Unknown
        return found

    @_read.register(ast.List)
    @_read.register(ast.Tuple)
    @_read.register(ast.Set)
    def _listed(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        items: list[tuple[str, Condition]] = []
        for element in node.elts:
            value = self._value(element.value if isinstance(element, ast.Starred) else element)
            if isinstance(value, Text):
                items.append((value.text, TRUE))
            elif isinstance(value, Lines) and isinstance(element, ast.Starred):
                items += value.items
            else:
                raise Unknown
        return Lines(tuple(items))

    @_read.register(ast.Dict)
    def _dictionary(self, node: ast.Dict) -> Value:
        items: dict[str, Value | None] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = self._value(value)
                if not isinstance(inner, Table):
                    raise Unknown
                items |= inner.items
                continue
            name = self._value(key)
            if not isinstance(name, Text):
                raise Unknown
            items[name.text] = self.known(value)
        return Table(items)

    @_read.register(ast.BinOp)
    def _operation(self, node: ast.BinOp) -> Value:
        left, right = self._value(node.left), self._value(node.right)
        if isinstance(left, Lines) and isinstance(right, Lines) and isinstance(node.op, ast.Add):
            return Lines(left.items + right.items)
        if isinstance(left, Text) and isinstance(right, Text):
            return Text(_combined(left.text, node.op, right.text))
        raise Unknown

    @_read.register(ast.JoinedStr)
    def _formatted(self, node: ast.JoinedStr) -> Value:
        parts = [
            self._value(p.value if isinstance(p, ast.FormattedValue) else p) for p in node.values
        ]
        if all(isinstance(part, Text) for part in parts):
            return Text("".join(part.text for part in parts if isinstance(part, Text)))
        raise Unknown

    @_read.register(ast.IfExp)
    def _either(self, node: ast.IfExp) -> Value:
        test = condition_of(node.test, self.condition_named)
        one, other = self._value(node.body), self._value(node.orelse)
        if test is None or not isinstance(one, Lines) or not isinstance(other, Lines):
            raise Unknown
        kept = tuple((text, where.both(test)) for text, where in one.items)
        return Lines(
            kept + tuple((text, where.both(test.negated())) for text, where in other.items)
        )

    @_read.register(ast.Subscript)
    def _item(self, node: ast.Subscript) -> Value:
        table, key = self._value(node.value), self._value(node.slice)
        found = (
            table.items.get(key.text)
            if isinstance(table, Table) and isinstance(key, Text)
            else None
        )
        if found is None:
            raise Unknown
        return found

    @_read.register(ast.Attribute)
    def _attribute(self, node: ast.Attribute) -> Value:
        value = self._value(node.value)
        if node.attr == "parent" and isinstance(value, Text):
            return Text(value.text.rpartition("/")[0])
        raise Unknown

    @_read.register(ast.ListComp)
    @_read.register(ast.GeneratorExp)
    def _comprehended(self, node: ast.ListComp | ast.GeneratorExp) -> Value:
        """Take a comprehension for what it is in a setup.py: the cleaning of a requirements file's lines."""
        (only, *more) = node.generators
        used = {
            name_of(inner.func)
            for part in (node.elt, *only.ifs)
            for inner in ast.walk(part)
            if isinstance(inner, ast.Call)
        }
        if more or not used <= CLEANING:
            raise Unknown
        return self._cleaned(only.iter)

    def _cleaned(self, node: ast.expr) -> Lines:
        """Return the requirements among the lines of a list or a file."""
        value = self._value(node)
        if isinstance(value, Text):
            value = Lines(tuple((line, TRUE) for line in lines_of(value.text)))
        if not isinstance(value, Lines):
            raise Unknown
        return Lines(
            tuple(
                (text.strip(), where)
                for text, where in value.items
                if text.strip()[:1] not in ("", "#")
            )
        )

    @_read.register(ast.Call)
    def _result(self, node: ast.Call) -> Value:
        name = name_of(node.func) or ""
        if isinstance(node.func, ast.Name) and name in self.functions:
            return self.inside(self.functions[name], node)
        if name in KEPT_AS_IS:
            return self._value(node.args[0] if node.args else node.func)
        if name == "map" and len(node.args) == MAPPED and _calls(node.args[0]) <= CLEANING:
            return self._cleaned(node.args[1])
        if name == "dict" and not node.args:
            return Table({word.arg: self.known(word.value) for word in node.keywords if word.arg})
        if isinstance(node.func, ast.Attribute) and name in OF_LINES:
            return Lines(
                tuple(
                    (line, TRUE) for line in lines_of("\n".join(self._split(node.func.value, node)))
                )
            )
        return Text(self._called(node, name))

    def _called(self, node: ast.Call, name: str) -> str:
        """Return the string that a call gives: a path, what a file holds, a string without white space around it."""
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        first = node.args[0] if node.args else None
        if name == "join" and owner is not None and name_of(owner) == "path":
            found = _joined([text for argument in node.args for text in self._parts(argument)])
        elif name == "dirname" and first is not None:
            found = self._text(first).rpartition("/")[0]
        elif name == "open" and first is not None:
            found = self._file(self._text(first))
        elif name in ("read_text", "open") and owner is not None:
            found = self._file(self._text(owner))
        elif name == "read" and owner is not None:
            found = self._text(owner)
        elif name in METHODS and owner is not None and first is None:
            found = str(getattr(self._text(owner), name)())
        else:
            raise Unknown
        return found

    def _split(self, owner: ast.expr, call: ast.Call) -> list[str]:
        text = self._text(owner)
        by = self._text(call.args[0]) if call.args and name_of(call.func) == "split" else None
        return (
            text.split(by)
            if by or (name_of(call.func) == "split" and not call.args)
            else text.splitlines()
        )

    def _parts(self, node: ast.expr) -> list[str]:
        """Return the parts of a path that an argument is, or, with a star before it, holds."""
        if not isinstance(node, ast.Starred):
            return [self._text(node)]
        value = self._value(node.value)
        if not isinstance(value, Lines):
            raise Unknown
        return [text for text, _ in value.items]

    def _text(self, node: ast.expr) -> str:
        value = self._value(node)
        if not isinstance(value, Text):
            raise Unknown
        return value.text

    def _file(self, path: str) -> str:
        found = self.files.get(path.removeprefix("./").lstrip("/"))
        if found is None:
            raise Unknown
        return found


def name_of(node: ast.expr) -> str | None:
    """Return the last part of a dotted name."""
    return (
        node.attr
        if isinstance(node, ast.Attribute)
        else node.id
        if isinstance(node, ast.Name)
        else None
    )


def _calls(*nodes: ast.AST) -> set[str | None]:
    """Return the names of what is called in expressions."""
    inner = (part for node in nodes for part in ast.walk(node))
    return {name_of(part.func) for part in inner if isinstance(part, ast.Call)}


def _combined(left: str, operator: ast.operator, right: str) -> str:
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Div):
        return _joined([left, right])
    if isinstance(operator, ast.Mod) and left.count("%") == left.count("%s") == 1:
        return left.replace("%s", right)
    raise Unknown


def _joined(parts: Sequence[str]) -> str:
    return "/".join(part.strip("/") for part in parts if part.strip("/"))
