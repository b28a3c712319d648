"""Decide which of a project's files count, and read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path

from packaging.utils import canonicalize_name

from envbuild.base.suggest import framework_name
from envbuild.errors import EnvbuildError, UsageError
from envbuild.names import Paths, Texts
from envbuild.project.code.imports import imported_modules
from envbuild.project.code.r_scripts import r_note
from envbuild.project.conda.environment import read_conda, read_printed
from envbuild.project.conda.pixi import read_pixi, read_project_table
from envbuild.project.images.cog import read_cog
from envbuild.project.images.container import read_container
from envbuild.project.lists.alternatives import (
    chosen_framework,
    lists_of_framework,
    of_one_way,
    without_code_for,
)
from envbuild.project.lists.choose import choose_lists, is_container, is_near, is_requirements
from envbuild.project.lists.declared import read_pipfile, read_python_file, read_setup_cfg
from envbuild.project.lists.readme import framework_releases, said_releases
from envbuild.project.lists.requirements import read_requirements
from envbuild.project.lists.setup_py import read_setup_py
from envbuild.project.model import FileFindings, ImportedModule, Requirement
from envbuild.project.names import FOR_DEVELOPERS, implied_framework
from envbuild.project.shell.notebook import read_notebook
from envbuild.project.shell.readme import (
    install_scripts,
    launching_modules,
    read_readme,
    read_script,
)
from envbuild.project.tree import (
    LARGEST,
    ProjectTree,
    is_about_developing,
    is_aside,
    is_inside,
    notes_on_tree,
    read_text,
    scan_project,
    shown_path,
)
from envbuild.records import field, frozen_record, replace
from envbuild.resolve.sources.project_name import name_and_version
from envbuild.store.units import as_printable

INSTALLS_PROJECT = re.compile(
    r"\b(env|conda)[\w.-]{0,99}\.ya?ml\b|\b(install|sync)\b[^\n]{0,500}\s(-r|-e|--requirement|--editable|\.)"
    r"|\b(poetry|uv|pdm|pipenv)\s+(install|sync)\b|^%files|^(COPY|ADD)\s+\.",
    re.MULTILINE,
)
"""What a definition of the project has and one that only serves its models has not."""
TABLES = ("pyproject.toml", "setup.cfg", "setup.py")
ABOUT_FRAMEWORK = re.compile(r"[-_.](torch|pytorch|tensorflow|tf|jax|cuda|gpu)\b")
INSTALLERS = {"pip", "setuptools", "wheel"}
MOST_PARTS = 100
"""Projects inside a project whose names are read."""


@frozen_record
class ProjectFindings:
    """What a project's files say and its code imports; ``name`` is the recipe's.

    ``own`` are the canonical names of projects inside this one, ``releases`` the
    frameworks with the release that the README names, ``said`` the Python and the CUDA that it
    names.
    """

    name: str
    all_findings: tuple[FileFindings, ...]
    imports: tuple[ImportedModule, ...]
    tree: ProjectTree
    notes: Texts = ()
    own: frozenset[str] = frozenset()
    releases: tuple[Requirement, ...] = ()
    said: Mapping[str, str] = field(default_factory=dict)


def gather_findings(place: Path) -> ProjectFindings:
    """Read a project folder, or one file of it.

    Raises UsageError for a place that does not exist, that says nothing, or a single file that
    cannot be read.
    """
    if place.is_dir():
        return _gather_folder(place)
    if not place.exists():
        hint = "name the folder of your project; without a name, init reads this folder"
        raise UsageError(
            "there is no such file or folder", where=as_printable(str(place)), hint=hint
        )
    if read_text(place) is None:
        what = f"cannot be read as text, or is larger than {LARGEST // 1024 // 1024} MB"
        raise UsageError(what, where=as_printable(str(place)))
    return _gather_file(place)


def _gather_folder(root: Path) -> ProjectFindings:
    tree = scan_project(root)
    notes = notes_on_tree(tree)
    deployed = [path for path in tree.lists if path.name == "cog.yaml"]
    lists = tuple(path for path in tree.lists if path not in deployed)
    for_gpu = lists_of_framework(_lists_for_gpu(lists, root), tree)
    chosen, left = choose_lists(for_gpu)
    left = (*left, *(path for path in lists if path not in for_gpu))
    other_apps = {path.parts[0] for path in lists} - {path.parts[0] for path in for_gpu}
    tree = replace(
        tree,
        code=tuple(path for path in tree.code if path.parts[0] not in other_apps),
        notebooks=tuple(path for path in tree.notebooks if path.parts[0] not in other_apps),
    )
    apart = tuple(path for path in chosen if _installs_another(path, root))
    chosen = tuple(path for path in chosen if path not in apart)
    chosen, others, tree = _of_one_framework(chosen, tree, notes)
    left = (*left, *others)
    all_findings = of_one_way(_read_all(chosen, root, notes), root, notes)
    if not any(findings.complete for findings in all_findings):
        all_findings += _read_all(apart, root, notes)
    else:
        left = (*left, *apart)
    for path in _framework_list(chosen, left, all_findings, root):
        all_findings += _read_all((path,), root, notes)
        left = tuple(one for one in left if one != path)
    parts = _own_parts(tree)
    all_findings += [*read_python_file(root), *_member_findings(tree, parts, all_findings, notes)]
    if not _names_packages(all_findings):
        all_findings += _fallback_findings(tree, deployed, notes)
    aside = (*left, *tree.aside)
    if aside:
        names = ", ".join(map(_path_name, aside[:6])) + (" …" if len(aside) > 6 else "")
        notes.append(f"lists that are not taken: {names}")
    in_r = r_note(root, tree.r_code)
    notes += [in_r] if in_r else []
    listed = any(one.requirements and not one.only_imported for one in all_findings)
    imports, import_notes = imported_modules(tree, listed=listed)
    by_name = {one.module: one for one in (*imports, *launching_modules(root))}
    if not all_findings and not tree.code and not tree.notebooks:
        raise UsageError(
            "no file here lists what the project needs: no list of requirements, no "
            "definition, no Python code",
            where=as_printable(str(root)),
            hint="name the project's folder or one of its files: envbuild init path/to/project",
        )
    return ProjectFindings(
        name=recipe_name(root.resolve().name),
        all_findings=tuple(all_findings),
        imports=tuple(by_name.values()),
        tree=tree,
        notes=(*notes, *import_notes),
        own=frozenset(parts),
        releases=framework_releases(root, install_scripts(root)),
        said=said_releases(root),
    )


def _names_packages(all_findings: list[FileFindings]) -> bool:
    """Whether lists name packages to run with, and not only tools for developers."""
    named = chain.from_iterable(findings.requirements for findings in all_findings)
    return any(not (FOR_DEVELOPERS.fullmatch(one.name) or one.name in INSTALLERS) for one in named)


def _fallback_findings(
    tree: ProjectTree, deployed: list[Path], notes: list[str]
) -> list[FileFindings]:
    """Return what a project without lists says in its service, README, scripts or notebooks.

    Each is read only where those before it name no package.
    """
    found = _read_all(tuple(deployed[:1]), tree.root, notes)
    if _names_packages(found):
        return found
    instructions = read_readme(tree.root) or read_script(tree.root)
    if instructions is not None:
        found.append(instructions)
    if _names_packages(found):
        return found
    for path in tree.notebooks:
        cells = None if is_aside(path) else read_notebook(tree.root / path, tree.root)
        if cells is not None:
            found.append(cells)
    return found


def _installs_another(path: Path, root: Path) -> bool:
    """Whether a definition below the root never installs the project or one of its lists."""
    if len(path.parts) == 1 or not is_container(path):
        return False
    text = read_text(root / path) or ""
    cloned = re.findall(r"git\s+clone\s[^\n]{0,500}?/([\w.-]{1,100}?)(?:\.git)?(?:\s|$)", text)
    ours = any((root / name).is_dir() for name in cloned)
    return not ours and INSTALLS_PROJECT.search(text) is None


def _own_parts(tree: ProjectTree) -> dict[str, Path]:
    """Return the folders of the projects inside this one, by what those call themselves."""
    found: dict[str, Path] = {}
    for folder in sorted(tree.parts)[:MOST_PARTS]:
        with suppress(EnvbuildError):  # a pyproject.toml that is no TOML says nothing here
            name = name_and_version(tree.root / folder)
            if name and name[0]:
                found.setdefault(canonicalize_name(name[0]), folder)
    return found


def _member_findings(
    tree: ProjectTree, parts: dict[str, Path], listed: list[FileFindings], notes: list[str]
) -> list[FileFindings]:
    """Return what parts of the project need that its lists name, or all where these are empty."""
    todo = _names_of(listed)
    if not _names_packages(listed) or any(one.members for one in listed):
        todo |= {name for name, folder in parts.items() if not is_about_developing(folder / "x")}
    found: list[FileFindings] = []
    seen: set[str] = set()
    while wanted := (todo & parts.keys()) - seen:
        seen |= wanted
        for name in sorted(wanted):
            tables = (parts[name] / table for table in TABLES)
            there = tuple(path for path in tables if (tree.root / path).is_file())
            found += _read_all(there, tree.root, notes)
        todo |= _names_of(found)
    return found


def _names_of(all_findings: list[FileFindings]) -> set[str]:
    """Return the names of requirements, of those too that a recipe cannot express."""
    found: list[str] = []
    for findings in all_findings:
        found += [one.name for one in findings.requirements]
        found += [text for text, _ in findings.aside]
    return set(map(canonicalize_name, found))


def _path_name(path: Path) -> str:
    return as_printable(path.as_posix())


def _read_all(paths: Paths, root: Path, notes: list[str]) -> list[FileFindings]:
    """Read lists; one that cannot be read is noted."""
    found: list[FileFindings] = []
    for path in paths:
        try:
            findings = read_list(root / path, root)
        except EnvbuildError as error:
            notes.append(f"not read: {as_printable(str(error))}")
            continue
        found += [findings] if findings is not None else []
    return found


def _lists_for_gpu(lists: Paths, root: Path) -> Paths:
    """Return the lists of the folders whose lists name a framework, where each folder has its own.

    All of them where the root has a list, or none of the folders names a framework.
    """
    plain = tuple(path for path in lists if not is_container(path))
    if any(len(path.parts) == 1 or is_near(path) for path in plain):
        return lists
    read = {path: _read_all((path,), root, []) for path in plain}
    direct = {path: [one for one in found if not one.frozen] for path, found in read.items()}
    named = {path.parts[0] for path, found in direct.items() if _has_framework(found, implied=True)}
    kept = tuple(path for path in lists if path.parts[0] in named or is_near(path))
    return kept if named else lists


def _of_one_framework(
    chosen: Paths, tree: ProjectTree, notes: list[str]
) -> tuple[Paths, Paths, ProjectTree]:
    """Return the lists without those for another framework, those, and the project without them.

    Where each example has a list, the project's framework is one of theirs.
    """
    named: dict[Path, str] = {}
    of_part = (path for path in chosen if path.name in TABLES and len(path.parts) > 1)
    for path in (*filter(is_requirements, chosen), *of_part):
        for findings in _read_all((path,), tree.root, []):
            for one in findings.requirements:
                if name := framework_name(one.name, greater=True):
                    named.setdefault(path, name)
    if len(set(named.values())) <= 1:
        return chosen, (), tree
    files = {one.module: one.files for one in imported_modules(tree)[0]}
    first = chosen_framework(named, files, tree.root)
    others = tuple(path for path in chosen if named.get(path, first) != first)
    notes.append(f"this image is for {first}; another one: envbuild init {_path_name(others[0])}")
    tree = without_code_for(tree, first, tuple(named[path] for path in others))
    return tuple(path for path in chosen if path not in others), others, tree


def _framework_list(
    chosen: Paths, left: Paths, all_findings: list[FileFindings], root: Path
) -> Paths:
    """Return a list that names the framework (requirements-jax.txt), where the others name none.

    Of several with one name in folders side by side, another one will do.
    """
    if _has_framework(all_findings):
        return ()
    names = {path.name for path in chosen if len(path.parts) > 1 and is_requirements(path)}
    beside = names if len(names) == len(chosen) else set()
    for path in filter(is_requirements, left):
        about = ABOUT_FRAMEWORK.search(path.name.lower())
        if about or (path.name in beside and _has_framework(_read_all((path,), root, []))):
            return (path,)
    return ()


def _has_framework(all_findings: list[FileFindings], *, implied: bool = False) -> bool:
    listed = [one.name for one in chain.from_iterable(one.requirements for one in all_findings)]
    named = any(framework_name(name, greater=True) for name in listed)
    return named or (implied and any(map(implied_framework, listed)))


def _gather_file(path: Path) -> ProjectFindings:
    root = path.parent
    stem = path.name.split(".")[0] if path.name.count(".") else path.name
    generic = re.match(
        r"(requirements?|environment|env|pyproject|setup|Pipfile|Dockerfile|Singularity"
        r"|Containerfile)",
        path.name,
    )
    name = recipe_name(root.resolve().name if generic else stem)
    code = (Path(path.name),) if path.suffix == ".py" and path.name != "setup.py" else ()
    notebooks = (Path(path.name),) if path.suffix == ".ipynb" else ()
    beside = [one.stem for one in root.glob("*.py")]
    tree = ProjectTree(
        root=root,
        lists=(),
        aside=(),
        code=code,
        notebooks=notebooks,
        modules=frozenset(beside if code or notebooks else ()),
    )
    if code or notebooks:
        found, notes = imported_modules(tree)
        if notes:
            raise UsageError(
                "is not a notebook as Jupyter writes it", where=as_printable(str(path))
            )
        installs = read_notebook(path, root) if notebooks else None
        return ProjectFindings(
            name=name, all_findings=(installs,) if installs else (), imports=found, tree=tree
        )
    findings = read_list(path, root)
    if findings is None:
        hint = "name a list of requirements, an environment.yml, a Dockerfile or a definition"
        what = "does not list what a project needs"
        raise UsageError(what, where=as_printable(str(path)), hint=hint)
    return ProjectFindings(
        name=recipe_name(findings.title or name), all_findings=(findings,), imports=(), tree=tree
    )


def recipe_name(text: str) -> str:
    """Return a name that a recipe may have."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64]
    if re.search("[A-Za-z]", name):
        return name
    return f"project-{name}"[:64] if name else "project"  # a folder "実験 1"


READERS: dict[str, Callable[[Path, Path], FileFindings | None]] = {
    "pyproject.toml": read_project_table,
    "pixi.toml": read_pixi,
    "setup.cfg": read_setup_cfg,
    "setup.py": read_setup_py,
    "Pipfile": read_pipfile,
    "cog.yaml": read_cog,
}
"""Files that are known by their whole name."""


def read_list(path: Path, root: Path) -> FileFindings | None:
    """Read one list by its kind.  Raises UsageError for what cannot be read or lies outside."""
    if not is_inside(path, root):
        raise UsageError(
            "is a link that leads out of the project, or nowhere", where=shown_path(path, root)
        )
    if path.name in READERS:
        return READERS[path.name](path, root)
    if path.suffix in (".yml", ".yaml"):
        return read_conda(path, root)
    if path.suffix == ".def" or re.match(
        r"Dockerfile|Containerfile|Singularity|.*[Dd]ockerfile$", path.name
    ):
        return read_container(path, root)
    printed = read_printed(path, root)
    if printed is None and path.suffix == ".json":  # a devcontainer.json
        return None
    return printed or read_requirements(path, root)
