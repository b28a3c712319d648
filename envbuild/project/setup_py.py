"""Read setup.py without running it: literals, names of literals, sums, and lists read from a requirements file."""

from __future__ import annotations

import ast
from pathlib import Path

from envbuild.project.declared import gathered
from envbuild.project.model import Saying
from envbuild.project.names import canonical
from envbuild.project.requirements import read_requirements
from envbuild.project.tree import is_inside, read_text, shown

LONG_LIST = 5
"""Requirements from which on a setup.py's list is taken for whole."""


class _Unknown(Exception):  # noqa: N818  (a way out of the walk, not an error)
    """A value that only running the file would tell."""


def read_setup_py(path: Path, root: Path) -> Saying | None:
    """Read install_requires and python_requires from a setup.py's text; None where it calls no setup().

    Nothing in it is run.  What cannot be told from the text alone is noted.
    """
    file = shown(path, root)
    try:
        tree = ast.parse(read_text(path) or "")
    except (SyntaxError, ValueError, RecursionError):
        return Saying(file=file, notes=(f"{file} is not read: no Python 3",))
    call = next((node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "setup"), None)
    if call is None:
        return None
    names = _assigned(tree)
    values = {word.arg: word.value for word in call.keywords if word.arg}
    lines: list[object] = []
    notes: list[str] = []
    if "install_requires" in values:
        try:
            value = _value(values["install_requires"], names)
            lines = value if isinstance(value, list) else [*str(value).splitlines()]
        except _Unknown:
            return _from_file(path, root, file, tree, values)
    python = _python(values, names)
    if "python_requires" in values and python is None:
        notes.append(f"{file}: python_requires is computed, so it is not known")
    needs, aside = gathered(lines, file)
    if not needs and not aside and python is None and not notes:
        return None
    named = values.get("name")
    return Saying(
        file=file,
        needs=needs,
        aside=aside,
        python=python,
        notes=tuple(notes),
        project=canonical(named.value) if isinstance(named, ast.Constant) and isinstance(named.value, str) else None,
        complete=len(needs) >= LONG_LIST,
    )


def _from_file(path: Path, root: Path, file: str, tree: ast.Module, values: dict[str, ast.expr]) -> Saying:
    """Take the requirements file whose name stands in what a setup.py computes its list from."""
    for name in _files_named(values["install_requires"], tree):
        other = path.parent / name.lstrip("/")
        if other.is_file() and is_inside(other, root):
            found = read_requirements(other, root)
            note = f"{file} computes its requirements; they are taken from {found.file}, which it names"
            return Saying(
                file=file,
                needs=found.needs,
                aside=found.aside,
                notes=(*found.notes, note),
                python=_python(values, _assigned(tree)),
                frozen=found.frozen,
                cuda=found.cuda,
                complete=len(found.needs) >= LONG_LIST,
            )
    return Saying(
        file=file,
        python=_python(values, _assigned(tree)),
        notes=(f"{file} computes its requirements; it is not run, so they are not known",),
    )


def _files_named(value: ast.expr, tree: ast.Module) -> list[str]:
    """Return the names of lists in an expression, in what its names stand for, in the functions it calls; then any."""
    names = _assigned(tree)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found: list[str] = []
    todo: list[ast.AST] = [value]
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


def _python(values: dict[str, ast.expr], names: dict[str, ast.expr]) -> str | None:
    try:
        return str(_value(values["python_requires"], names)) if "python_requires" in values else None
    except _Unknown:
        return None


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


def _value(node: ast.expr, names: dict[str, ast.expr], depth: int = 0) -> str | list[object]:
    """Return a literal's value.  Raises _Unknown for everything that would have to be run."""
    if depth > 20:
        raise _Unknown
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        parts = [_value(item.value if isinstance(item, ast.Starred) else item, names, depth + 1) for item in node.elts]
        return [line for part in parts for line in (part if isinstance(part, list) else [part])]
    if isinstance(node, ast.Name) and node.id in names:
        return _value(names[node.id], names, depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _value(node.left, names, depth + 1), _value(node.right, names, depth + 1)
        if isinstance(left, list) and isinstance(right, list):
            return left + right
        if isinstance(left, str) and isinstance(right, str):
            return left + right
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return _item(node, names, depth)
    raise _Unknown


def _item(node: ast.Subscript, names: dict[str, ast.expr], depth: int) -> str | list[object]:
    table = names.get(node.value.id) if isinstance(node.value, ast.Name) else None
    if isinstance(table, ast.Dict) and isinstance(node.slice, ast.Constant):
        for key, value in zip(table.keys, table.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == node.slice.value:
                return _value(value, names, depth + 1)
    raise _Unknown
