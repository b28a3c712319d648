"""Find the names that a project's own code takes from packages, and which each of its runs needs.

A package may import its parts only when they are asked for (transformers does), so that importing
the package proves little.  What stands below ``try``, or for type checkers only, is optional and
left out (reads.py); tests are not looked through.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from envbuild.base.suggest import framework_name
from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.project.code.imports import modules_of_lines, source_text
from envbuild.project.code.reach import loaded_by_programs
from envbuild.project.code.reads import (
    PATCHED,
    Name,
    name_modules,
    read_names,
)
from envbuild.project.tree import ProjectTree, scan_project
from envbuild.python_code import parse_code
from envbuild.python_guards import find_guarded, is_main
from envbuild.records import frozen_record
from envbuild.store.units import as_printable

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
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
ARGUMENTS = re.compile(r"\([^()]*\)")
"""What a name has behind a part that is called."""


@frozen_record
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
                names_read = read_names(part, name_modules(source.tree))
                _note(names_read, shown, read, taken_here)
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
    module, attribute = name[0], ARGUMENTS.sub("", name[1])
    ways = {
        ARGUMENTS.sub("", one.removeprefix(PATCHED)) for holder, one in patched if holder == module
    }
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
    imported = {path: frozenset(modules_of_lines(text)) for path, text in texts.items()}
    runs = loaded_by_programs(tree, imported)
    read = {path: parse_code(text) for path, text in texts.items()}
    parsed = {path: one for path, one in read.items() if one is not None}
    loaded = {name.rpartition(".")[2] for name in chain.from_iterable(imported.values())}
    for path, one in parsed.items():
        if path.stem in loaded:
            one.body = [node for node in one.body if not _is_program(node)]
    mentioned = set(chain.from_iterable(map(_mentioned, parsed.values())))
    sources = [
        _Source(path=path, tree=one, live=_without_uncalled(one, mentioned))
        for path, one in parsed.items()
    ]
    return sources, runs


def _is_program(node: ast.stmt) -> bool:
    """Tell whether a statement runs only where its file is the program."""
    return isinstance(node, ast.If) and is_main(node.test)


def _mentioned(tree: ast.Module) -> Iterator[str]:
    """Yield every word of a file but the names that its functions and classes are given."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word):
                yield word
            case ast.Constant(value=str(text)) if len(text) < 200:
                yield from IDENTIFIER.findall(text)


def _without_uncalled(tree: ast.Module, mentioned: set[str]) -> ast.Module:
    """Leave out functions that nothing names and nothing decorates, and methods of such classes.

    What else stands in a class runs as soon as its file is loaded.
    """
    body: list[ast.stmt] = []
    for node in tree.body:
        if _may_run(node, mentioned):
            body.append(node)
        elif isinstance(node, ast.ClassDef):
            bare = copy(node)
            bare.body = [one for one in node.body if not isinstance(one, FUNCTIONS)]
            body.append(bare)
    return ast.Module(body=body, type_ignores=[])


def _may_run(node: ast.stmt, mentioned: set[str]) -> bool:
    """Tell whether a statement is no function or class, or one that something names."""
    if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return True
    return bool(node.decorator_list) or node.name in mentioned or node.name == "main"


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
    """Yield modules and names that are imported without a guard, in functions as well."""
    guarded = find_guarded(tree)
    for node in ast.walk(tree):
        if node in guarded:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module, ""
            yield from ((node.module, alias.name) for alias in node.names if alias.name != "*")
