"""What would change one package of a lock."""

from __future__ import annotations

from envbuild.app.lock import lock_target, resolve_lock
from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.lock.decide.decide import LockOptions
from envbuild.lock.dependency_paths import locked_package
from envbuild.lock.model import Lock
from envbuild.recipe.model import Source, asking_for


def find_outlook(source: Source, lock: Lock, package: str, context: Context) -> str:
    """Say what locking again with a free choice of one package would give; a failure is told, not raised."""
    held = locked_package(lock, package)
    if held is None:
        return "never, while the base holds it and what you ask for allows it"
    if held.group == "framework":
        return "only with another release under [base] framework"
    wish = LockOptions(
        as_of=lock.as_of or "none",
        upgrade=(package,),
        old=lock,
        target=lock_target(source, context),
    )
    try:
        other = resolve_lock(asking_for(source, package), wish, context)
    except EnvbuildError as error:
        return f"not known: {error}"
    hold = next((row for row in other.held_back if row.name == package), None)
    after = locked_package(other, package)
    as_of = f" as of {lock.as_of}" if lock.as_of else ""
    if after is not None and after.version != held.version:
        return f"to {after.version}, with envbuild lock {source.recipe.name} --upgrade {package}"
    if hold is not None:
        return f"to {hold.newest}, if it were not that {hold.reason}"
    return f"not{as_of}: it is the newest that there is for this base" + (
        "; with a later as-of under [python] perhaps" if lock.as_of else ""
    )
