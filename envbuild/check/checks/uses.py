"""What a project's own source imports: modules, and the names that it takes from them.

A package may import its parts only when they are asked for (transformers does), so that importing
the package proves little.  What stands below ``try``, or for type checkers only, is optional and
left out; tests are not looked through.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from envbuild.check.checks.sources import find_sources, join_cells

TESTS = {"tests", "test", "testing", "conftest.py", "docs", "examples"}
MOST_USES = 400
"""Modules that are tried at most; those of the first files."""


def find_uses(project: Path) -> dict[str, tuple[str, ...]]:
    """Return by module the names that a project's scripts and notebooks take from it.

    A file that cannot be read as Python is left out, and so is what the project itself holds.
    """
    found: dict[str, dict[str, None]] = {}
    for path in find_sources(project):
        if TESTS & set(path.relative_to(project).parts):
            continue
        try:
            text = path.read_text("utf-8", "replace")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes of a stranger's strings
                tree = ast.parse(join_cells(text) if path.suffix == ".ipynb" else text)
        except (OSError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            continue
        for module, names in _imports(tree):
            if _is_own(module, (project, path.parent)):
                continue
            if module in found or len(found) < MOST_USES:
                found.setdefault(module, {}).update(dict.fromkeys(names))
    return {module: tuple(names) for module, names in found.items()}


def _is_own(module: str, folders: Iterable[Path]) -> bool:
    """Tell whether a module is one of the project's own, which no package of the image brings."""
    top = module.partition(".")[0]
    return any(
        (folder / f"{top}.py").is_file() or any((folder / top).glob("*.py")) for folder in folders
    )


def _imports(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield modules and names that are imported without a condition, in functions as well."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module, tuple(alias.name for alias in node.names if alias.name != "*")
        elif not isinstance(node, (ast.Try, ast.If)):
            waiting += ast.iter_child_nodes(node)
