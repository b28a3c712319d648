"""Whether a lock still fits its recipe, and its files those of the lock before."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.errors import IntegrityError
from envbuild.lock.digest import recipe_digest
from envbuild.lock.model import Lock
from envbuild.names import Texts
from envbuild.recipe.model import Recipe


def stale_reasons(recipe: Recipe, lock: Lock) -> Texts:
    """Return why the lock no longer fits the recipe, one line a reason; empty when it fits."""
    if lock.name != recipe.name:
        return (f"it is the lock of {lock.name}",)
    # nothing that a lock depends on was changed
    if recipe_digest(recipe) == lock.recipe_digest:
        return ()
    reasons = _changed_lines("requirement", recipe.python.dependencies, lock.direct)
    system = (*recipe.system.packages, *recipe.system.build_packages)
    reasons += _changed_lines("system package", system, lock.system)
    reasons += _changed_lines("conda channel", recipe.conda.channels, lock.channels)
    reasons += _changed_lines("conda package", recipe.conda.dependencies, lock.conda_direct)
    reference = recipe.base.image or recipe.base.bootstrap
    if reference != lock.base.reference:
        reasons.append(f'the base was changed from "{lock.base.reference}" to "{reference}"')
    if recipe.base.platform != lock.platform:
        reasons.append(f"the platform was changed from {lock.platform} to {recipe.base.platform}")
    wanted_files, locked_files = (
        recipe.files,
        {locked.source: locked.target for locked in lock.files},
    )
    reasons += [
        f'[files] "{name}" was changed'
        for name in sorted({*wanted_files, *locked_files})
        if wanted_files.get(name) != locked_files.get(name)
    ]
    return tuple(reasons) or (
        "another line of [base], [python], [system], [conda] or [target] was changed",
    )


def _changed_lines(what: str, wanted: Sequence[str], locked: Sequence[str]) -> list[str]:
    added = [f'{what} "{line}" was added' for line in wanted if line not in locked]
    removed = [f'{what} "{line}" was removed' for line in locked if line not in wanted]
    return added + removed


def refuse_changed_files(before: Lock | None, after: Lock) -> None:
    """Raise IntegrityError where an index offers other content under a locked file name."""
    if before is None:
        return
    known = _published_files(before)
    for file, sha256 in _published_files(after).items():
        if known.get(file, sha256) != sha256:
            raise IntegrityError(
                f"the index now offers another file of that name: sha256 {sha256}, locked was "
                f"{known[file]}",
                where=file,
                hint="published files never change: find out who replaced it before you go on\n"
                "remove the old lock only if you trust the new file",
            )


def _published_files(lock: Lock) -> dict[str, str]:
    """Return the hashes of files of an index or channel; a tree is packed here, and may change."""
    wheels = {item.file: item.sha256 for item in lock.python if item.source is None}
    return wheels | {item.file: item.sha256 for item in lock.conda}
