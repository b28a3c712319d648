"""Source trees of a lock: packed when it is made, compared when it is used."""

from __future__ import annotations

from msgspec import structs

from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.errors import StaleLockError, UsageError
from envbuild.lock.model import EVERYTHING, Lock, PythonPackage
from envbuild.names import Texts
from envbuild.net.partial import is_complete
from envbuild.recipe.model import Source
from envbuild.recipe.trees import TreeLine, project_folder, read_source, read_tree_line
from envbuild.resolve.sources.source_trees import (
    SourceTree,
    SourceTreeContext,
    repack_tree,
    take_tree,
    tree_digest,
    tree_requirement,
)


def take_trees(
    source: Source, facts: BaseFacts, old: Lock | None, upgrade: Texts, context: Context
) -> tuple[Texts, tuple[SourceTree, ...]]:
    """Pack the trees of a recipe; return requirements with name and version for them.

    A commit that the old lock chose is kept, unless its package is to be upgraded.
    """
    if all(read_tree_line(written) is None for written in source.recipe.python.dependencies):
        return source.recipe.python.dependencies, ()
    from envbuild.resolve.uv.interpreter import build_python  # late: a make only looks at the trees

    places = _tree_context(source, context, build_python(facts, context.settings))
    lines: list[str] = []
    trees: list[SourceTree] = []
    for written in source.recipe.python.dependencies:
        line = read_tree_line(written)
        if line is None:
            lines.append(written)
            continue
        with context.report.stage(f"pack {line.folder or line.url}"):
            tree = take_tree(line, places, locked=_locked_source(line, old, upgrade))
        if any(tree.name == other.name for other in trees):
            raise UsageError(f"{tree.name} is asked for twice", where=repr(written))
        trees.append(tree)
        lines.append(tree_requirement(tree, line))
    return tuple(lines), tuple(trees)


def with_sources(lock: Lock, trees: tuple[SourceTree, ...]) -> Lock:
    """Return a lock that says of its source trees what they are."""
    sources = {tree.sha256: tree.source for tree in trees}
    if not sources:
        return lock
    return structs.replace(
        lock, python=tuple(structs.replace(p, source=sources.get(p.sha256)) for p in lock.python)
    )


def require_trees(source: Source, lock: Lock, context: Context) -> None:
    """Bring the source trees that the store lacks.

    Raises StaleLockError where a folder of the project is not what was locked.
    """
    places = _tree_context(source, context, "")
    for package in (p for p in lock.python if p.source is not None):
        _require_unchanged(package, places, source)
        if not is_complete(context.store.artifact(package.sha256), package.size):
            with context.report.stage(f"pack {package.source}"):
                repack_tree(package.source or "", package.file, package.sha256, places)


def _require_unchanged(package: PythonPackage, places: SourceTreeContext, source: Source) -> None:
    line = read_source(package.source or "")
    if line.folder is None:
        return  # a commit never changes
    # the archive is packed again: times and names in a listing would say less
    if tree_digest(line, package.file, places) != package.sha256:
        raise StaleLockError(
            f"the files of {package.source} ({package.name} {package.version}) were changed since "
            "they were locked",
            where=source.lock,
            hint=f"run: envbuild lock {source.recipe.name}\n"
            "code that changes often better stays outside the image: exec and run bind the "
            "project's folder",
        )


def _tree_context(source: Source, context: Context, python: str) -> SourceTreeContext:
    return SourceTreeContext(project=project_folder(source.path), context=context, python=python)


def _locked_source(line: TreeLine, old: Lock | None, upgrade: Texts) -> str | None:
    """Return the source that the old lock has for a line that was written the same then."""
    if old is None or line.folder is not None or line.written not in old.direct:
        return None
    if {line.name, EVERYTHING} & set(upgrade):
        return None
    sources = (package.source or "" for package in old.python)
    return next((one for one in sources if one.startswith(f"git+{line.url}@")), None)
