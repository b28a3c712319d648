"""The lock that an image is compared with."""

from __future__ import annotations

from pathlib import Path

from envbuild.app.spec import build_spec
from envbuild.build.image.embedded import read_embedded_info
from envbuild.build.model import BuildSpec
from envbuild.context import Context
from envbuild.errors import EnvbuildError, UsageError
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.recipe.find import find_recipe


def find_lock_of_image(path: Path, image: str, context: Context) -> tuple[Lock, BuildSpec | None]:
    """Return the lock to compare with and, where its recipe is at hand, the order that makes the image."""
    carried = read_embedded_info(path)
    name = carried.note.recipe if carried.note else Path(image).stem
    try:
        source = find_recipe(name, context.settings)
        lock = read_lock(source.lock)
    except EnvbuildError as error:
        if carried.lock is None:
            raise UsageError(
                "carries no lock, and there is no recipe of its name",
                where=path,
                hint=error.hint,
            ) from error
        return carried.lock, None
    if carried.lock is not None and lock_digest(lock) != lock_digest(carried.lock):
        context.report.say(
            f"{source.lock} is another lock; comparing with the one inside the image"
        )
        return carried.lock, None
    mode = carried.note.mode if carried.note else "fakeroot"
    return lock, build_spec(source, lock, path, mode, context)
