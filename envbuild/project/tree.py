"""Look through a project folder once: which files say what it needs, and which are code."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from envbuild.base.suggest import framework_name
from envbuild.errors import UsageError
from envbuild.names import Paths
from envbuild.project.code.extensions import compiled_in_setup, compiled_in_table
from envbuild.records import frozen_record
from envbuild.store.units import as_printable

SKIPPED = {
    "__pycache__", "node_modules", "site-packages", "dist-packages", "build", "dist", "wandb",
    "runs", "third_party", "thirdparty", "3rdparty", "vendor", "vendors", "vendored", "external",
    "externals", "extern", "submodules", "submodule", "lockfiles", "venv", "virtualenv",
}  # fmt: skip
"""Folders whose content is not the project's own."""
ENVIRONMENT = {"pyvenv.cfg", "conda-meta"}
"""What makes a folder an installed environment, whatever it is called."""
PROJECTS = ("setup.py", "pyproject.toml")
"""Files that make a folder a project of its own."""
R_SUFFIXES = (".r", ".rmd")
MOST_FILES = 50_000
"""Files after which a folder is not looked through further."""
DEEPEST = 60
"""Folders below one another that are read; a path may have 4,096 bytes."""
MOST_SETUPS = 100
"""Files setup.py and pyproject.toml that are read for the modules that they compile."""
LARGEST = 4 * 1024 * 1024
"""Bytes; a list or a piece of code above this is data."""
DEEPEST_LIST = 1
"""Folders below the project's in which lists are looked for (docker/Dockerfile)."""
LISTS = re.compile(
    r"(pyproject\.toml|setup\.py|setup\.cfg|Pipfile|cog\.yaml|pixi\.toml|[\w.-]*?(conda|env"
    r"|environment)[\w.-]*\.ya?ml|requirements?[\w.-]*\.(txt|in|pip)|environment\.txt"
    r"|pip[-_]?requirements?\.txt|Dockerfile[\w.-]*|[\w.-]+\.[Dd]ockerfile|Containerfile"
    r"|[\w.-]+\.def|Singularity[\w.-]*)"
)
ASIDE = re.compile(
    r"(^|[-_./])(dev|devel|develop|development|devcontainer|test|tests|testing|doc|docs|lint"
    r"|linting|ci|style|build|release|rtd"
    r"|deprecated|old|example|examples|actions|workflows)([-_./]|$)"
)
"""Names of lists that are not about running the project."""
UNPACKED = re.compile(r"[\w.-]+-(?:main|master|v?\d+(?:\.\d+)+)")
"""Folders as archives of releases and branches are unpacked: flower-1.4.0, timm-main."""
TEST_FOLDERS = {
    "test", "tests", "testing", "docs", "doc", "examples", "example", "benchmarks", "benchmark",
    "baselines", "scripts", "tools", "ci", "convert", "demo", "demos", "optional", "web-demos",
    "web_demo", "app", "apps", "evaluations", "tutorial", "tutorials",
}  # fmt: skip
DESCRIBING = {"doc", "docs", "stubs", "typings"}
"""Folders that describe modules and do not hold them: docs/stubs/tensorflow is not TensorFlow."""


@frozen_record
class ProjectTree:
    """A project's files, as paths below ``root``.

    ``lists`` say what it needs; ``aside`` are lists about developing it; ``code`` and
    ``notebooks`` are its own, those nearest to the root first; ``modules`` are the names that
    its own code can be imported by; ``parts`` are folders that are projects of their own inside
    it (they have a setup.py or pyproject.toml); ``outside`` are links that lead out of it,
    which are not read; ``r_code`` are its scripts in R; ``copies`` are unpacked archives of other
    projects beside its own lists, not read either; ``cut`` says that there are more files than
    were looked at.
    """

    root: Path
    lists: Paths
    aside: Paths
    code: Paths
    notebooks: Paths
    modules: frozenset[str]
    parts: frozenset[Path] = frozenset()
    outside: Paths = ()
    r_code: Paths = ()
    copies: Paths = ()
    cut: bool = False


def scan_project(root: Path) -> ProjectTree:
    """Look through a folder, not through links.  Raises UsageError if it cannot be read."""
    try:
        with os.scandir(root) as entries:
            next(entries, None)
    except OSError as error:
        raise UsageError(
            f"the folder cannot be read: {error.strerror}", where=as_printable(str(root))
        ) from error
    found: list[Path] = []
    outside: list[Path] = []
    modules: set[str] = set()
    copies = _copies(root)
    for path, kind in _walk_files(root, copies):
        if kind == "file" and len(found) < MOST_FILES:
            found.append(path)
        elif kind == "link out":
            outside.append(path)
        elif kind != "file" and not _describes(path.relative_to(root)):
            modules.add(path.stem if kind == "vendored" else path.name)
    relative = [path.relative_to(root) for path in found]
    relative.sort(key=lambda path: (len(path.parts), path.parts))
    code = [path for path in relative if path.suffix == ".py"]
    modules -= _folders_of_scripts(modules, code)
    modules.update(path.stem for path in code if not _describes(path))
    modules.update(_compiled_modules(root, relative))
    near = [path for path in relative if len(path.parts) <= DEEPEST_LIST + 1]
    lists = [path for path in near if is_list(path) or _is_environment(root / path)]
    aside = [path for path in lists if is_about_developing(path)]
    projects = {path.parent for path in relative if path.name in PROJECTS}
    programs = [path for path in code if path.name != "setup.py"]
    notebooks = [path for path in relative if path.suffix == ".ipynb"]
    in_r = [path for path in relative if path.suffix.lower() in R_SUFFIXES]
    below = [path.relative_to(root) for path in copies]
    return ProjectTree(
        root=root,
        lists=tuple(path for path in lists if path not in aside),
        aside=tuple(aside),
        code=tuple(programs),
        notebooks=tuple(notebooks),
        modules=frozenset(modules),
        parts=frozenset(projects - {Path()}),
        outside=tuple(path.relative_to(root) for path in outside if is_list(path)),
        r_code=tuple(in_r),
        copies=tuple(below),
        cut=len(found) >= MOST_FILES,
    )


def notes_on_tree(tree: ProjectTree) -> list[str]:
    """Return what is said of what was not looked at."""
    notes = [f"only the first {len(tree.code)} Python files were looked at"] if tree.cut else []
    for path in tree.outside:
        shown = as_printable(path.as_posix())
        notes.append(f"{shown} is a link that leads out of the project, or nowhere: not read")
    if tree.copies:
        names = ", ".join(as_printable(path.as_posix()) for path in tree.copies)
        notes.append(f"copies of other projects, not read: {names}")
    return notes


def _folders_of_scripts(names: set[str], code: Sequence[Path]) -> set[str]:
    """Return folders with a framework's name that hide it from nobody.

    Python takes an installed package before a folder without __init__.py: jax/ holds scripts.
    """
    folders = {path.parent for path in code if path.name == "__init__.py"}
    # animus/torch/__init__.py is imported as animus.torch: it hides no torch
    packages = {folder.name for folder in folders if folder.parent not in folders}
    return {name for name in names - packages if framework_name(name, greater=True)}


def _compiled_modules(root: Path, files: list[Path]) -> set[str]:
    """Return the names of the modules that the project compiles when it is installed."""
    found: set[str] = set()
    readers = {"setup.py": compiled_in_setup, "pyproject.toml": compiled_in_table}
    for path in [path for path in files if path.name in readers][:MOST_SETUPS]:
        found |= readers[path.name](read_text(root / path) or "")
    return found


def _copies(root: Path) -> list[Path]:
    """Return the unpacked archives of other projects, beside lists that do not install them.

    Without a list at the root, the project itself may be what somebody unpacked.
    """
    entries = [Path(entry.path) for entry in _sorted_entries(root)]
    lists = [path for path in entries if is_file(path) and is_list(path)]
    named = "\n".join(read_text(path) or "" for path in lists)
    unpacked = (path for path in entries if UNPACKED.fullmatch(path.name))
    found = [path for path in unpacked if any(is_file(path / name) for name in PROJECTS)]
    return [path for path in found if lists and path.name not in named]


def _walk_files(root: Path, copies: Sequence[Path] = ()) -> Iterator[tuple[Path, str]]:
    """Yield what is below a folder with its kind (see _entry_kind), the nearest first."""
    level = [root]
    for _ in range(DEEPEST):
        below: list[Path] = []
        for folder in level:
            entries = _sorted_entries(folder)
            if folder != root and any(entry.name in ENVIRONMENT for entry in entries):
                continue
            for entry in entries:
                path = Path(entry.path)
                kind = "vendored" if path in copies else _entry_kind(entry, root)
                if kind == "vendored":
                    yield from ((Path(one.path), kind) for one in _sorted_entries(path))
                elif kind:
                    yield path, kind
                below += [path] if kind == "folder" else []
        level = below


def _sorted_entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []  # not ours to read, or gone: what it says is missing


def _entry_kind(entry: os.DirEntry[str], root: Path) -> str:
    """Return the kind of an entry, as _walked has it; empty for one that is passed over."""
    try:
        is_folder, is_link = entry.is_dir(), entry.is_symlink()
    except OSError:
        return "link out"  # a link to itself
    if is_link and not is_inside(Path(entry.path), root):
        return "link out"
    if not is_folder:
        return "file"
    if is_link or _is_hidden(entry.name):
        return ""
    return "vendored" if entry.name in SKIPPED else "folder"


def _describes(path: Path) -> bool:
    """Whether a path below the root lies in a folder that describes modules."""
    return bool(DESCRIBING & set(path.parts[:-1]))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.endswith((".egg-info", ".dist-info"))


def is_list(path: Path) -> bool:
    """Whether a file's name says that it lists what a project needs."""
    in_folder = path.parent.name.startswith("requirement") and path.suffix in (".txt", ".in")
    return bool(LISTS.fullmatch(path.name)) or in_folder


def _is_environment(path: Path) -> bool:
    """Whether a YAML file of any name is a conda environment: it has channels and dependencies."""
    if path.suffix not in (".yml", ".yaml"):
        return False
    text = read_text(path) or ""
    return all(re.search(rf"(?m)^{key}:\s*\n\s*- ", text) for key in ("channels", "dependencies"))


def is_about_developing(path: Path) -> bool:
    """Whether a list is for those who change, test or ship a project."""
    return bool(ASIDE.search(path.as_posix().lower())) and path.as_posix() not in (
        "setup.py",
        "pyproject.toml",
    )


def is_aside(path: Path) -> bool:
    """Whether code is a test, an example or a tool: what it imports, the project may do without."""
    return (
        bool(TEST_FOLDERS & set(path.parts[:-1]))
        or path.name.startswith("test_")
        or path.stem.endswith("_test")
    )


def is_inside(path: Path, root: Path) -> bool:
    """Whether a path leads to a place below the root, links followed."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return False


def is_file(path: Path) -> bool:
    """Whether there is such a file; a word of a project may be longer than any name of one."""
    try:
        return path.is_file()
    except OSError:
        return False


def shown_path(path: Path, root: Path) -> str:
    """Return a file's name as people read it: below the root, in characters that can be printed."""
    try:
        return as_printable(path.resolve().relative_to(root.resolve()).as_posix())
    except (OSError, RuntimeError, ValueError):
        return as_printable(path.name)


def read_text(path: Path) -> str | None:
    """Return a file's text; None where it is no ordinary file, too large, not readable, or no text.

    Lists that Windows wrote in UTF-16 are read as such.
    """
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return None
        data = path.read_bytes()
    except (OSError, RuntimeError):
        return None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return None if b"\0" in data else data.decode("utf-8-sig", "replace")
