"""Tell lists that are a choice from lists that belong together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from envbuild.base.suggest import framework_name
from envbuild.names import Paths, Texts
from envbuild.project.code.imports import imported_modules, modules_of_lines, source_text
from envbuild.project.lists.choose import is_conda, is_requirements
from envbuild.project.lists.readme import BLOCK, NAMES, first_framework
from envbuild.project.model import FileFindings
from envbuild.project.tree import ProjectTree, is_inside, read_text
from envbuild.records import replace

DEFINITION = re.compile(r"[Dd]ocker[Ff]ile|^Containerfile|^Singularity|\.def$")
NEARLY_AS_MANY = 2 / 3
"""Of two frameworks that share a project like this, the README says which one comes first."""


def of_one_way(
    all_findings: Sequence[FileFindings], root: Path, notes: list[str]
) -> list[FileFindings]:
    """Mark the list that the project does not install by, of two ways to install the same.

    An environment.yml and a list for pip are two ways where both name the framework, each has
    half of the other's packages, and the project's definition or README uses one of them first.
    Of the other one only what the code imports is taken, and what pip's list cannot say.
    """
    found = list(all_findings)
    direct = [one for one in found if one.requirements and not one.frozen]
    conda = [one for one in direct if is_conda(Path(one.file))]
    pip = [one for one in direct if is_requirements(Path(one.file))]
    if len(conda) != 1 or len(pip) != 1 or not _are_alike(conda[0], pip[0]):
        return found
    first = _first_used((conda[0].file, pip[0].file), root)
    if first is None:
        return found
    left = pip[0] if first == conda[0].file else conda[0]
    notes.append(
        f"{first} and {left.file} are two ways to install the same: {first} is taken, and of "
        f"{left.file} only what the code imports"
    )
    found[found.index(left)] = replace(left, only_imported=True)
    return found


def _are_alike(one: FileFindings, other: FileFindings) -> bool:
    """Whether two lists have half of their names and the framework in common."""
    names = {requirement.name for requirement in one.requirements}
    others = {requirement.name for requirement in other.requirements}
    both = names & others
    has_framework = any(framework_name(name, greater=True) for name in both)
    return has_framework and 2 * len(both) >= max(len(names), len(others))


def _first_used(files: Texts, root: Path) -> str | None:
    """Return the list that definitions or the README install by first; None where none is.

    None too where one list names the other, or one block of the README installs both.
    """
    for file in files:
        if _installed_by(read_text(root / file) or "", files):
            return None
    definitions = [path for path in sorted(root.glob("*")) if DEFINITION.search(path.name)]
    texts = [read_text(path) or "" for path in definitions if is_inside(path, root)]
    for text in (*texts, *_readme_blocks(root)):
        used = _installed_by(text, files)
        if used:
            return used[0] if len(used) == 1 else None
    return None


def _readme_blocks(root: Path) -> list[str]:
    text = "\n".join(read_text(root / name) or "" for name in NAMES)
    return [block[2] for block in BLOCK.finditer(text)]


def _installed_by(text: str, files: Texts) -> Texts:
    """Return the lists that a text's commands install by."""
    command = r"(?m)^[^#\n]{0,500}(?:-r|-f|-c|--file|--requirement|COPY)[ =]\S{0,99}"
    return tuple(file for file in files if re.search(rf"{command}{re.escape(file)}\b", text))


def chosen_framework(named: Mapping[Path, str], files: Mapping[str, int], root: Path) -> str:
    """Return the framework of lists for several: that of most files, or the README's first.

    ``named`` has the framework of each list, ``files`` how many files import each.
    """
    first = max(named.values(), key=lambda name: files.get(name, 0))
    said = first_framework(root)
    if said is None or said not in named.values():
        return first
    enough = NEARLY_AS_MANY * files.get(first, 0)
    return said if files.get(said, 0) >= enough else first


def lists_of_framework(lists: Paths, tree: ProjectTree) -> Paths:
    """Return lists without the environments that are called after another framework.

    Of environment_tf.yml and environment_torch.yml that of the framework of most files counts.
    """
    named = {}
    for path in filter(is_conda, lists):
        name = _called_after(path)
        if name:
            named[path] = name
    if len(set(named.values())) <= 1:
        return lists
    files = {one.module: one.files for one in imported_modules(tree)[0]}
    first = chosen_framework(named, files, tree.root)
    return tuple(path for path in lists if named.get(path, first) == first)


def _called_after(path: Path) -> str | None:
    for word in re.split(r"[^a-z0-9]+", path.stem.lower()):
        name = "tensorflow" if word == "tf" else framework_name(word, greater=True)
        if name:
            return name
    return None


def without_code_for(tree: ProjectTree, first: str, others: Texts) -> ProjectTree:
    """Return a project without the files that import another framework and not the first one."""

    def is_for_another(path: Path) -> bool:
        text = source_text(tree.root / path, [], "") or ""
        tops = {name.split(".", maxsplit=1)[0] for name in modules_of_lines(text)}
        named = {framework_name(top, greater=True) for top in tops}
        return first not in named and bool(named.intersection(others))

    return replace(
        tree,
        code=tuple(path for path in tree.code if not is_for_another(path)),
        notebooks=tuple(path for path in tree.notebooks if not is_for_another(path)),
    )
