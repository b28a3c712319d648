"""Conditions on interpreter and platform, from Python code to environment markers."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import NamedTuple

from envbuild.store.units import join_numbers

SIGNS: dict[type, str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "==",
}  # fmt: skip
OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
MARKERS = {
    "sys.platform": "sys_platform",
    "os.name": "os_name",
    "platform.system()": "platform_system",
    "platform.machine()": "platform_machine",
    "platform.python_implementation()": "platform_python_implementation",
}
"""Expressions whose value an environment marker tells."""
MAJOR = ("sys.version_info[0]", "sys.version_info.major")
BEGINNINGS = {name: name for name in ("win32", "linux", "darwin", "cygwin")} | {"win": "win32"}
"""What ``sys.platform.startswith`` asks for; Linux's is "linux" since Python 3.3."""


class Condition(NamedTuple):
    """An environment marker (PEP 508), "" for what always holds, and the marker of the opposite."""

    text: str
    opposite: str

    def both(self, other: Condition) -> Condition:
        """Return the condition that both hold."""
        return _join_conditions("and", (self, other))

    def negated(self) -> Condition:
        """Return the opposite; that of what always holds is a comparison that never does."""
        return Condition(self.opposite, self.text)


ALWAYS = Condition("", 'python_version < "0"')
NEVER = ALWAYS.negated()
VARIABLES = ("os.getenv", "os.environ.get")
"""Calls that ask for an environment variable: a build in an image has none of these."""


def condition_of(  # noqa: PLR0911  (a row for each kind of expression)
    node: ast.expr, named: Callable[[str], Condition | None]
) -> Condition | None:
    """Return what an expression asks of interpreter and platform; None for anything else.

    ``named`` tells conditions that names stand for.
    """
    text = ast.unparse(node)
    if text in KNOWN:
        return KNOWN[text]
    unset = _unset_variable(node)
    if unset is not None:
        return ALWAYS if unset.value else NEVER
    match node:
        case ast.Name(id=name):
            return named(name)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = condition_of(operand, named)
            return inner.negated() if inner is not None else None
        case ast.BoolOp():
            return _read_operands(node, named)
        case ast.Call(args=[ast.Constant(value=str(given))], func=function):
            if ast.unparse(function) == "sys.platform.startswith" and given in BEGINNINGS:
                return _compare_marker("sys_platform", "==", BEGINNINGS[given])
        case ast.Compare(left=left, ops=operators, comparators=others):
            return _read_chain([left, *others], operators)
    return None


def _read_operands(node: ast.BoolOp, named: Callable[[str], Condition | None]) -> Condition | None:
    """Read operands of "and" or "or", of which each must be a condition."""
    parts = []
    for value in node.values:
        part = condition_of(value, named)
        if part is None:
            return None
        parts.append(part)
    return _join_conditions("and" if isinstance(node.op, ast.And) else "or", parts)


def _unset_variable(node: ast.expr) -> ast.Constant | None:
    """Return what asking for an environment variable gives where it is not set."""
    match node:
        case ast.Call(func=function, args=[_]) if ast.unparse(function) in VARIABLES:
            return ast.Constant(None)
        case ast.Call(func=function, args=[_, ast.Constant() as default]):
            return default if ast.unparse(function) in VARIABLES else None
    return None


def _compare_marker(marker: str, sign: str, value: str) -> Condition:
    holds = f'{marker} {sign} "{value}"'
    fails = f'{marker} {OPPOSITE[sign]} "{value}"'
    return Condition(holds, fails)


KNOWN = {
    "__name__ == '__main__'": ALWAYS,
    "six.PY2": _compare_marker("python_version", "<", "3"),
    "six.PY3": _compare_marker("python_version", ">=", "3"),
}


def _join_conditions(word: str, conditions: Iterable[Condition]) -> Condition:
    """Join conditions by "and" or "or"; the opposite is joined by the other word (De Morgan)."""
    parts = list(conditions)
    if word == "or" and ALWAYS in parts:
        return ALWAYS
    parts = [part for part in parts if part != ALWAYS] or [ALWAYS]
    if len(parts) == 1:
        return parts[0]
    other = "or" if word == "and" else "and"
    text = f" {word} ".join(part.text for part in parts)
    opposite = f" {other} ".join(part.opposite for part in parts)
    return Condition(f"({text})", f"({opposite})")


def _read_chain(sides: list[ast.expr], operators: list[ast.cmpop]) -> Condition | None:
    """Read ``a < b <= c`` as Python does: every neighbours' comparison holds."""
    found: list[Condition] = []
    for left, operator, right in zip(sides, operators, sides[1:], strict=False):
        if ast.unparse(right) == "os.environ":
            found.append(ALWAYS if isinstance(operator, ast.NotIn) else NEVER)
            continue
        sign = SIGNS.get(type(operator))
        if sign is None:
            return None
        one = _read_comparison(left, sign, right)
        if one is None:  # the constant may stand on the left: (3, 8) > sys.version_info
            one = _read_comparison(right, MIRRORED.get(sign, sign), left)
        if one is None:
            return None
        found.append(one)
    return _join_conditions("and", found)


def _read_comparison(asked: ast.expr, sign: str, value: ast.expr) -> Condition | None:
    what = ast.unparse(asked)
    try:
        given = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    unset = _unset_variable(asked)
    if unset is not None and sign in ("==", "!="):
        among = given if isinstance(given, tuple | list | set) else (given,)
        return ALWAYS if (unset.value in among) == (sign == "==") else NEVER
    if what in MARKERS:
        return _marker_among(MARKERS[what], sign, given)
    if what in MAJOR and isinstance(given, int):
        return _major_version(sign, given)
    if what == "sys.version_info" or (what.startswith("sys.version_info[") and ":" in what):
        return _version_condition(sign, given, exact=what.endswith((":2]", ":2)]")))
    return None


def _marker_among(marker: str, sign: str, given: object) -> Condition | None:
    if isinstance(given, str):
        return _compare_marker(marker, sign, given) if '"' not in given else None
    if sign != "==" or not isinstance(given, list | tuple | set):
        return None
    if not all(isinstance(item, str) for item in given):
        return None
    return _join_conditions("or", [_compare_marker(marker, "==", item) for item in sorted(given)])


def _major_version(sign: str, major: int) -> Condition:
    lower = _compare_marker("python_version", ">=", str(major))
    upper = _compare_marker("python_version", "<", str(major + 1))
    equal = lower.both(upper)
    found = {"<": lower.negated(), "<=": upper, ">": upper.negated(), ">=": lower, "==": equal}
    return found.get(sign, equal.negated())


def _version_condition(sign: str, given: object, *, exact: bool) -> Condition | None:
    """Compare sys.version_info, of which ``exact`` takes the first two numbers, with a tuple."""
    if not isinstance(given, tuple) or not given:
        return None
    if not all(isinstance(part, int) for part in given[:3]):
        return None
    if len(given) > 2:
        return _compare_marker("python_full_version", sign, join_numbers(given[:3]))
    # (3, 8) lies before every 3.8.x, whose tuples are longer
    whole = {"<=": "<", ">": ">="}.get(sign, sign)
    if len(given) == 1:
        return _major_version(whole, given[0])
    return _compare_marker("python_version", sign if exact else whole, join_numbers(given))
