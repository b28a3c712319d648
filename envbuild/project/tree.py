"""Look through a project folder once: which files say what it needs, and which are code."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from envbuild.errors import UsageError

SKIPPED = {
    "__pycache__", "node_modules", "site-packages", "dist-packages", "venv", "env", "build", "dist", "wandb", "runs",
    "third_party", "thirdparty", "3rdparty", "vendor", "external", "externals", "submodules", "lockfiles",
}  # fmt: skip
"""Folders whose content is not the project's own."""
MOST_FILES = 50_000
"""Files after which a folder is not looked through further."""
LARGEST = 4 * 1024 * 1024
"""Bytes; a list or a piece of code above this is data."""
DEEPEST_LIST = 1
"""Folders below the project's in which lists are looked for (requirements/base.txt, docker/Dockerfile)."""
LISTS = re.compile(
    r"(pyproject\.toml|setup\.py|setup\.cfg|Pipfile|(conda[-_])?(env|environment)[\w.-]*\.ya?ml|requirements?[\w.-]*\.(txt|in|pip)"
    r"|pip[-_]?requirements?\.txt|Dockerfile[\w.-]*|[\w.-]+\.Dockerfile|Containerfile|[\w.-]+\.def|Singularity[\w.-]*)"
)
ASIDE = re.compile(
    r"(^|[-_./])(dev|devel|develop|development|test|tests|testing|doc|docs|lint|ci|style|build|release|rtd)([-_./]|$)"
)
"""Names of lists that are not about running the project."""
TEST_FOLDERS = {
    "test", "tests", "testing", "docs", "doc", "examples", "example", "benchmarks", "benchmark", "scripts", "tools",
    "ci", "convert", "demo", "demos",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """A project's files, as paths below ``root``.

    ``lists`` say what it needs; ``aside`` are lists about developing it; ``code`` and ``notebooks`` are its own, those
    nearest to the root first; ``modules`` are the names that its own code can be imported by; ``cut`` tells that there
    are more files than were looked at.
    """

    root: Path
    lists: tuple[Path, ...]
    aside: tuple[Path, ...]
    code: tuple[Path, ...]
    notebooks: tuple[Path, ...]
    modules: frozenset[str]
    cut: bool = False


def scan(root: Path) -> Tree:
    """Look through a folder; links to folders are not followed.  Raises UsageError when it cannot be read."""
    found: list[Path] = []
    modules: set[str] = set()
    cut = False
    try:
        with os.scandir(root) as entries:
            next(entries, None)
    except OSError as error:
        raise UsageError(f"the folder cannot be read: {error.strerror}", where=str(root)) from error
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not _hidden(name))
        modules.update(folders)
        here = Path(folder)
        found += [here / name for name in sorted(files)]
        if len(found) > MOST_FILES:
            cut = True
            break
    relative = sorted((path.relative_to(root) for path in found), key=lambda path: (len(path.parts), path.parts))
    code = [path for path in relative if path.suffix == ".py"]
    modules.update(path.stem for path in code)
    lists = [path for path in relative if len(path.parts) <= DEEPEST_LIST + 1 and is_list(path)]
    aside = [
        path
        for path in lists
        if ASIDE.search(path.as_posix().lower()) and path.name not in ("setup.py", "pyproject.toml")
    ]
    return Tree(
        root=root,
        lists=tuple(path for path in lists if path not in aside),
        aside=tuple(aside),
        code=tuple(path for path in code if path.name != "setup.py"),
        notebooks=tuple(path for path in relative if path.suffix == ".ipynb"),
        modules=frozenset(modules),
        cut=cut,
    )


def _hidden(name: str) -> bool:
    return name.startswith(".") or name.endswith((".egg-info", ".dist-info"))


def is_list(path: Path) -> bool:
    """Whether a file's name says that it lists what a project needs."""
    in_folder = path.parent.name.startswith("requirement") and path.suffix in (".txt", ".in")
    return bool(LISTS.fullmatch(path.name)) or in_folder


def is_aside(path: Path) -> bool:
    """Whether code is a test, an example or a tool: what it imports, the project may do without."""
    return bool(TEST_FOLDERS & set(path.parts[:-1])) or path.name.startswith("test_") or path.stem.endswith("_test")


def read_text(path: Path) -> str | None:
    """Return a file's text; None where it is no ordinary file, too large, or not readable."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return None
        return path.read_bytes().decode("utf-8-sig", "replace")
    except OSError:
        return None
