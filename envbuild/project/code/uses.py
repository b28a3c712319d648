"""Find the names that a project's own code takes from packages, and which each of its runs needs.

A package may import its parts only when they are asked for (transformers does), so that importing
the package proves little.  What stands below ``try``, or for type checkers only, is optional and
left out; tests are not looked through.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from envbuild.base.suggest import framework_name
from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.project.code.imports import modules_of_lines, source_text
from envbuild.project.code.reach import loaded_by_programs
from envbuild.project.tree import ProjectTree, scan_project
from envbuild.python_code import parse_code
from envbuild.store.units import as_printable

CONDITIONAL = (
    ast.Try,
    ast.If,
    ast.Match,
)
TESTS = {
    "tests",
    "test",
    "testing",
    "conftest.py",
    "docs",
    "examples",
}
MOST_FILES = 2000
MOST_USES = 400
"""Modules that are tried at most; those of the first files."""
PATCHED = "="
"""Begins a name that the project sets itself, or asks for; alone it stands for the whole module."""
CALL = "()"
"""Ends a name that the project calls."""
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

Name = tuple[str, str]
"""A module, and a name in it; "" for the module itself."""
NOTHING: Name = ("", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Uses:
    """What a project takes from the packages of others.

    ``names`` are those of each module, ``files`` where each is taken first; ``needed`` are what
    every run of the project takes: the rest may stand in a script that nobody starts.
    """

    names: Mapping[str, Texts] = field(default_factory=dict)
    files: Mapping[Name, str] = field(default_factory=dict)
    needed: frozenset[Name] = frozenset()


@dataclass
class _Source:
    """One file, taken apart; ``live`` leaves out functions that nothing in the project names."""

    path: Path
    tree: ast.Module
    live: ast.Module


def find_uses(project: Path, *, attributes: bool = False) -> Uses:
    """Return what a project's scripts and notebooks take from modules of others.

    A file that cannot be read as Python is left out, and so is what the project itself holds.
    With ``attributes``, "np.float" after "import numpy as np" takes float from numpy too.
    """
    try:
        tree = scan_project(project)
    except UsageError:
        return Uses()
    files: dict[Name, str] = {}
    read: dict[Name, str] = {}
    live: dict[Path, set[Name]] = {}
    sources, runs = _sources(tree)
    # what every run loads comes first: the first name that is gone is told
    for source in sorted(sources, key=lambda one: not all(one.path in run for run in runs)):
        shown = as_printable(source.path.as_posix())
        own = (project, project / source.path.parent)
        for part in (source.live, source.tree):
            taken_here: set[Name] = set()
            if part is source.live:
                live[source.path] = taken_here
            taken = [name for name in _taken(part) if not _is_own(name[0], own)]
            _note(taken, shown, files, taken_here)
            if attributes:
                known = _with_results(source.tree, _module_names(source.tree))
                _note(_attributes(part, known), shown, read, taken_here)
    modules = list(dict.fromkeys(module for module, _ in files))[:MOST_USES]
    patched = {name for name in read if name[1].startswith(PATCHED)}
    sure = {
        name
        for name in read.keys() - patched
        if name[0] in modules and not _is_patched(name, patched)
    }
    files |= {name: where for name, where in read.items() if name in sure and name not in files}
    needed = _taken_by_each(runs, live) & files.keys()
    names: dict[str, list[str]] = {module: [] for module in modules}
    for module, name in sorted(files, key=lambda one: one not in needed):
        if name and module in names:
            names[module].append(name)
    return Uses(
        names={module: tuple(taken) for module, taken in names.items()},
        files=files,
        needed=frozenset(needed),
    )


def _taken_by_each(runs: Iterable[Iterable[Path]], live: Mapping[Path, set[Name]]) -> set[Name]:
    """Return the names that each of some sets of files takes, in whichever of its files."""
    taken: list[set[Name]] = []
    for run in runs:
        of_run: set[Name] = set()
        for path in run:
            of_run |= live.get(path, set())
        taken.append(of_run)
    if not taken:
        return set()
    return taken[0].intersection(*taken)


def _is_patched(name: Name, patched: Iterable[Name]) -> bool:
    """Tell whether the project itself sets or asks for an attribute, or one that it is read of."""
    module, attribute = name[0], name[1].removesuffix(CALL)
    ways = {one.removeprefix(PATCHED) for holder, one in patched if holder == module}
    return any(not way or f"{attribute}.".startswith(f"{way}.") for way in ways)


def _note(names: Iterable[Name], where: str, files: dict[Name, str], taken: set[Name]) -> None:
    for name in names:
        files.setdefault(name, where)
        taken.add(name)


def _sources(tree: ProjectTree) -> tuple[list[_Source], tuple[frozenset[Path], ...]]:
    """Take the project's files apart, and tell which each program loads; Python 2 is left out."""
    texts: dict[Path, str] = {}
    for path in (*tree.code, *tree.notebooks)[:MOST_FILES]:
        text = None if TESTS & set(path.parts) else source_text(tree.root / path, [], "")
        if text is not None:
            texts[path] = text
    runs = loaded_by_programs(
        tree, {path: frozenset(modules_of_lines(text)) for path, text in texts.items()}
    )
    read = {path: parse_code(text) for path, text in texts.items()}
    parsed = {path: one for path, one in read.items() if one is not None}
    mentioned = set(chain.from_iterable(map(_mentioned, parsed.values())))
    sources = [
        _Source(path=path, tree=one, live=_without_uncalled(one, mentioned))
        for path, one in parsed.items()
    ]
    return sources, runs


def _mentioned(tree: ast.Module) -> Iterator[str]:
    """Yield every word of a file but the names that its functions and classes are given."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
                yield word
            case ast.Constant(value=str(text)) if len(text) < 200:
                yield from IDENTIFIER.findall(text)


def _without_uncalled(tree: ast.Module, mentioned: set[str]) -> ast.Module:
    """Leave out functions and classes that nothing names and nothing decorates."""
    body = [
        node
        for node in tree.body
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        or node.decorator_list
        or node.name in mentioned
        or node.name == "main"
    ]
    return ast.Module(body=body, type_ignores=[])


def _is_own(module: str, folders: Iterable[Path]) -> bool:
    """Tell whether a module is one of the project's own, which no package of the image brings."""
    top = module.partition(".")[0]
    # a folder jax/ of scripts does not hide JAX
    inside = "__init__.py" if framework_name(top, greater=True) else "*.py"
    try:
        return any(
            (folder / f"{top}.py").is_file() or any((folder / top).glob(inside))
            for folder in folders
        )
    except OSError:
        return False  # longer than a file's name may be


def _taken(tree: ast.Module) -> Iterator[Name]:
    """Yield modules and names that are imported without a condition, in functions as well."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module, ""
            yield from ((node.module, alias.name) for alias in node.names if alias.name != "*")
        elif not isinstance(node, CONDITIONAL):
            waiting += ast.iter_child_nodes(node)


def _attributes(tree: ast.Module, modules: Mapping[str, Name]) -> Iterator[Name]:
    """Yield modules and the attributes that are read of them without a condition.

    ``modules`` are the names that may stand for one. "np.random.rand" reads random.rand of numpy,
    and where it is called random.rand() as well.
    """
    optional: set[ast.AST] = set()
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, (*CONDITIONAL, ast.IfExp, ast.BoolOp, ast.With)):
            optional.update(ast.walk(node))
        elif isinstance(node, ast.Attribute):
            inner.add(node.value)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if node not in inner:
                module, name = _whole_name(node, modules)
                if isinstance(node.ctx, ast.Load) and node not in optional:
                    yield module, name
                elif not isinstance(node.ctx, ast.Load):
                    yield module, PATCHED + (name if "." in name else "")
            case ast.Call(func=ast.Name(id="hasattr" | "getattr" | "setattr"), args=[asked, *_]):
                module, name = _whole_name(asked, modules)
                yield module, PATCHED + name
            case ast.Call(func=function) if node not in optional:
                module, name = _whole_name(function, modules)
                yield module, name + CALL


def _with_results(tree: ast.Module, modules: Mapping[str, Name]) -> Mapping[str, Name]:
    """Add the names that are bound once, to what a call returns: "Kind()" of a module."""
    stored: list[str] = []
    results: dict[str, Name] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                stored.append(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=function)):
                module, called = _whole_name(function, modules)
                results[name] = (module, called + CALL)
    return {name: one for name, one in results.items() if stored.count(name) == 1} | {**modules}


def _whole_name(node: ast.expr, modules: Mapping[str, Name]) -> Name:
    """Return the module that attributes are read of, and these, joined; else NOTHING."""
    attributes: list[str] = []
    called = ""
    while isinstance(node, (ast.Attribute, ast.Call)):
        if isinstance(node, ast.Call):
            node, called = node.func, CALL
        else:
            attributes.insert(0, node.attr + called)
            node, called = node.value, ""
    if not isinstance(node, ast.Name) or node.id not in modules:
        return NOTHING
    module, part = modules[node.id]
    return module, ".".join(filter(None, (part + called, *attributes)))


def _module_names(tree: ast.Module) -> dict[str, Name]:
    """Return the names that stand for one module all through a file, or for a part of one.

    A name that the file binds to anything else is left out.
    """
    modules: dict[str, set[Name]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    top = alias.name.partition(".")[0]
                    whole = (alias.name if alias.asname else top, "")
                    modules.setdefault(alias.asname or top, set()).add(whole)
            case ast.ImportFrom(names=aliases, module=module, level=level):
                for alias in aliases:
                    whole = (module, alias.name) if module and not level else NOTHING
                    modules.setdefault(alias.asname or alias.name, set()).add(whole)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                modules.setdefault(name, set()).add(NOTHING)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                modules.setdefault(node.name, set()).add(NOTHING)
    certain = {name: min(found) for name, found in modules.items() if len(found) == 1}
    return {name: one for name, one in certain.items() if one != NOTHING}
