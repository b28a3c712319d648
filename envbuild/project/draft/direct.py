"""Find the direct requirements: those of lists, and imports that no list names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envbuild.base.suggest import framework_name
from envbuild.data.package_tables import load_aliases, load_names
from envbuild.project.conda.environment import INSTALLATION
from envbuild.project.draft.age import torch_bounds
from envbuild.project.draft.builder import MOST_NAMED, DraftBuilder, name_few
from envbuild.project.draft.clean import bounds_of
from envbuild.project.model import FileFindings, ImportedModule, PackageIndex, Proposal, Requirement
from envbuild.project.names import FOR_DEVELOPERS, conda_name, distribution_of, shared_name

NOT_ON_INDEX = "no index has it; it is built from its own repository"
WITH_TENSORFLOW = ("keras", "tensorboard", "protobuf")
"""Distributions that TensorFlow itself asks for."""


def listed_requirements(
    builder: DraftBuilder, used: frozenset[str], index: PackageIndex
) -> list[Requirement]:
    """Return what lists ask for; a dump counts only where there is no direct list."""
    direct = [
        findings
        for findings in builder.gathered.all_findings
        if not findings.frozen and findings.requirements
    ]
    dumps = [findings for findings in builder.gathered.all_findings if findings.frozen]
    requirements = list(chain.from_iterable(_needed_ones(builder, one, used) for one in direct))
    enough = any(not findings.image and findings.requirements for findings in direct)
    of_project = [findings for findings in dumps if not _is_of_installation(findings)]
    for findings in dumps:
        if enough:
            builder.note(
                "python",
                f"{findings.file} is a dump of a whole environment: the direct lists were "
                "taken instead",
            )
            beside = {Path(one.file).parent for one in direct}
            if Path(findings.file).parent in {Path(), *beside}:
                requirements += _frameworks_of(findings, requirements)
                requirements += _needed_of_dump(builder, findings, requirements)
            continue
        if of_project and findings not in of_project:
            other = of_project[0].file
            builder.note(
                "python",
                f"{findings.file} is a dump of a conda installation: {other} was taken instead",
            )
            continue
        roots, how = _roots_of_dump(findings, used, index)
        builder.note(
            "python",
            f"{findings.file} is a dump of {len(findings.requirements)} packages; "
            f"{len(roots)} are taken ({how})",
        )
        requirements += roots
    for findings in builder.gathered.all_findings:
        for text, reason in () if findings.frozen and enough else findings.aside:
            builder.note("python", f"not taken: {text} ({reason})")
    return _without_own(builder, requirements)


def _needed_of_dump(
    builder: DraftBuilder, dump: FileFindings, listed: Iterable[Requirement]
) -> list[Requirement]:
    """Return what a dump has, no list names, and the code cannot start without.

    What no table knows is the package of the module's own name.
    """
    unknown = {
        canonicalize_name(one.module)
        for one in builder.gathered.imports
        if one.certain and distribution_of(one.module) is None
    }
    needed = (_certain_distributions(builder) | unknown) - {one.name for one in listed}
    return [one for one in dump.requirements if one.name in needed]


def _certain_distributions(builder: DraftBuilder) -> set[str | None]:
    """Return the distributions of what the code imports for certain."""
    return {distribution_of(one.module) for one in builder.gathered.imports if one.certain}


def _without_own(builder: DraftBuilder, requirements: list[Requirement]) -> list[Requirement]:
    """Return them without the project itself, its parts, and tools for developers."""
    ourselves = builder.gathered.own | {
        findings.project for findings in builder.gathered.all_findings if findings.project
    }
    parts = sorted({requirement.name for requirement in requirements} & builder.gathered.own)
    if parts:
        builder.note(
            "python",
            f"not taken: {', '.join(parts)}: part of this project, whose folder is bound "
            "when it runs",
        )
    modules = {canonicalize_name(module) for module in builder.gathered.tree.modules}
    alike = {one.name for one in requirements if one.name in modules and not conda_name(one.name)}
    for name in sorted(alike - ourselves):
        builder.note("python", f"not taken: {name}: a module of this project is called so")
    tools = {one.name for one in requirements if FOR_DEVELOPERS.fullmatch(one.name)}
    tools -= _certain_distributions(builder)
    if tools:
        builder.note(
            "python", f"not taken, because only developers need them: {name_few(sorted(tools))}"
        )
    return [one for one in requirements if one.name not in ourselves | tools | alike]


def _needed_ones(
    builder: DraftBuilder, findings: FileFindings, used: frozenset[str]
) -> list[Requirement]:
    """Return what a list asks for; of another way to install, only what the code imports.

    A script at the root is the one way to install the project, as a list is.
    """
    if not findings.only_imported or re.fullmatch(r"[^/]+\.sh", findings.file):
        return list(findings.requirements)
    imported = used | {canonicalize_name(one.module) for one in builder.gathered.imports}
    # each of these packages has the module that is imported (opencv-python, its headless build)
    for same_files in load_aliases().exclusive.values():
        if imported.intersection(same_files):
            imported |= set(same_files)
    # a pin is the author's own: a package that is never imported needs it
    imported |= {one.name for one in findings.requirements if "==" in one.text}
    others = (one for one in builder.gathered.all_findings if not one.only_imported)
    listed = {one.name for one in chain.from_iterable(other.requirements for other in others)}
    needless = sorted({one.name for one in findings.requirements} - imported - listed)
    if needless:
        why = f"{findings.file} installs what no code imports, so it is not taken"
        builder.note("python", f"{why}: {name_few(needless)}")
    return [one for one in findings.requirements if one.name in imported]


def _frameworks_of(dump: FileFindings, direct: list[Requirement]) -> list[Requirement]:
    """Return a dump's pins of frameworks that direct lists name: the project was tried with them.

    Where a direct list bounds PyTorch by a companion, or has bounds that the pin is outside of, the
    dump is of another time.
    """
    named = {framework_name(one.name) for one in direct} - {None}
    if not named:
        return [one for one in dump.requirements if framework_name(one.name, greater=True)]
    pins = {framework_name(one.name): one for one in dump.requirements}
    named -= {framework_name(one.name) for one in direct if _is_outside(pins, one)}
    if any(torch_bounds(one) for one in direct):
        named.discard("torch")
    return [one for one in dump.requirements if framework_name(one.name) in named]


def _is_outside(pins: Mapping[str | None, Requirement], listed: Requirement) -> bool:
    """Whether the pin of a listed framework is a release that the list does not admit."""
    pin = pins.get(framework_name(listed.name))
    pinned = re.fullmatch(r"==\s*([\w.]+)(\+\S+)?", bounds_of(pin)) if pin else None
    return pinned is not None and not SpecifierSet(bounds_of(listed)).contains(pinned[1])


def _is_of_installation(dump: FileFindings) -> bool:
    """Whether a dump is of conda's own environment, where people install for all their projects."""
    return dump.installation or any(one.name in INSTALLATION for one in dump.requirements)


def _roots_of_dump(
    findings: FileFindings, used: frozenset[str], index: PackageIndex
) -> tuple[tuple[Requirement, ...], str]:
    imported = tuple(one for one in findings.requirements if one.name in used)
    if imported and _is_of_installation(findings):
        return imported, "what the code imports, for it is a dump of a conda installation"
    if findings.direct:
        named = tuple(one for one in findings.requirements if one.name in findings.direct)
        return named, "it says so itself"
    return index.reduce(findings.requirements, used)


def find_by_name(unknown: Iterable[str], index: PackageIndex) -> dict[str, str]:
    """Return the distributions that conda has by the name of a module, and the index too.

    Nobody else can own them.  A wheel must have the module; what is there as source only need not.
    """
    asked = {module: name for module in unknown if (name := shared_name(module))}
    wheels = tuple(Requirement(text=name, name=name, where="") for name in asked.values())
    releases, found = index.look_up(wheels)
    source = {name for name, release in releases.items() if release.there} - {*found.values()}
    return {
        module: name
        for module, name in asked.items()
        if found.get(module) == name or name in source
    }


def imported_requirements(
    builder: DraftBuilder,
    requirements: list[Requirement],
    modules: Mapping[str, str | None],
    has: Mapping[str, str],
) -> list[Requirement]:
    """Return what the code imports and no list names; what is not certain becomes a comment.

    ``has`` are distributions of the lists by the modules in their wheels.
    """
    named = {requirement.name for requirement in requirements}
    aside = chain.from_iterable(findings.aside for findings in builder.gathered.all_findings)
    # a wheel that lies on another machine is no source of a package that the index has
    lost = re.compile(r"/[^:]*\.whl")
    elsewhere = {_name_of(text) or "" for text, _ in aside if not lost.fullmatch(text)}
    itself = {one.project for one in builder.gathered.all_findings if one.project}
    frameworks = {name for name in named if framework_name(name, greater=True)}
    complete = any(findings.complete for findings in builder.gathered.all_findings)
    found: list[Requirement] = []
    unknown: list[ImportedModule] = []
    optional: list[str] = []
    for one in builder.gathered.imports:
        dist = modules[one.module]
        if one.module in has or _has_name(
            one.module, named | elsewhere, known=bool(distribution_of(one.module))
        ):
            continue
        if dist is None and canonicalize_name(one.module) not in itself:
            unknown.append(one)
        elif dist is None:
            continue  # the project's own package, which its setup.py builds
        elif not dist:
            wrong = load_names().wrong.get(canonicalize_name(one.module))
            why = wrong.why if wrong is not None else NOT_ON_INDEX
            builder.note("python", f"not taken: {one.module} ({one.where}): {why}")
        elif _is_there(dist, named | elsewhere):
            continue
        elif one.certain and (
            not frameworks if framework_name(dist, greater=True) else one.always or not complete
        ):
            found.append(Requirement(text=dist, name=dist, where=f"imported in {one.where}"))
        elif dist not in optional:
            optional.append(dist)
    _note_imports(builder, found, unknown, optional, listed=bool(named))
    return found


def _name_of(text: str) -> str | None:
    """Return the name in a requirement that is not taken: "NAME @ git+…", "git+…#egg=NAME"."""
    egg = re.search(r"[#&]egg=([\w.-]+)", text)
    direct = re.match(r"([A-Za-z0-9][\w.-]*)\s*(\[[^]]*\]\s*)?(@|[<>=!~;]|$)", text)
    end = re.search(r"/([A-Za-z0-9][\w.-]*?)(\.git)?(@[^/]*)?/?$", text)
    found = egg or direct or end
    return canonicalize_name(found[1]) if found else None


def _has_name(module: str, names: set[str], *, known: bool) -> bool:
    """Whether a package is called as a module; for an unknown one a part of the name will do."""
    name = canonicalize_name(module)
    if name in names or known or len(name) <= 2:
        return name in names
    return any(f"-{name}-" in f"-{one}-" for one in names)


def _is_there(dist: str, named: set[str]) -> bool:
    """Whether a distribution, or another one with the same modules, is named already."""
    stand_ins = load_aliases().exclusive.values()
    if dist in named or any(dist in group and named & set(group) for group in stand_ins):
        return True
    if framework_name(dist) and any(framework_name(name) == framework_name(dist) for name in named):
        return True
    return dist in WITH_TENSORFLOW and any(framework_name(name) == "tensorflow" for name in named)


def _note_imports(
    builder: DraftBuilder,
    found: list[Requirement],
    unknown: list[ImportedModule],
    optional: list[str],
    *,
    listed: bool,
) -> None:
    if found and listed:
        names = tuple(sorted(requirement.text for requirement in found))
        builder.proposals.append(
            Proposal(
                kind="import",
                question=f"add what the code imports and no list names: {name_few(names)}?",
                values=names,
                reason="imported at the top of the project's code",
            )
        )
    certain = [one for one in unknown if one.certain]
    for one in certain[:MOST_NAMED]:
        builder.note(
            "python",
            f"unknown: the module {one.module} ({one.where}) is in no table; add the package "
            "that has it",
        )
    if len(certain) > MOST_NAMED:
        builder.note(
            "python",
            f"unknown: and {len(certain) - MOST_NAMED} more: "
            f"{name_few([one.module for one in certain[MOST_NAMED:]])}",
        )
    if optional:
        builder.note(
            "python",
            "imported and in no list, but not needed at every start, so not taken: "
            f"{name_few(optional)}",
        )
