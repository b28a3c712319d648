"""What would change one package of a lock."""

from __future__ import annotations

from envbuild.app.lock import lock_target, resolve_lock
from envbuild.base.facts import cached_facts
from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.lock.changes import asked_line
from envbuild.lock.decide.options import LockOptions
from envbuild.lock.dependency_paths import conda_package, locked_package
from envbuild.lock.model import Lock
from envbuild.recipe.model import Source, asking_for
from envbuild.records import replace


def find_outlook(source: Source, lock: Lock, package: str, context: Context) -> str:
    """Say what locking again with a free choice of one package would give.

    A failure is told, not raised.
    """
    held = locked_package(lock, package)
    if held is None:
        return _find_other_outlook(source, lock, package, context)
    if held.group == "framework":
        return "only with another release under [base] framework"
    # why the first question of an empty store takes minutes
    if cached_facts(lock.base.digest, context.store) is None:
        context.report.say(
            f"what would change it: {lock.base.reference} is not in the store, so it is made or "
            "downloaded first (--offline: the lock alone)"
        )
    wish = _free_choice(source, lock, package, context)
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
    line = asked_line(lock, package) or ""
    pinned = f'not while the recipe asks for "{line}"'
    later = "; with a later as-of under [python] perhaps" if lock.as_of else ""
    newest = f"nothing{as_of}: it is the newest for this base{later}"
    return pinned if "==" in line else newest


def _free_choice(source: Source, lock: Lock, package: str, context: Context) -> LockOptions:
    return LockOptions(
        as_of=lock.as_of or "none",
        upgrade=(package,),
        old=lock,
        target=lock_target(source, context),
    )


def _find_other_outlook(source: Source, lock: Lock, package: str, context: Context) -> str:
    """Say it of a conda package, or of one that the base holds."""
    held = conda_package(lock, package)
    if held is None:
        return "never, while the base holds it and what you ask for allows it"
    as_of = source.recipe.conda.as_of
    wish = replace(_free_choice(source, lock, held.name, context), as_of=as_of)
    try:
        other = resolve_lock(source, wish, context)
    except EnvbuildError as error:
        return f"not known: {error}"
    after = conda_package(other, held.name)
    if after is None or after.file == held.file:
        return "nothing: no newer one of the channels fits the rest" + (
            "; with a later as-of under [conda] perhaps" if as_of else ""
        )
    name = source.recipe.name
    return f"to {after.version} {after.build}, with envbuild lock {name} --upgrade {held.name}"
