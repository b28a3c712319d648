"""Conditions on an interpreter and its platform, as Python code has them and as environment markers say them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

OPERATORS: dict[type, str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "==",
}  # fmt: skip
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
MARKERS = {
    "sys.platform": "sys_platform",
    "os.name": "os_name",
    "platform.system()": "platform_system",
    "platform.machine()": "platform_machine",
    "platform.python_implementation()": "platform_python_implementation",
}
"""Expressions whose value an environment marker tells."""
MAJOR = ("sys.version_info[0]", "sys.version_info.major")
ALWAYS = ("__name__ == '__main__'",)


@dataclass(frozen=True, slots=True)
class Condition:
    """Comparisons of markers: ``parts`` are joined by ``joint`` ("and" or "or"); without parts it holds always."""

    parts: tuple[Condition | tuple[str, str, str], ...] = ()
    joint: str = "and"

    def both(self, other: Condition) -> Condition:
        """Return the condition that both hold."""
        if not self.parts or not other.parts:
            return other if not self.parts else self
        return Condition((self, other))

    def negated(self) -> Condition:
        """Return the opposite; that of what holds always is a comparison that never does."""
        if not self.parts:
            return Condition((("python_version", "<", "0"),))
        opposite = tuple(
            p.negated() if isinstance(p, Condition) else (p[0], OPPOSITE[p[1]], p[2])
            for p in self.parts
        )
        return Condition(opposite, "or" if self.joint == "and" else "and")

    def text(self) -> str:
        """Return it as an environment marker, "" where it holds always."""
        said = [
            p.text() if isinstance(p, Condition) else f'{p[0]} {p[1]} "{p[2]}"' for p in self.parts
        ]
        joined = f" {self.joint} ".join(said)
        return f"({joined})" if len(said) > 1 else joined


TRUE = Condition()


def condition_of(node: ast.expr, named: Callable[[str], Condition | None]) -> Condition | None:
    """Return what an expression asks of interpreter and platform; None for anything else.

    ``named`` tells conditions that names stand for.
    """
    text = ast.unparse(node)
    found = None
    if text in ALWAYS:
        found = TRUE
    elif text in ("six.PY2", "six.PY3"):
        found = _one("python_version", "<" if text.endswith("2") else ">=", "3")
    elif isinstance(node, ast.Name):
        found = named(node.id)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = condition_of(node.operand, named)
        found = inner.negated() if inner is not None else None
    elif isinstance(node, ast.BoolOp):
        inners = [condition_of(value, named) for value in node.values]
        known = tuple(inner for inner in inners if inner is not None)
        joint = "and" if isinstance(node.op, ast.And) else "or"
        found = Condition(known, joint) if len(known) == len(inners) else None
    elif isinstance(node, ast.Call):
        found = _starts_with(node)
    elif isinstance(node, ast.Compare):
        found = _compared(node)
    return found


def _compared(node: ast.Compare) -> Condition | None:
    sides = [node.left, *node.comparators]
    found: list[Condition] = []
    for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
        sign = OPERATORS.get(type(operator))
        one = None if sign is None else _comparison(left, sign, right, turned=False)
        if one is None and sign is not None and not isinstance(operator, ast.In):
            one = _comparison(right, sign, left, turned=True)
        if one is None:
            return None
        found.append(one)
    return found[0] if len(found) == 1 else Condition(tuple(found))


def _comparison(asked: ast.expr, sign: str, value: ast.expr, *, turned: bool) -> Condition | None:
    if turned:
        sign = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign, sign)
    what = ast.unparse(asked)
    try:
        given = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    if what in MARKERS:
        return _among(MARKERS[what], sign, given)
    if what in MAJOR and isinstance(given, int):
        return _major(sign, given)
    if what == "sys.version_info" or (what.startswith("sys.version_info[") and ":" in what):
        return _version(sign, given, length=2 if what.endswith((":2]", ":2)]")) else 3)
    return None


def _among(marker: str, sign: str, given: object) -> Condition | None:
    if isinstance(given, str):
        return _one(marker, sign, given) if '"' not in given else None
    if (
        sign == "=="
        and isinstance(given, list | tuple | set)
        and all(isinstance(item, str) for item in given)
    ):
        return Condition(tuple((marker, "==", item) for item in sorted(given)), "or")
    return None


def _major(sign: str, major: int) -> Condition | None:
    edges = {"<": ("<", major), "<=": ("<", major + 1), ">": (">=", major + 1), ">=": (">=", major)}
    if sign in edges:
        return _one("python_version", edges[sign][0], str(edges[sign][1]))
    equal = Condition(
        (("python_version", ">=", str(major)), ("python_version", "<", str(major + 1)))
    )
    return equal if sign == "==" else equal.negated()


def _version(sign: str, given: object, length: int) -> Condition | None:
    """Compare sys.version_info with a tuple: (3, 8) lies before every 3.8.x, whose tuples are longer."""
    if (
        not isinstance(given, tuple)
        or not given
        or not all(isinstance(part, int) for part in given[:3])
    ):
        return None
    if len(given) == 1:
        return _major({"<=": "<", ">": ">="}.get(sign, sign), given[0])
    if len(given) == 2:
        text = ".".join(map(str, given))
        exact = length == 2
        return _one(
            "python_version", sign if exact else {"<=": "<", ">": ">="}.get(sign, sign), text
        )
    return _one("python_full_version", sign, ".".join(map(str, given[:3])))


def _starts_with(call: ast.Call) -> Condition | None:
    """Read ``sys.platform.startswith("win")``; Linux's is "linux" since Python 3.3."""
    if ast.unparse(call.func) != "sys.platform.startswith" or len(call.args) != 1:
        return None
    names = {
        "win": "win32",
        "win32": "win32",
        "linux": "linux",
        "darwin": "darwin",
        "cygwin": "cygwin",
    }
    given = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
    return (
        _one("sys_platform", "==", names[given])
        if isinstance(given, str) and given in names
        else None
    )


def _one(marker: str, sign: str, value: str) -> Condition:
    return Condition(((marker, sign, value),))
