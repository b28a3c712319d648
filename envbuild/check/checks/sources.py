"""The project's own Python: lines that prove nothing about the GPU or hide it."""

from __future__ import annotations

import ast
import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import msgspec

from envbuild.data.tables import load_entry_points

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
INDUCTOR = re.compile(
    r"^[^#\n]*\btorch\.compile\b|^\s*(?:import|from) triton\b|\bfrom torch import .*\bcompile\b",
    re.MULTILINE,
)
"""What makes Triton or Inductor build code, with a compiler of the image, when the program runs."""
COMPILES = re.compile(r"\b(?:jit_compile|experimental_compile)\s*=\s*True|\bimport jax\b")
HIDDEN = {
    "abc",
    "argparse",
    "ast",
    "asyncio",
    "bisect",
    "collections",
    "contextlib",
    "copy",
    "csv",
    "ctypes",
    "cupy",
    "dataclasses",
    "datetime",
    "decimal",
    "email",
    "enum",
    "functools",
    "glob",
    "hashlib",
    "heapq",
    "http",
    "importlib",
    "inspect",
    "io",
    "jax",
    "json",
    "keyword",
    "linecache",
    "logging",
    "multiprocessing",
    "numbers",
    "numpy",
    "operator",
    "pathlib",
    "pickle",
    "platform",
    "queue",
    "random",
    "re",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "statistics",
    "string",
    "struct",
    "subprocess",
    "tempfile",
    "tensorflow",
    "textwrap",
    "threading",
    "token",
    "tokenize",
    "torch",
    "traceback",
    "types",
    "typing",
    "urllib",
    "uuid",
    "warnings",
    "weakref",
    "xml",
    "zipfile",
}
"""Modules that frameworks are, or import while they are imported.

A code.py, test.py or site.py hurts nobody.
"""
SKIPPED = {"node_modules", "site-packages", "dist-packages", "__pycache__", "build", "dist"}
MOST_FILES = 2000
MOST_NAMES = 200_000
"""Names that are listed at most: a folder of data is no reason to wait."""
BIGGEST = 1 << 20


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
    ``written`` are the expressions of entry_points.toml that a file has.
    """

    files: int
    unread: tuple[str, ...]
    suspects: tuple[Suspect, ...]
    compiles: bool = False
    inductor: bool = False
    written: tuple[str, ...] = ()


def survey_project(project: Path) -> Survey:
    """Look through the scripts and notebooks below a folder.

    Hidden folders and environments are left out.
    """
    unread, suspects, files, compiles, inductor = [], [], 0, False, False
    patterns = {entry.written for entry in load_entry_points().entry if entry.written}
    written: set[str] = set()
    found = list(find_sources(project))
    for path in found:
        name = path.relative_to(project).as_posix()
        files += 1
        try:
            text = path.read_text("utf-8", "replace")
            code = join_cells(text) if path.suffix == ".ipynb" else text
            inductor = inductor or INDUCTOR.search(code) is not None
            compiles = compiles or inductor or COMPILES.search(text) is not None
            written |= {one for one in patterns if re.search(one, code)}
            suspects += look_through(code, name)
        except (OSError, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            # Python 2, a template, a file that is no notebook: not ours to judge
            unread.append(name)
    suspects += _hiding(project, found)
    return Survey(
        files=files,
        unread=tuple(unread),
        suspects=tuple(suspects),
        compiles=compiles,
        inductor=inductor,
        written=tuple(sorted(written)),
    )


def _hiding(project: Path, paths: list[Path]) -> list[Suspect]:
    """Find files beside scripts that Python takes for a module of the same name.

    The script's folder comes first.
    """
    beside = [path for path in paths if path.parent == project]
    if len(beside) < 2 or any(path.name == "__init__.py" for path in beside):
        return []
    names = [path.name for path in beside if path.suffix == ".py" and path.stem in HIDDEN]
    return [
        Suspect(path=name, line=1, kind="hides", text=name.removesuffix(".py")) for name in names
    ]


def find_sources(project: Path) -> Iterator[Path]:
    """Return the Python files and notebooks of a project, sorted by folder; at most MOST_FILES."""
    count = listed = 0
    for folder, folders, names in os.walk(project):
        listed += len(folders) + len(names)
        if listed > MOST_NAMES:
            return
        here = Path(folder)
        folders[:] = sorted(
            name
            for name in folders
            if name not in SKIPPED and name[0] != "." and not _is_environment(here / name)
        )
        for name in sorted(names):
            path = here / name
            if (
                path.suffix in (".py", ".ipynb")
                and path.is_file()
                and path.stat().st_size <= BIGGEST
            ):
                count += 1
                if count > MOST_FILES:
                    return
                yield path


def _is_environment(folder: Path) -> bool:
    return (
        (folder / "pyvenv.cfg").exists()
        or (folder / "conda-meta").exists()
        or (folder / ".singularity.d").exists()
    )


def join_cells(text: str) -> str:
    """Return a notebook's code as one text; lines for IPython and the shell become empty.

    Raises ValueError or
    TypeError for what is no notebook.
    """
    notebook = json.loads(text)
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells", []), list):
        raise TypeError("no notebook")
    lines: list[str] = []
    for cell in notebook.get("cells", []):
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source", "")
            source = "".join(map(str, source)) if isinstance(source, list) else str(source)
            lines += [
                "" if line.lstrip()[:1] in ("%", "!", "?") else line for line in source.splitlines()
            ]
    return "\n".join(lines)


def look_through(text: str, name: str) -> list[Suspect]:
    """Find the lines of one script.  Raises SyntaxError or ValueError for what is no Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes of a stranger's strings
        tree = ast.parse(text)
    lines = text.splitlines()
    found = [
        (node.lineno, "uncalled", ast.unparse(node)) for node in _asked(tree) if _is_probe(node)
    ]
    found += [
        (node.lineno, "chosen", lines[node.lineno - 1].strip()[:100]) for node in _choices(tree)
    ]
    return [
        Suspect(path=name, line=line, kind=kind, text=shown)
        for line, kind, shown in sorted(set(found))
    ]


def _asked(tree: ast.AST) -> Iterator[ast.expr]:
    """Return expressions whose value is printed or decides something."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("print", "bool", "str")
        ):
            yield from node.args
        elif isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            yield node.test
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand
        elif isinstance(node, ast.BoolOp):
            yield from node.values
        elif isinstance(node, ast.FormattedValue):
            yield node.value


def _is_probe(node: ast.expr) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr not in PROBES:
        return False
    match node.value:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in PROBES[node.attr]
        case _:
            return False


def _choices(tree: ast.AST) -> Iterator[ast.stmt | ast.expr]:
    """Return places that set the variable to a text: os.environ[…] = "0", .update or putenv."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and _is_text(node.value)
            and any(map(_is_variable, node.targets))
        ):
            yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            texts = [item.value for item in node.args if isinstance(item, ast.Constant)]
            if node.func.attr == "putenv" and len(texts) == 2 and texts[0] == VARIABLE:
                yield node
            if (
                node.func.attr == "update"
                and "environ" in ast.unparse(node.func.value)
                and _in_update(node)
            ):
                yield node


def _in_update(node: ast.Call) -> bool:
    if any(word.arg == VARIABLE and _is_text(word.value) for word in node.keywords):
        return True
    pairs: list[tuple[ast.expr | None, ast.expr]] = []
    for item in node.args:
        if isinstance(item, ast.Dict):
            pairs += zip(item.keys, item.values, strict=True)
    return any(_is_variable_name(key) and _is_text(value) for key, value in pairs)


def _is_variable_name(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == VARIABLE


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_variable(target: ast.expr) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and _is_variable_name(target.slice)
        and ast.unparse(target.value).endswith("environ")
    )
