"""Which Debian packages are put over an image as base: those of its release that it lacks."""

from __future__ import annotations

from typing import Literal

from envbuild.base.debian.apt import read_lists, resolve_debian
from envbuild.base.debian.distribution import release_of
from envbuild.base.model import BaseFacts, DebianPackage
from envbuild.context import Context
from envbuild.lock.model import Lock
from envbuild.recipe.model import Recipe

GROUPS: tuple[Literal["system", "build"], ...] = ("system", "build")


def choose_system(
    recipe: Recipe,
    facts: BaseFacts,
    old: Lock | None,
    context: Context,
) -> tuple[DebianPackage, ...]:
    """Return the packages of [system]: the old lock's where nothing changed, else today's.

    They come from the release as it was published, which mirrors keep.  Raises UsageError for a
    base that is neither Debian nor Ubuntu and for a name that its release lacks, NoSolutionError
    where the base's packages stand against.
    """
    wanted = {"system": recipe.system.packages, "build": recipe.system.build_packages}
    names = (*wanted["system"], *wanted["build"])
    if not names:
        return ()
    # the same packages over the same image: nothing is to be chosen
    if old is not None and old.system == names and old.base.digest == facts.digest:
        return old.debian
    distribution, suite = release_of(facts.distro or "")
    with context.report.stage(f"choose the {distribution.title} packages ({suite})") as stage:
        lists = read_lists(
            suite,
            context,
            stage,
            machine=facts.machine,
            distribution=distribution,
        )
        chosen: tuple[DebianPackage, ...] = ()
        for group in GROUPS:
            chosen += resolve_debian(
                lists,
                wanted[group],
                context,
                group=group,
                installed=(*facts.apt, *chosen),
            )
    return chosen
