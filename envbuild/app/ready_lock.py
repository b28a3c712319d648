"""The lock that a recipe has: where it is, and what is demanded of it."""

from __future__ import annotations

from pathlib import Path

from envbuild.context import Context
from envbuild.errors import StaleLockError
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.lock.staleness import stale_reasons
from envbuild.lock.write import write_lock
from envbuild.recipe.find import require_own_folder
from envbuild.recipe.model import Source
from envbuild.store.atomic import clear_partials, write_text


def write_own_lock(source: Source, lock: Lock, context: Context) -> Path:
    """Write a lock where it was read from, but never into envbuild's own installation.

    Return the path.
    """
    # where the lock of a recipe is written: never into envbuild's own installation
    settings = context.settings
    target = source.lock
    if source.shipped and not target.resolve().is_relative_to(settings.cwd.resolve()):
        target = settings.cwd / "lockfiles" / source.lock.name
    require_own_folder(target, context.settings)
    clear_partials(target)
    write_text(target, write_lock(lock))
    return target


def require_lock(source: Source) -> Lock:
    """Read a recipe's lock.  Raises StaleLockError where there is none."""
    if not source.lock.is_file():
        hint = f"run: envbuild lock {source.recipe.name}"
        raise StaleLockError("there is no lock yet", where=source.lock, hint=hint)
    return read_lock(source.lock)


def require_fresh_lock(source: Source) -> Lock:
    """Read a recipe's lock.  Raises StaleLockError where there is none, or where it no longer fits."""
    lock = require_lock(source)
    reasons = stale_reasons(source.recipe, lock)
    if reasons:
        raise StaleLockError(
            f"the lock no longer fits {source.path.name}: {'; '.join(reasons)}",
            where=source.lock,
            hint=f"run: envbuild lock {source.recipe.name}",
        )
    return lock


def require_whole_lock(source: Source, context: Context) -> Lock:
    """Read a lock that fits, and bring the project's own files of it into the store.

    Raises StaleLockError also where these files were changed.
    """
    lock = require_fresh_lock(source)
    if lock.files:
        from envbuild.lock.decide.project_files import require_files  # late: few locks have them

        require_files(source, lock, context)
    if any(package.source is not None for package in lock.python):
        from envbuild.lock.decide.source_trees import require_trees  # late: few locks have them

        require_trees(source, lock, context)
    return lock
