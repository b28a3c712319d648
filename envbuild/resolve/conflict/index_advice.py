"""What to do about names and files of an index that no other answer would mend."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.data.package_tables import load_aliases
from envbuild.resolve.conflict.explain import (
    BROKEN,
    MISSING,
    NO_WHEELS,
    ConflictError,
    Problem,
    empty_pages,
    name_of,
)


def advise_on_index(conflict: ConflictError, problem: Problem) -> Iterable[str]:
    """Yield what to do about names and files of the index that no other answer would mend."""
    elsewhere = load_aliases().elsewhere
    for name in dict.fromkeys(
        (*MISSING.findall(conflict.text), *(n for n in conflict.traps if n in elsewhere))
    ):
        if name in elsewhere:
            yield f"leave out {name}, or bring it otherwise: {elsewhere[name]}"
        else:
            yield (
                f"check the spelling of {name}; packages of another index need its name under "
                "[python] indexes"
            )
    for name in conflict.traps:
        if name not in elsewhere:
            yield (
                f"name the index that has the real {name} under [python] indexes, or look at what "
                "is there by that name, and write it under [python] dependencies if you want it"
            )
    for name in empty_pages(conflict):
        yield (
            f"look at what the index answers for {name}: a login or error page of a proxy offers "
            "nothing either"
        )
    if BROKEN.search(conflict.text):
        yield "take another index, or clear the cache of the mirror or proxy that answers here"
    machine = problem.facts.machine
    lacking = [
        name_of(package) for package, tag in NO_WHEELS.findall(conflict.text) if "platform" in tag
    ]
    if lacking and machine != "x86_64":
        names = ", ".join(dict.fromkeys(lacking))
        yield f"leave out {names}, or take a base for another machine than {machine}"
