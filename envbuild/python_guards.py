"""Find the parts of Python code that a condition or a handler guards."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from envbuild.python_code import parse_code

LEAVING = (
    ast.Return,
    ast.Raise,
    ast.Continue,
    ast.Break,
)
HARMLESS = re.compile(
    r"(?:EOF|FileExists|FileNotFound|IO|Index|Key|OS|Permission|UnicodeDecode|ZeroDivision)Error"
    r"|KeyboardInterrupt|StopIteration"
)
"""Errors that no name raises that is gone, and no call that does not fit."""
SUPPRESSING = re.compile(r"suppress|raises|assert|catch|warn", re.IGNORECASE)
RELEASE = re.compile(
    r"version|hasattr|getattr|avail|platform|find_spec|\bHAS|compat|legacy|\bPY[23]",
    re.IGNORECASE,
)
"""Conditions that ask which release of something is there."""
HAS_GPU = "is_available"
"""The name of a condition that asks for a GPU, not for a release: torch.cuda.is_available()."""


def find_guarded(tree: ast.AST) -> set[ast.AST]:
    """Return the parts of a file that may not run, or whose failure is caught.

    What stands below ``if __name__ == "__main__"`` runs, and so does a condition itself.
    """
    guarded: set[ast.AST] = set()
    for node in ast.walk(tree):
        if node not in guarded:
            for part in (*_optional_parts(node), *_forgiven_parts(node)):
                guarded.update(ast.walk(part))
    return guarded


def blank_guarded(text: str) -> str:
    """Return code without the lines that expect another release, and without its strings.

    Lines keep their numbers.  Code that cannot be parsed comes back as it is.
    """
    tree = parse_code(text)
    if tree is None:
        return text
    lines = text.split("\n")
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str()):
                _blank_string(lines, node)
        for part in _forgiven_parts(node):
            _blank_lines(lines, part)
    return "\n".join(lines)


def is_main(test: ast.expr) -> bool:
    """Tell whether a condition asks if the file is the program."""
    match test:
        case ast.Compare(left=ast.Name(id="__name__"), comparators=[ast.Constant("__main__")]):
            return isinstance(test.ops[0], ast.Eq)
    return False


def _optional_parts(node: ast.AST) -> Iterable[ast.AST]:
    """Return the parts of a node that it may leave out."""
    match node:
        case ast.If(test=test, body=body, orelse=other):
            return other if is_main(test) else [*body, *other]
        case ast.IfExp(body=value, orelse=alternative):
            return [value, alternative]
        case ast.BoolOp(values=[_, *later]) | ast.Match(cases=later):
            return later
    return ()


def _forgiven_parts(node: ast.AST) -> Iterable[ast.AST]:
    """Return the parts of a node whose failure it catches, or that some releases alone reach."""
    match node:
        case ast.If(test=test, body=body, orelse=other) if _asks_release(test):
            return [*body, *other]
        case ast.Try(body=body, handlers=handlers, orelse=other):
            caught = [*body, *other] if any(map(_hides, handlers)) else []
            return [*handlers, *caught]
        case ast.With(items=items, body=body):
            suppresses = any(_mentions(item.context_expr, SUPPRESSING) for item in items)
            return body if suppresses else _after_release(body)
        case ast.Module(body=body) | ast.FunctionDef(body=body) | ast.For(body=body):
            return _after_release(body)
    return ()


def _blank_lines(lines: list[str], part: ast.AST) -> None:
    """Empty the lines of a statement, a handler or a string."""
    if isinstance(part, ast.stmt | ast.expr | ast.ExceptHandler) and part.end_lineno is not None:
        for number in range(part.lineno - 1, part.end_lineno):
            lines[number] = ""


def _blank_string(lines: list[str], node: ast.Constant) -> None:
    """Replace a string by spaces; of one over several lines, all its lines are emptied."""
    if node.end_lineno != node.lineno:
        _blank_lines(lines, node)
        return
    # columns count bytes of UTF-8
    line = lines[node.lineno - 1].encode()
    before, after = line[: node.col_offset], line[node.end_col_offset :]
    blank = b" " * (len(line) - len(before) - len(after))
    lines[node.lineno - 1] = (before + blank + after).decode()


def _asks_release(test: ast.expr) -> bool:
    """Tell whether a condition asks which release of something is there."""
    return any(RELEASE.search(name) for name in _names_in(test) if name != HAS_GPU)


def _mentions(node: ast.AST, words: re.Pattern[str]) -> bool:
    """Tell whether any name in an expression has one of some words in it."""
    return any(map(words.search, _names_in(node)))


def _names_in(node: ast.AST) -> list[str]:
    """Return the names and attributes of an expression."""
    return [getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(node)]


def _hides(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler may get the error of a name that is gone, and goes on."""
    caught = [node for node in ast.walk(handler.type or handler) if isinstance(node, ast.Name)]
    if handler.type and all(HARMLESS.fullmatch(node.id) for node in caught):
        return False
    *before, last = handler.body
    match last:
        case ast.Raise() | ast.Expr(ast.Call(ast.Name(id="exit") | ast.Attribute(attr="exit"))):
            return not all(isinstance(one, ast.Expr) for one in before)
    return True


def _after_release(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return what comes after a return, or the like, that only some releases reach."""
    for number, node in enumerate(body):
        match node:
            case ast.If(test=test, body=[*_, last]) if isinstance(last, LEAVING):
                if _mentions(test, RELEASE):
                    return body[number + 1 :]
    return []
