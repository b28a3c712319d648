"""Gather the direct requirements: what lists ask for, and what the code imports and no list names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from envbuild.base.suggest import framework_name
from envbuild.project.making import MOST_NAMED, Making, few
from envbuild.project.model import Imported, Index, Need, Proposal, Saying
from envbuild.project.names import canonical
from envbuild.resolve.couplings import load_aliases

WITH_TENSORFLOW = ("keras", "tensorboard", "protobuf", "absl-py")
"""Distributions that TensorFlow itself asks for."""


def declared(making: Making, used: frozenset[str], index: Index) -> list[Need]:
    """Return what lists ask for: direct lists as they are, dumps only where there is no direct list, reduced."""
    direct = [saying for saying in making.gathered.sayings if not saying.frozen and saying.needs]
    dumps = [saying for saying in making.gathered.sayings if saying.frozen]
    needs = [need for saying in direct for need in saying.needs]
    enough = any(not saying.image and saying.needs for saying in direct)
    for saying in dumps:
        if enough:
            making.note(
                "python",
                f"{saying.file} is a dump of a whole environment: the direct lists were taken instead",
            )
            continue
        roots, how = _roots(saying, used, index)
        making.note(
            "python",
            f"{saying.file} is a dump of {len(saying.needs)} packages; {len(roots)} are its roots ({how})",
        )
        needs += roots
    for saying in making.gathered.sayings:
        for text, reason in () if saying.frozen and enough else saying.aside:
            making.note("python", f"not taken: {text} ({reason})")
    ourselves = making.gathered.own | {
        saying.project for saying in making.gathered.sayings if saying.project
    }
    parts = sorted({need.name for need in needs} & making.gathered.own)
    if parts:
        making.note(
            "python",
            f"not taken: {', '.join(parts)}: part of this project, whose folder is bound when it runs",
        )
    return [need for need in needs if need.name not in ourselves]


def _roots(saying: Saying, used: frozenset[str], index: Index) -> tuple[tuple[Need, ...], str]:
    if saying.direct:
        return tuple(
            need for need in saying.needs if need.name in saying.direct
        ), "it says so itself"
    return index.reduce(saying.needs, used)


def undeclared(
    making: Making, needs: list[Need], modules: Mapping[str, str | None], has: Mapping[str, str]
) -> list[Need]:
    """Return what the code imports and no list names; what is not certain becomes a comment.

    ``has`` are distributions of the lists by the modules in their wheels.
    """
    named = {need.name for need in needs}
    elsewhere = {
        name
        for saying in making.gathered.sayings
        for text, _ in saying.aside
        if (name := _name_of(text))
    }
    frameworks = {name for name in map(framework_name, named) if name}
    complete = any(saying.complete for saying in making.gathered.sayings)
    found: list[Need] = []
    unknown: list[Imported] = []
    optional: list[str] = []
    for one in making.gathered.imports:
        dist = modules[one.module]
        if one.module in has or _has_name(one.module, named | elsewhere, known=bool(dist)):
            continue
        if dist is None:
            unknown.append(one)
        elif not dist:
            making.note(
                "python",
                f"not taken: {one.module} ({one.where}): no index has it; it is built from its own repository",
            )
        elif _is_there(dist, named | elsewhere):
            continue
        elif one.certain and (not frameworks if framework_name(dist) else not complete):
            found.append(Need(text=dist, name=dist, where=f"imported in {one.where}"))
        elif dist not in optional:
            optional.append(dist)
    _tell_imports(making, found, unknown, optional, listed=bool(named))
    return found


def _name_of(text: str) -> str | None:
    """Return the name in a requirement that is not taken: "NAME @ git+…", "git+…#egg=NAME", the end of an address."""
    egg = re.search(r"[#&]egg=([\w.-]+)", text)
    direct = re.match(r"([A-Za-z0-9][\w.-]*)\s*(\[[^]]*\])?\s*(@|[<>=!~;]|$)", text)
    end = re.search(r"/([A-Za-z0-9][\w.-]*?)(\.git)?(@[^/]*)?/?$", text)
    found = egg or direct or end
    return canonical(found[1]) if found else None


def _has_name(module: str, names: set[str], *, known: bool) -> bool:
    """Whether a package is called as a module; of a module that no table knows, a word of the name is enough."""
    name = canonical(module)
    return name in names or (
        not known and len(name) > 2 and any(f"-{name}-" in f"-{one}-" for one in names)
    )


def _is_there(dist: str, named: set[str]) -> bool:
    """Whether a distribution, or another one with the same modules, is named already."""
    stand_ins = load_aliases().exclusive.values()
    if dist in named or any(dist in group and named & set(group) for group in stand_ins):
        return True
    if f"{dist}-binary" in named or dist.removesuffix("-binary") in named:
        return True
    if framework_name(dist) and any(framework_name(name) == framework_name(dist) for name in named):
        return True
    return dist in WITH_TENSORFLOW and any(framework_name(name) == "tensorflow" for name in named)


def _tell_imports(
    making: Making, found: list[Need], unknown: list[Imported], optional: list[str], *, listed: bool
) -> None:
    if found and listed:
        names = tuple(sorted(need.text for need in found))
        making.proposals.append(
            Proposal(
                kind="import",
                question=f"add what the code imports and no list names: {few(names)}?",
                values=names,
                reason="imported at the top of the project's code",
            )
        )
    certain = [one for one in unknown if one.certain]
    for one in certain[:MOST_NAMED]:
        making.note(
            "python",
            f"unknown: the module {one.module} ({one.where}) is in no table; add the package that has it",
        )
    if len(certain) > MOST_NAMED:
        making.note(
            "python",
            f"unknown: and {len(certain) - MOST_NAMED} more: {few([one.module for one in certain[MOST_NAMED:]])}",
        )
    if optional:
        making.note(
            "python",
            f"imported and in no list, but not needed at every start, so not taken: {few(optional)}",
        )
