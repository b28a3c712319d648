"""A lock in the form that another tool reads."""

from __future__ import annotations

from envbuild.app.definition import definition_text, dockerfile_text
from envbuild.build.fetch import wanted_files
from envbuild.build.image.metadata import write_sbom
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.lock.export import pylock_text, requirements_text
from envbuild.lock.model import Lock
from envbuild.net.fetch import locate_files
from envbuild.net.index import index_url
from envbuild.net.redact import without_user
from envbuild.recipe.model import Recipe
from envbuild.store.units import count_noun


def export_lock(form: str, recipe: Recipe, lock: Lock, context: Context) -> str:
    """Return a lock as another tool reads it.  Raises UsageError for what that cannot name."""
    if form == "sbom":
        return write_sbom(recipe.name, lock).decode() + "\n"
    if form in ("def", "dockerfile"):
        return (dockerfile_text if form == "dockerfile" else definition_text)(recipe, lock)
    trees = [
        f"{package.name} ({package.source})"
        for package in lock.python
        if package.source is not None
    ]
    if trees:
        raise UsageError(
            f"{', '.join(trees)}: a source tree is on no index, so {form} cannot name it",
            where=recipe.name,
        )
    return _pylock_text(lock, context) if form == "pylock" else _requirements_text(lock, context)


def _pylock_text(lock: Lock, context: Context) -> str:
    kept = {package.sha256 for package in lock.installed}
    wanted = [item for item in wanted_files(lock) if item.sha256 in kept]
    with context.report.stage(f"look up where {count_noun(len(wanted), 'file is', 'files are')}"):
        located = locate_files(wanted, settings=context.settings, runner=context.runner)
    return pylock_text(lock, located)


def _requirements_text(lock: Lock, context: Context) -> str:
    names = sorted({package.index for package in lock.installed if package.index})
    return requirements_text(
        lock,
        {name: without_user(index_url(context.settings, context.runner, name)) for name in names},
    )
