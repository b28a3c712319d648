"""What makes code hard to read is counted, and may not grow: CONTRIBUTING.md says what each figure means."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TypeGuard

import pytest

PACKAGE = Path(__file__).parents[1] / "envbuild"
SOURCES = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
COMPOUND = (*COMPREHENSIONS, ast.IfExp, ast.Lambda, ast.BoolOp, ast.NamedExpr)
SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Raise, ast.Assert)


@functools.cache  # not when this is imported: every worker of a suite does that
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(text) for path, text in SOURCES.items()}


@functools.cache
def nodes() -> list[ast.AST]:
    return list(chain.from_iterable(map(ast.walk, trees().values())))


def functions() -> Iterator[ast.FunctionDef]:
    return (node for node in nodes() if isinstance(node, ast.FunctionDef))


def nested_ternaries() -> int:
    """Count conditional expressions that hold another one."""
    found = [node for node in nodes() if isinstance(node, ast.IfExp)]
    return sum(any(isinstance(child, ast.IfExp) for child in _below(node)) for node in found)


def double_comprehensions() -> int:
    """Count comprehensions with two ``for``."""
    return sum(isinstance(node, COMPREHENSIONS) and len(node.generators) > 1 for node in nodes())


def knotted_statements() -> int:
    """Count statements with three or more comprehensions, conditions, lambdas, and/or."""
    simple = [node for node in nodes() if isinstance(node, SIMPLE)]
    return sum(sum(isinstance(child, COMPOUND) for child in ast.walk(node)) >= 3 for node in simple)


def many_parameters() -> int:
    """Count functions with seven parameters or more."""
    return sum(len(_parameters(node)) >= 7 for node in functions())


def one_word_names() -> int:
    """Return the percentage of functions whose name is one word."""
    names = [node.name.strip("_") for node in functions()]
    return 100 * sum("_" not in name for name in names) // len(names)


def shared_class_names() -> int:
    """Count classes that have the name of another one."""
    names = Counter(node.name for node in nodes() if isinstance(node, ast.ClassDef))
    return sum(count for count in names.values() if count > 1)


def late_imports() -> int:
    """Count imports inside functions."""
    imports = (ast.Import, ast.ImportFrom)
    return sum(isinstance(child, imports) for node in functions() for child in _below(node))


def wide_lines() -> int:
    """Count lines of more than 100 columns."""
    lines = chain.from_iterable(text.splitlines() for text in SOURCES.values())
    return sum(len(line) > 100 for line in lines)


def expressions_per_line() -> float:
    """Return the expression nodes per line of code."""
    return sum(isinstance(node, ast.expr) for node in nodes()) / code_lines()


@functools.cache
def code_lines() -> int:
    """Count lines that are neither blank, nor a comment, nor part of a docstring."""
    return sum(map(_code_lines_of, SOURCES))


def _code_lines_of(path: Path) -> int:
    lines = SOURCES[path].splitlines()
    code = {
        number
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    documented = filter(ast.get_docstring, filter(_may_have_docstring, ast.walk(trees()[path])))
    for node in documented:
        docstring = node.body[0]
        code -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(code)


def _may_have_docstring(node: ast.AST) -> TypeGuard[ast.Module | ast.ClassDef | ast.FunctionDef]:
    return isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    return (child for child in ast.walk(node) if child is not node)


def _parameters(node: ast.FunctionDef) -> list[ast.arg]:
    given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return [argument for argument in given if argument.arg not in ("self", "cls")]


LIMITS: list[tuple[Callable[[], float], float]] = [
    (nested_ternaries, 0),
    (double_comprehensions, 4),
    (knotted_statements, 7),
    (many_parameters, 6),  # all of them click's commands: a parameter an option
    (one_word_names, 23),
    (shared_class_names, 6),
    (late_imports, 90),
    (wide_lines, 469),
    # programs in strings are files now, and what schedulers can do and packages say is data: their
    # lines, which had few expressions, count no more
    (expressions_per_line, 4.476),
    (code_lines, 61_216),
]
"""What was reached; a limit only goes down."""


@pytest.mark.parametrize(
    ("figure", "limit"), LIMITS, ids=lambda value: getattr(value, "__name__", "")
)
def test_it_does_not_grow(figure: Callable[[], float], limit: float) -> None:
    assert figure() <= limit
