"""Find what the project's own code and notebooks import; nothing is run."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from envbuild.base.suggest import framework_name
from envbuild.data.package_tables import OldUse, load_names
from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.project.code.reach import (
    has_programs,
    is_started,
    loaded_by_programs,
    loaded_files,
    own_files,
)
from envbuild.project.model import ImportedModule
from envbuild.project.names import SHARED_FOLDERS, distribution_of, is_listed_module, is_standard
from envbuild.project.tree import ProjectTree, is_aside, read_text, scan_project
from envbuild.python_guards import blank_guarded
from envbuild.records import replace
from envbuild.store.units import as_printable

LINE = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\.*[A-Za-z_][\w.]*)([^\n]*)", re.MULTILINE)
MEASURED = re.compile(r"(?<!\s)(\s*%%(capture|time|timeit|prun|memit)\b[^\n]*(\n|$))+")
"""Magics over a cell that is Python all the same."""
DOTTED = ("mpl_toolkits", "azureml", *(folder.rstrip(".") for folder in SHARED_FOLDERS))
"""Modules that several distributions share: the parts below the first one tell which."""
ASKING = re.compile(r"TYPE_CHECKING|\bis_\w+_available\b|\bfind_spec\b")
"""What asks whether a package is there, or is never true when the code runs."""
DEEPEST_NAME = 3
"""Parts of such a name that may tell its distribution (google.cloud.storage)."""


def imported_modules(
    tree: ProjectTree, *, listed: bool = True
) -> tuple[tuple[ImportedModule, ...], Texts]:
    """Return the imported modules of others, sorted, and notes on files left out.

    What only files import that the project's own programs do not load, or notebooks beside
    code, is not certain; where nothing is ``listed``, every file of the project counts. What
    every program loads comes first. A file is taken apart only when it has a name that is not
    known yet, so that thousands of files take seconds.
    """
    notes: list[str] = []
    named: dict[Path, frozenset[str]] = {}
    for path in (*tree.code, *tree.notebooks):
        text = source_text(tree.root / path, notes, as_printable(path.as_posix())) or ""
        named[path] = frozenset((*modules_of_lines(text), *_asked_by(text)))
    own = loaded_files(tree, named) if listed else own_files(tree, named)
    if not _import_others(own, named, tree):
        # the programs start from files that are not there: all of the project's own code counts
        own = own_files(tree, named)
    shared = frozenset.intersection(*(loaded_by_programs(tree, named) or (own,)))
    found: dict[str, ImportedModule] = {}
    files: Counter[str] = Counter()
    for path in sorted(named, key=lambda path: (path not in own, path not in shared)):
        names = _deepest_names(top_module(name) for name in named[path] if name[0] != ".")
        files.update(names)
        new = _new_names(path, names, found, tree)
        if not new:
            continue
        where = as_printable(path.as_posix())
        text = source_text(tree.root / path, [], "") or ""
        at_top = _at_top(text, started=is_started(path, tree) or path.suffix == ".ipynb")
        for name in new:
            counts = path in own or _counts_in_notebook(path, name, tree, listed=listed)
            certain = counts and name in at_top
            if certain or name not in found:
                always = certain and path in shared
                found[name] = ImportedModule(
                    module=name, where=where, certain=certain, always=always
                )
    modules = [replace(found[name], files=files[name]) for name in sorted(found)]
    return tuple(modules), tuple(notes)


def _import_others(
    paths: Iterable[Path], named: Mapping[Path, frozenset[str]], tree: ProjectTree
) -> bool:
    """Whether any of these files imports a package of others."""
    names = chain.from_iterable(named[path] for path in paths)
    return any(not _is_own(name, tree) for name in names if name[0] != ".")


def _new_names(
    path: Path, names: set[str], found: Mapping[str, ImportedModule], tree: ProjectTree
) -> set[str]:
    """Return the modules of others in a file, without those that are certain already."""
    certain = {name for name, one in found.items() if one.certain}
    return {
        name
        for name in names - certain
        if not _is_own(name, tree) or _is_called_like(path, name, tree)
    }


def needed_modules(root: Path) -> dict[str, str]:
    """Return, by module of others, the file of a project that cannot run without it.

    What no index has (google.colab) is left out.  {} for a folder that cannot be read.
    """
    try:
        modules, _ = imported_modules(scan_project(root))
    except UsageError:
        return {}
    asked = load_names().asked
    return {
        one.module: one.where
        for one in modules
        if one.certain and distribution_of(one.module) != "" and one.module not in asked
    }


def file_written_for(tree: ProjectTree, kind: str) -> str | None:
    """Return the first file of a kind of code (names.toml, written), None without one."""
    pattern = re.compile(load_names().written[kind])
    for path in (*tree.code, *tree.notebooks):
        text = source_text(tree.root / path, [], "")
        if text and not is_aside(path) and pattern.match(text):
            return as_printable(path.as_posix())
    return None


def old_uses(tree: ProjectTree) -> dict[OldUse, str]:
    """Return what the code uses that newer releases have no more, with the first file of each."""
    found: dict[OldUse, str] = {}
    for path in (*tree.code, *tree.notebooks):
        text = None if is_aside(path) else source_text(tree.root / path, [], "")
        rows = [row for row in load_names().old if row not in found]
        for row in _rows_said(rows, text or ""):
            found[row] = as_printable(path.as_posix())
    return found


def _rows_said(rows: Iterable[OldUse], text: str) -> list[OldUse]:
    """Return the rows that a file's code says, and no handler or question of a release guards."""
    said = [row for row in rows if re.search(row.says, text)]
    unguarded = blank_guarded(text) if said else ""
    return [row for row in said if re.search(row.says, unguarded)]


def _counts_in_notebook(path: Path, name: str, tree: ProjectTree, *, listed: bool) -> bool:
    """Whether an import of a notebook counts.

    Of one beside programs it does where nothing is listed, but it does not tell the framework.
    """
    if path.suffix != ".ipynb":
        return False
    beside = not listed and not is_aside(path) and not framework_name(name, greater=True)
    return beside or _is_program(path, tree)


def _is_program(notebook: Path, tree: ProjectTree) -> bool:
    """Whether a notebook is a program of the project.

    It is where the project has no other one; at the root also where there is no list.
    """
    if len(notebook.parts) == 1 and not tree.lists:
        return True
    if has_programs(tree):
        return False
    return not is_aside(notebook) or all(map(is_aside, (*tree.code, *tree.notebooks)))


def modules_of_lines(text: str) -> Iterable[str]:
    """Yield the dotted modules that the lines of a file may import."""
    for match in LINE.finditer(text):
        yield from _named_modules(match)


def _named_modules(match: re.Match[str]) -> list[str]:
    """Return the dotted modules that a line may import; names after ``from`` may be such."""
    first, rest = match[1], match[2].split("#")[0]
    if match[0].lstrip().startswith("import"):
        return [first, *re.findall(r",\s*([A-Za-z_][\w.]*)", rest)]
    after = re.match(r"\s+import\s+\(?\s*(.*)", rest)
    names = re.findall(r"([A-Za-z_]\w*)(?:\s+as\s+\w+)?", after[1]) if after else []
    return [first, *(f"{first}.{name}" for name in names)]


def top_module(module: str) -> str:
    """Return the part of a module's name that tells its distribution."""
    parts = module.split(".")
    if parts[0] not in DOTTED:
        return parts[0]
    names = (".".join(parts[:length]) for length in range(DEEPEST_NAME, 1, -1))
    return next(filter(is_listed_module, names), ".".join(parts[:2]))


def _deepest_names(names: Iterable[str]) -> set[str]:
    """Return names without those that another one continues: google.cloud, google.cloud.storage."""
    found = set(names)
    return found - {name.rpartition(".")[0] for name in found}


def _is_own(name: str, tree: ProjectTree) -> bool:
    first = name.split(".", maxsplit=1)[0]
    return is_standard(first) or first in tree.modules or first.startswith("__")


def _is_called_like(path: Path, name: str, tree: ProjectTree) -> bool:
    """Whether a package's file imports what it is called itself, and no other of the project is.

    utils/lpips.py imports lpips: the package of that name, for nothing imports itself.
    """
    if path.stem != name or path.with_name("__init__.py") not in tree.code:
        return False
    imports = re.search(rf"(?m)^(import|from) {name}\b", read_text(tree.root / path) or "")
    named = [one for one in tree.code if name in one.with_suffix("").parts]
    return imports is not None and named == [path]


def source_text(path: Path, notes: list[str], shown: str) -> str | None:
    """Return a file's Python, a notebook's cells as one text; None where it is none."""
    text = read_text(path)
    if path.suffix != ".ipynb" or text is None:
        return text
    cells = notebook_cells(text)
    if cells is None:
        notes.append(f"{shown} is not read: not a notebook as Jupyter writes it")
        return None
    return "\n".join(map(_cell_code, cells))


def notebook_cells(text: str) -> list[str] | None:
    """Return the code cells of a notebook; None where it is none."""
    try:
        cells = json.loads(text)["cells"]
        sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        return ["".join(source) if isinstance(source, list) else str(source) for source in sources]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _cell_code(cell: str) -> str:
    """Return a cell's Python, without the lines of the shell and of magics."""
    text = MEASURED.sub("", cell)
    return (
        ""
        if text.startswith("%%")
        else re.sub(r"^[ \t]*[%!?].*$", "pass", text, flags=re.MULTILINE)
    )


def _at_top(text: str, *, started: bool) -> set[str]:
    """Return the modules imported wherever the file is run: not in a function, not with a way out.

    What stands below ``if __name__ == "__main__"`` counts where the file is ``started`` itself.
    Of text that is no Python 3 all lines count that look like imports.
    """
    try:
        body = ast.parse(text).body
        return _asked_by(text).union(
            _imported_by(body if started else filter(_is_run_by_import, body))
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(map(top_module, modules_of_lines(text)))


def _asked_by(text: str) -> set[str]:
    """Return the modules that code needs when it runs, and does not import itself."""
    return {name for name, call in load_names().asked.items() if re.search(call, text)}


def _is_run_by_import(node: ast.stmt) -> bool:
    return not (isinstance(node, ast.If) and "__main__" in ast.unparse(node.test))


def _imported_by(body: Iterable[ast.stmt]) -> Iterable[str]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (top_module(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield top_module(node.module)
            yield from (
                top_module(f"{node.module}.{alias.name}")
                for alias in node.names
                if node.module.split(".", maxsplit=1)[0] in DOTTED
            )
        elif isinstance(node, ast.Try):
            if not _survives_failure(node):
                yield from _imported_by(node.body)
        elif isinstance(node, ast.If) and not ASKING.search(ast.unparse(node.test)):
            yield from _imported_by([*node.body, *node.orelse])
        elif isinstance(node, ast.With):
            yield from _imported_by(node.body)


def _survives_failure(node: ast.Try) -> bool:
    """Whether a failed import is survived; one whose handler stops all the same is not."""
    caught = [
        ast.unparse(handler.type) if handler.type else "Exception" for handler in node.handlers
    ]
    names = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException")
    stops = all(
        any(isinstance(inner, ast.Raise) for inner in ast.walk(handler))
        for handler in node.handlers
    )
    return re.search("|".join(names), " ".join(caught)) is not None and not stops
