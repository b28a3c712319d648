"""Find the files that a project's own programs load."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Mapping
from itertools import chain
from pathlib import Path, PurePath

from envbuild.project.tree import ProjectTree, is_aside

TOOLS = {"conftest", "noxfile", "tasks", "fabfile", "versioneer", "cog_predict"}
"""Files beside a project's programs that are for tests, releases or a service."""
TESTERS = {"pytest", "unittest", "nose", "hypothesis"}
SAMPLES = {"data", "datas", "dataset", "datasets", "samples", "corpus"}
MAIN = {
    "__main__",
    "main",
    "run",
    "train",
}
"""What the program that a project is for is mostly called."""


def loaded_files(tree: ProjectTree, names: Mapping[Path, frozenset[str]]) -> frozenset[Path]:
    """Return the files that the programs at the root and the project's packages load.

    ``names`` are the dotted modules that each file imports.  Packages are folders with an
    __init__.py at the root, in src; a folder that is a project of its own counts only if it is
    imported.  Where there are no programs, every file counts that is no test and no tool.
    """
    code = [path for path in tree.code if _counts(path, names)]
    if not code:
        # all of it is scripts, tools or examples: those are the project
        return frozenset(tree.code)
    starts = {path for path in code if is_started(path, tree)}
    if starts or (tree.root / "src").is_dir():
        packages = _packages(tree)
        for package in packages - _renamed_copies(starts, names, packages):
            starts |= {path for path in code if _is_below(path, package)}
    if not starts:
        own = own_files(tree, names)
        samples = {path for path in own if SAMPLES & set(path.parts[:-1])}
        # code among the data that nothing loads is data
        rest = own - samples
        return frozenset(rest | (_load(rest, _modules(tree), names) & samples))
    found = _load(starts, _modules(tree), names)
    asked = _asked_names(found, names)
    return frozenset(path for path in found if _counts(path, names, asked))


def _counts(path: Path, names: Mapping[Path, frozenset[str]], asked: Container[str] = ()) -> bool:
    """Whether a file is of the project itself: test_images.py at the root tries a model."""
    if not is_aside(path) or path.parts[0] in asked:
        return True
    tops = {name.partition(".")[0] for name in names[path]}
    return len(path.parts) == 1 and tops.isdisjoint(TESTERS)


def _asked_names(paths: Iterable[Path], names: Mapping[Path, frozenset[str]]) -> set[str]:
    """Return the first parts of what files import, but those that are called after tests.

    A folder tools is the project's own where its programs import tools.loader.
    """
    every = chain.from_iterable(names[path] for path in paths if not is_aside(path))
    return {name.partition(".")[0] for name in every} - {"test", "tests", "testing"}


def _renamed_copies(
    programs: Iterable[Path], names: Mapping[Path, frozenset[str]], packages: Iterable[Path]
) -> set[Path]:
    """Return the packages at the root that are copies of one that programs import.

    Such a one is called like it with something behind it: flwr2, flwr_old.
    """
    every = chain.from_iterable(names[path] for path in programs)
    asked = {name.partition(".")[0] for name in every} - {""}
    others = asked - {path.parts[0] for path in packages} - sys.stdlib_module_names
    return {path for path in packages if path.parts[0].startswith(tuple(others))}


def loaded_by_programs(
    tree: ProjectTree, names: Mapping[Path, frozenset[str]]
) -> tuple[frozenset[Path], ...]:
    """Return the files that each of the project's programs loads.

    A program is what nothing else of the project loads: at the root, else in a package or among
    the scripts, else a notebook. Those called like the main one count alone, as one.
    """
    by_module = _modules(tree)
    code = [path for path in tree.code if not is_aside(path) and not _in_part(path, tree)]
    places = (
        [path for path in code if is_started(path, tree)],
        code,
        tree.code,
        tree.notebooks,
    )
    starts = next((place for place in places if place), ())
    loads = {path: _load([path], by_module, names) for path in starts}
    loaded = set[Path]().union(*(found - {start} for start, found in loads.items()))
    programs = [path for path in starts if path not in loaded] or list(starts)
    mains = [loads[path] for path in programs if path.stem in MAIN]
    if mains:
        return (frozenset[Path]().union(*mains),)
    return tuple(frozenset(loads[path]) for path in programs)


def _load(
    starts: Iterable[Path],
    by_module: Mapping[str, list[Path]],
    names: Mapping[Path, frozenset[str]],
) -> set[Path]:
    """Return files and what they import of the project, and so on."""
    found: set[Path] = set()
    todo = list(starts)
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found.add(path)
        for name in names.get(path, frozenset()):
            dots = len(name) - len(name.lstrip("."))
            here = path.parts[: -(dots or 1)]
            todo += by_module.get(".".join((*here, name.lstrip("."))), ())
            if not dots:
                todo += by_module.get(name, ())
    return found


def own_files(tree: ProjectTree, names: Mapping[Path, frozenset[str]]) -> frozenset[Path]:
    """Return the files that are no test, no tool, and no project of their own inside this one."""
    asked = _asked_names(tree.code, names)
    code = [path for path in tree.code if _counts(path, names, asked)]
    if not has_programs(tree):
        # what starts is among the scripts
        code += [path for path in tree.code if path.parts[0] in ("scripts", "bin")]
    return frozenset(path for path in code or tree.code if not _in_part(path, tree))


def has_programs(tree: ProjectTree) -> bool:
    """Whether there is code to start, or a package: notebooks are not all of the project."""
    return any(is_started(path, tree) for path in tree.code) or bool(_packages(tree))


def is_started(path: Path, tree: ProjectTree) -> bool:
    """Whether a file is at the root, at the top of the folder for code, or by the only lists."""
    folders = {place.parent.parts for place in tree.lists}
    places = [(), ("src",), ("code",), ("source",), *(folders if len(folders) == 1 else ())]
    return path.parts[:-1] in places and path.stem not in TOOLS


def _packages(tree: ProjectTree) -> set[Path]:
    """Return the folders of the project's own packages, and those of scripts in src."""
    folders = {path.parent for path in tree.code if path.name == "__init__.py"}
    roots = {folder for folder in folders if len(folder.parts) == 1}
    roots |= {
        folder
        for folder in folders
        if len(folder.parts) == 2 and folder.parts[0] in ("src", "lib", "python")
    }
    # src/server/app.py is a program of the project too, where that folder is no package
    roots |= {
        path.parent
        for path in tree.code
        if len(path.parts) == 3 and path.parts[0] == "src" and path.parts[1] not in SAMPLES
    }
    return {
        folder
        for folder in roots
        if not is_aside(folder / "x") and not _in_part(folder / "x", tree)
    }


def _in_part(path: Path, tree: ProjectTree) -> bool:
    """Whether a file belongs to a project of its own inside this one."""
    return any(parent in tree.parts for parent in path.parents)


def _is_below(path: PurePath, folder: PurePath) -> bool:
    return path.parts[: len(folder.parts)] == folder.parts


def _modules(tree: ProjectTree) -> dict[str, list[Path]]:
    """Map every dotted name that a file can be imported by to the file."""
    found: dict[str, list[Path]] = {}
    for path in tree.code:
        folders = path.parts[:-1]
        parts = folders if path.name == "__init__.py" else (*folders, path.stem)
        # deep in a tree only the whole name and the one below the top folder count
        starts = len(parts) if len(parts) < 4 else 2
        for first in range(starts):
            found.setdefault(".".join(parts[first:]), []).append(path)
    return found
