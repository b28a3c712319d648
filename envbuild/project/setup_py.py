"""Read setup.py without running it: what its text hands to setup(), and lists read from a requirements file."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from envbuild.project.declared import gathered
from envbuild.project.model import Saying
from envbuild.project.names import canonical
from envbuild.project.requirements import read_requirements
from envbuild.project.tree import is_inside, read_text, shown
from envbuild.resolve.computed import read_setup
from envbuild.resolve.handed import Handed, Text

LONG_LIST = 5
"""Requirements from which on a setup.py's list is taken for whole."""


def read_setup_py(path: Path, root: Path) -> Saying | None:
    """Read install_requires and python_requires from a setup.py's text; None where it calls no setup().

    Nothing in it is run.  What cannot be told from the text alone is noted.
    """
    file = shown(path, root)
    try:
        text = read_text(path) or ""
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return Saying(file=file, notes=(f"{file} is not read: no Python 3",))
    call = next((node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "setup"), None)
    if call is None:
        return None
    handed = read_setup(text, {}) or Handed(keywords=dict.fromkeys(("install_requires", "python_requires")))
    lines = handed.lines("install_requires")
    if lines is None:
        return _from_file(path, root, _files_named(call, tree), _text(handed, "python_requires"))
    python = _text(handed, "python_requires")
    computed = "python_requires" in handed.keywords and python is None
    notes = (f"{file}: python_requires is computed, so it is not known",) if computed else ()
    needs, aside = gathered(lines, file)
    if not needs and not aside and python is None and not notes:
        return None
    return Saying(
        file=file,
        needs=needs,
        aside=aside,
        python=python,
        notes=notes,
        project=canonical(_text(handed, "name") or "") or None,
        complete=len(needs) >= LONG_LIST,
    )


def _text(handed: Handed, keyword: str) -> str | None:
    value = handed.keywords.get(keyword)
    return value.text if isinstance(value, Text) else None


def _from_file(path: Path, root: Path, named: Iterable[str], python: str | None) -> Saying:
    """Take the requirements file whose name stands in what a setup.py computes its list from."""
    file = shown(path, root)
    for name in named:
        other = path.parent / name.lstrip("/")
        if other.is_file() and is_inside(other, root):
            found = read_requirements(other, root)
            note = f"{file} computes its requirements; they are taken from {found.file}, which it names"
            return Saying(
                file=file,
                needs=found.needs,
                aside=found.aside,
                notes=(*found.notes, note),
                python=python,
                frozen=found.frozen,
                cuda=found.cuda,
                complete=len(found.needs) >= LONG_LIST,
            )
    return Saying(
        file=file,
        python=python,
        notes=(f"{file} computes its requirements; it is not run, so they are not known",),
    )


def _files_named(call: ast.Call, tree: ast.Module) -> list[str]:
    """Return the names of lists in install_requires, in what its names stand for, in what it calls; then any."""
    names = _assigned(tree)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found: list[str] = []
    todo: list[ast.AST] = [word.value for word in call.keywords if word.arg == "install_requires"]
    seen: set[str] = set()
    while todo:
        for node in ast.walk(todo.pop(0)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_list(node.value):
                found.append(node.value)
            elif isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                todo += [one for one in (names.get(node.id), functions.get(node.id)) if one is not None]
    every = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    plain = sorted((text for text in every if _is_list(text)), key=lambda text: (len(text), text))
    return [*dict.fromkeys((*found, *plain))]


def _is_list(text: str) -> bool:
    return text.endswith((".txt", ".in")) and "require" in text and "\n" not in text


def _name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Map names to what is assigned to them at the top of the file, once."""
    found: dict[str, ast.expr] = {}
    twice: set[str] = set()
    for node in ast.walk(tree):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name):
                if target.id in found:
                    twice.add(target.id)
                if isinstance(node, ast.Assign | ast.AugAssign):
                    found[target.id] = node.value
    return {name: value for name, value in found.items() if name not in twice}
