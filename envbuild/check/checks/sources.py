"""The project's own Python: lines that prove nothing about the GPU or hide it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from envbuild.data.package_tables import load_imported_modules
from envbuild.data.tables import load_entry_points
from envbuild.errors import UsageError
from envbuild.limits import LONG_LINE
from envbuild.names import Texts
from envbuild.project.code.imports import source_text
from envbuild.project.tree import scan_project

PROBES = {
    "is_gpu_available": ("test",),
    "gpu_device_name": ("test",),
    "is_built_with_cuda": ("test",),
    "is_available": ("cuda",),
    "device_count": ("cuda",),
    "list_physical_devices": ("config", "experimental"),
}
"""Functions people ask for a GPU, and the name before each (tf.test, torch.cuda, tf.config)."""
VARIABLE = "CUDA_VISIBLE_DEVICES"
CHOICE = re.compile(
    rf"""[\w.]*\benviron\[["']{VARIABLE}["']\] = ["']"""
    rf"""|[\w.]*\bputenv\(["']{VARIABLE}["'], ["']"""
    rf"""|[\w.]*\benviron\.update\(.*\b{VARIABLE}["']?[:=]\s*["']"""
)
"""A statement, written in one line, that sets the variable to a text."""
ASKING = (ast.If, ast.While, ast.IfExp, ast.Assert, ast.UnaryOp, ast.BoolOp, ast.FormattedValue)
PRINTED = ("print", "bool", "str")
INDUCTOR = re.compile(
    r"^[^#\n]*\btorch\.compile\b|^[ \t]*(?:import|from) triton\b"
    r"|\bfrom torch import .{0,200}\bcompile\b",
    re.MULTILINE,
)
"""What makes Triton or Inductor build code, with a compiler of the image, when the program runs."""
COMPILES = re.compile(r"\b(?:jit_compile|experimental_compile)\s*=\s*True|\bimport jax\b")
MOST_FILES = 2000


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a file; ``path`` is relative to the project.

    ``kind`` is "uncalled", "chosen", or "hides" (of a whole file).
    """

    path: str
    line: int
    kind: str
    text: str


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """How many files there are, which are no Python, and whether any compiles for the GPU.

    ``inductor`` tells that torch.compile or Triton is used, which need a compiler in the image;
    ``written`` are the expressions of entry_points.toml that a file has, with their groups there.
    """

    files: int
    unread: Texts
    suspects: tuple[Suspect, ...]
    compiles: bool = False
    inductor: bool = False
    written: Mapping[str, Texts] = {}


def survey_project(project: Path) -> Survey:
    """Look through the scripts and notebooks below a folder.

    Hidden folders and environments are left out.
    """
    unread, suspects, files, compiles, inductor = [], [], 0, False, False
    patterns = {entry.written for entry in load_entry_points().entry if entry.written}
    written: dict[str, Texts] = {}
    found = find_sources(project)
    for path in found:
        name = path.relative_to(project).as_posix()
        files += 1
        code = source_text(path, [], name)
        if code is None:
            unread.append(name)
            continue
        try:
            inductor = inductor or INDUCTOR.search(code) is not None
            compiles = compiles or inductor or COMPILES.search(code) is not None
            for one in patterns:
                for match in re.finditer(one, LONG_LINE.sub("", code)):
                    written[one] = (*written.get(one, ()), match[match.lastindex or 0])
            suspects += look_through(code, name)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            # Python 2, a template: not ours to judge
            unread.append(name)
    suspects += _hiding(project, found)
    return Survey(
        files=files,
        unread=tuple(unread),
        suspects=tuple(suspects),
        compiles=compiles,
        inductor=inductor,
        written=written,
    )


def _hiding(project: Path, paths: list[Path]) -> list[Suspect]:
    """Find files beside scripts that Python takes for a module of the same name.

    The script's folder comes first.
    """
    beside = [path for path in paths if path.parent == project]
    if len(beside) < 2 or any(path.name == "__init__.py" for path in beside):
        return []
    hidden = load_imported_modules().names
    names = [path.name for path in beside if path.suffix == ".py" and path.stem in hidden]
    return [
        Suspect(path=name, line=1, kind="hides", text=name.removesuffix(".py")) for name in names
    ]


def find_sources(project: Path) -> list[Path]:
    """Return the Python files and notebooks of a project, by name; at most MOST_FILES."""
    try:
        tree = scan_project(project)
    except UsageError:
        return []
    return [project / path for path in sorted((*tree.code, *tree.notebooks))[:MOST_FILES]]


def look_through(text: str, name: str) -> list[Suspect]:
    """Find the lines of one script.  Raises SyntaxError or ValueError for what is no Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes of a stranger's strings
        tree = ast.parse(text)
    found = [
        (node.lineno, "uncalled", ast.unparse(node)) for node in _asked(tree) if _is_probe(node)
    ]
    nodes = ast.walk(tree) if VARIABLE in text else ()
    statements = [node for node in nodes if isinstance(node, (ast.Assign, ast.Expr))]
    lines = [(node.lineno, ast.unparse(node)) for node in statements]
    found += [(line, "chosen", shown[:100]) for line, shown in lines if CHOICE.match(shown)]
    return [
        Suspect(path=name, line=line, kind=kind, text=shown)
        for line, kind, shown in sorted(set(found))
    ]


def _asked(tree: ast.AST) -> Iterator[ast.expr]:
    """Return expressions whose value is printed or decides something."""
    for node in ast.walk(tree):
        printed = isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTED
        if printed or isinstance(node, ASKING):
            yield from (one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))


def _is_probe(node: ast.expr) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr not in PROBES:
        return False
    match node.value:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in PROBES[node.attr]
        case _:
            return False
