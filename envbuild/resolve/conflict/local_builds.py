"""Builds with a local version (2.5.1+cu118), which only their makers' own index has."""

from __future__ import annotations

import re
from collections.abc import Collection

from envbuild.names import Texts
from envbuild.resolve.conflict.explain import Problem

LOCAL = re.compile(r"==\s*[^,;\s=]*\+([A-Za-z0-9][A-Za-z0-9.]*)")


def advise_local_builds(problem: Problem, indexes: Collection[str]) -> Texts:
    """Return how to name the index of such builds, where the recipe names none yet."""
    # a build of what the base holds is refused, whatever index has it
    free = [one.written for one in problem.directs if one.name not in problem.stubs.by_name]
    found = LOCAL.search("\n".join(free))
    if found is None or len(indexes) > 1:
        return ()
    name = found[1]
    variable = "ENVBUILD_INDEX_" + re.sub(r"\W", "_", name).upper()
    advice = (
        f'name the index of the builds "+{name}": indexes = ["{name}"] under [python], '
        f"and its address on this machine: export {variable}=https://…"
    )
    return (advice,)
