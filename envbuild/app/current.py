"""Tell whether an image is that of its recipe's lock of today."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.errors import EnvbuildError, StaleLockError

if TYPE_CHECKING:
    from envbuild.context import Context
    from envbuild.recipe.model import Source


@dataclass(frozen=True, kw_only=True, slots=True)
class Old:
    """Why an image is not the one that its recipe asks for today, and the command that makes that one."""

    reason: str
    remedy: str


def recipe_of(name: str | None, context: Context) -> Source | None:
    """Return the recipe that a name stands for (None: the only one), None for an image on its own."""
    from envbuild.recipe.find import find_recipe, recipe_files

    if name is not None:
        if "/" in name or name.endswith(".sif"):
            return None
        if (
            name not in recipe_files(context.settings)
            and (context.settings.cwd / f"{name}.sif").exists()
        ):
            return None
    return find_recipe(name, context.settings)


def find_old(image: Path, source: Source | None) -> Old | None:
    """Return why an image is old; None where it is current, or where nothing tells."""
    from envbuild.build.image.origin import locked_by
    from envbuild.lock.digest import lock_digest
    from envbuild.lock.read import read_lock
    from envbuild.lock.staleness import staleness

    if source is None or not source.lock.is_file() or not image.is_file():
        return None
    name = source.recipe.name
    try:
        lock = read_lock(source.lock)
    except EnvbuildError:
        return None  # whoever needs the lock tells what is wrong with it
    origin = locked_by(image)
    if reasons := staleness(source.recipe, lock):
        reason = f"the recipe was changed: {'; '.join(reasons)}"
        return Old(reason=reason, remedy=f"envbuild lock {name} && envbuild make {name}")
    if origin is not None and origin != lock_digest(lock):
        return Old(
            reason=f"it was made from another lock than {source.lock.name}",
            remedy=f"envbuild make {name}",
        )
    return None


def tell_old(image: Path, source: Source | None, context: Context) -> None:
    """Say so where an image is an old one."""
    old = find_old(image, source)
    if old is not None:
        context.report.say(f"note: {image.name} is old: {old.reason}; for a new one: {old.remedy}")


def refuse_old(image: Path, source: Source | None) -> None:
    """Raise StaleLockError for an image that is old."""
    old = find_old(image, source)
    if old is not None:
        hint = f"{old.remedy}\n--stale submits it as it is"
        raise StaleLockError(f"the image is old: {old.reason}", where=image.name, hint=hint)


def cuda_in(image: Path, source: Source | None) -> str | None:
    """Return the CUDA of an image as its lock tells it; None without CUDA, and where there is no lock to ask."""
    from envbuild.build.image.verify import read_carried
    from envbuild.lock.cuda import cuda_of
    from envbuild.lock.read import read_lock

    if source is not None and source.recipe.base.cpu:
        return None
    try:
        lock = (
            read_lock(source.lock) if source and source.lock.is_file() else read_carried(image).lock
        )
    except EnvbuildError:
        return None
    return cuda_of(lock) if lock else None
