"""Draft a recipe from what a project's files say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

from msgspec import structs
from packaging.utils import canonicalize_name

from envbuild.base.suggest import framework_name
from envbuild.data.lookup import NVCC_BASE
from envbuild.data.package_tables import load_names
from envbuild.names import Texts
from envbuild.project.code.imports import file_written_for, old_uses
from envbuild.project.draft.age import newest_pin, shared_pythons
from envbuild.project.draft.builder import DraftBuilder, name_few
from envbuild.project.draft.clean import (
    Cleaned,
    clean_requirements,
    companion_unpinned,
    without_others,
)
from envbuild.project.draft.direct import find_by_name, imported_requirements, listed_requirements
from envbuild.project.draft.frameworks import add_other_frameworks, holds_another, sort_frameworks
from envbuild.project.draft.propose import (
    BaseNeeds,
    ProposedBase,
    allows_python,
    for_debian,
    propose_base,
    propose_system,
    takes_debian_packages,
)
from envbuild.project.gather import ProjectFindings
from envbuild.project.model import PackageIndex, Proposal, RecipeDraft, Requirement
from envbuild.project.names import distribution_of, implied_framework
from envbuild.project.private import has_secret, is_loader, is_secret_name, without_secrets
from envbuild.project.tree import read_text
from envbuild.recipe.model import (
    AboutSection,
    BaseSection,
    JobSection,
    PythonSection,
    Recipe,
    RunSection,
    SystemSection,
)
from envbuild.records import replace
from envbuild.store.units import as_printable, count_noun

COMPILERS = ("gcc", "g++", "python3-dev")
"""Debian packages with what torch.compile and Triton build code with when a program runs."""
NOT_THERE = "the index has no package of this name; for another index, see [python] indexes"
MOST_REFUSED = 12
"""Lines of definitions that are named as not taken."""
WITH_NVCC = re.compile(r"-devel\b|nvcr\.io/nvidia/")
"""Images that hold CUDA's compiler, by their names."""
FOLDER_VARIABLES = {
    "PYTHONPATH", "HOME", "USER", "PWD", "CUDA_HOME", "CONDA_DIR", "CONDA_VERSION",
    "PIP_DOWNLOAD_CACHE",
}  # fmt: skip
"""Variables of definitions that name folders of another image."""


def draft_recipe(
    gathered: ProjectFindings,
    index: PackageIndex,
    *,
    driver: str | None = None,
    gpu: str | None = None,
) -> RecipeDraft:
    """Draft a recipe: dependencies, a base, Debian packages, and comments on doubts."""
    builder = DraftBuilder(gathered)
    modules = {one.module: distribution_of(one.module) for one in gathered.imports}
    used = frozenset(name or canonicalize_name(module) for module, name in modules.items())
    requirements = listed_requirements(builder, used, index)
    asked = [
        one for one in clean_requirements(requirements).requirements if not framework_name(one.name)
    ]
    unknown = {
        one.module for one in gathered.imports if one.certain and modules[one.module] is None
    }
    builder.releases, has = index.look_up(tuple(asked), frozenset(unknown))
    modules |= find_by_name(unknown - has.keys(), index)
    added = imported_requirements(builder, requirements, modules, has)
    if any(implied_framework(requirement.name) == "tensorflow" for requirement in added):
        builder.releases = {**builder.releases, **index.look_up(tuple(added))[0]}
    cleaned = clean_requirements([*requirements, *added])
    _drop_absent(builder, cleaned)
    builder.old = old_uses(gathered.tree)
    sort_frameworks(builder, cleaned)
    base = _choose_base(builder, cleaned, driver, gpu)
    kept = cleaned.requirements if base.exact else map(companion_unpinned, cleaned.requirements)
    kept = [_bounded_by_code(builder, requirement, base.python) for requirement in kept]
    builder.requirements = without_others(kept, base.python, cleaned)
    _note_cleaning(builder, cleaned)
    add_other_frameworks(builder, cleaned, base.base)
    system = _choose_system(builder, cleaned, base.base)
    for requirement in builder.requirements:
        builder.beside["python", "dependencies", requirement.text] = requirement.where
    if not WITH_NVCC.search(base.base.image or ""):
        _note_compiled(builder)
    _note_own_package(builder)
    builder.requirements.sort(key=lambda requirement: requirement.name)
    lines = dict.fromkeys(requirement.text for requirement in builder.requirements)
    on_gpu = bool(cleaned.frameworks) and not base.base.cpu
    recipe = Recipe(
        recipe=AboutSection(name=gathered.name, summary=""),
        base=base.base,
        python=PythonSection(dependencies=tuple(lines)),
        system=system,
        run=_run_section(builder),
        job=JobSection(gpus=1) if on_gpu else JobSection(),
    )
    return RecipeDraft(
        recipe=recipe,
        head=tuple(map(without_secrets, _head_lines(builder))),
        beside=builder.beside,
        below={
            section: tuple(map(without_secrets, lines)) for section, lines in builder.below.items()
        },
        proposals=tuple(builder.proposals),
        sources=tuple(findings.file for findings in gathered.all_findings),
    )


def _drop_absent(builder: DraftBuilder, cleaned: Cleaned) -> None:
    """Drop the names that the index was asked for and has not: anybody could register them.

    An index that has none of them is not the one that they are from.
    """
    there = {name: release.there for name, release in builder.releases.items()}
    for requirement in tuple(cleaned.requirements) if any(there.values()) else ():
        if not there.get(requirement.name, True) and " @ " not in requirement.text:
            cleaned.requirements.remove(requirement)
            cleaned.dropped.append((requirement, NOT_THERE))


def _bounded_by_code(
    builder: DraftBuilder, requirement: Requirement, python: str | None
) -> Requirement:
    """Bound a requirement without bounds by what the code uses, if the base's Python allows it."""
    if re.search("[=;@]", requirement.text):
        return requirement
    joined = "," if "<" in requirement.text or ">" in requirement.text else ""
    for row, file in builder.old.items():
        if row.package == requirement.name:
            bounded = f"{requirement.text}{joined}{row.bounds}"
            builder.note("python", f"{bounded}: {row.what} ({file})")
            if python is None or allows_python(row.python, python):
                return replace(requirement, text=bounded)
            builder.note("python", f"not taken, for Python {row.python} alone: {bounded}")
    return requirement


def without_proposals(made: RecipeDraft, refused: Sequence[Proposal]) -> RecipeDraft:
    """Return the draft without the proposals that were refused."""
    recipe, below = made.recipe, made.below
    for proposal in refused:
        gone = set(proposal.values)
        if proposal.kind == "import":
            kept = tuple(line for line in recipe.python.dependencies if line not in gone)
            recipe = structs.replace(
                recipe, python=structs.replace(recipe.python, dependencies=kept)
            )
        elif proposal.kind == "system":
            system = structs.replace(
                recipe.system,
                packages=tuple(name for name in recipe.system.packages if name not in gone),
                build_packages=tuple(
                    name for name in recipe.system.build_packages if name not in gone
                ),
            )
            recipe = structs.replace(recipe, system=system)
        else:
            recipe, below = _without_base(recipe, proposal, below)
    proposals = tuple(proposal for proposal in made.proposals if proposal not in refused)
    return replace(made, recipe=recipe, below=below, proposals=proposals)


def _without_base(
    recipe: Recipe, proposal: Proposal, below: dict[str, Texts]
) -> tuple[Recipe, dict[str, Texts]]:
    """Return a recipe on a bare Debian that still asks for its framework."""
    shown, *frameworks = proposal.values
    names = tuple(sorted({*recipe.python.dependencies, *frameworks}))
    recipe = structs.replace(
        recipe,
        base=BaseSection(bootstrap="debian:bookworm"),
        python=structs.replace(recipe.python, dependencies=names),
    )
    if not frameworks:
        return recipe, below
    word = framework_name(frameworks[0])
    another = f"envbuild base suggest --framework {word}"
    note = f"not taken: {shown}. For another one: {another}; for the CPU: cpu = true"
    return recipe, {**below, "base": (*below.get("base", ()), note)}


def _note_compiled(builder: DraftBuilder) -> None:
    """Say of what is built for the GPU that the base has to have a compiler for it."""
    found = [
        requirement.name
        for requirement in builder.requirements
        if requirement.name in load_names().compiled.names
    ]
    if found:
        builder.note(
            "python",
            f"{name_few(sorted(found))}: source only on the index, compiled for the GPU: take "
            f"{NVCC_BASE}, or their makers' wheels by an index of your own ([python] indexes)",
        )


def _note_own_package(builder: DraftBuilder) -> None:
    """Say that the project's own package must be installed, where its code cannot run as it is."""
    tree = builder.gathered.tree
    root = tree.root
    text = read_text(root / "setup.py") or ""
    for folder in sorted(tree.parts):
        if "CUDAExtension" in (read_text(root / folder / "setup.py") or ""):
            place = as_printable(folder.as_posix())
            builder.note("python", f"{place}/setup.py compiles CUDA code: take {NVCC_BASE}")
    install = 'add "-e ." to the dependencies'
    if re.search(r"\bext_modules\b", text):
        nvcc = f" and take {NVCC_BASE}" if "CUDAExtension" in text else ""
        builder.note("python", f"setup.py compiles code of the project: {install}{nvcc}")
        return
    has_table = text or (root / "pyproject.toml").is_file() or (root / "setup.cfg").is_file()
    packages = sorted(path.parent.name for path in (root / "src").glob("*/__init__.py"))
    if has_table and packages:
        names = name_few(packages)
        builder.note("python", f"{names} (in src/) can be imported once it is installed: {install}")


def _note_cleaning(builder: DraftBuilder, cleaned: Cleaned) -> None:
    for note in cleaned.notes:
        builder.note("python", note)
    brought = sorted(
        {
            requirement.name
            for requirement, why in cleaned.dropped
            if "base" in why and "framework" in why
        }
    )
    if brought:
        builder.note(
            "python", f"not taken, because the base's framework brings them: {name_few(brought)}"
        )
    for requirement, why in cleaned.dropped:
        if requirement.name not in brought:
            builder.note("python", f"not taken: {requirement.name} ({requirement.where}): {why}")
    if cleaned.frameworks:
        first = cleaned.frameworks[0]
        asks = (
            first.where
            if first.where.startswith(("imported", "no list"))
            else f"{first.where} asks for it"
        )
        builder.note("base", f"{first.text}: {asks}")


def _choose_base(
    builder: DraftBuilder, cleaned: Cleaned, driver: str | None, gpu: str | None
) -> ProposedBase:
    all_findings = builder.gathered.all_findings
    framework = cleaned.frameworks[0] if cleaned.frameworks else None
    cudas = (findings.cuda for findings in all_findings if findings.cuda)
    pythons = (findings.python for findings in all_findings if findings.python)
    image = next((findings.image for findings in all_findings if findings.image), None)
    if image is not None and framework is not None and holds_another(builder, cleaned, image):
        builder.note("base", f"not taken: {image}, for the code imports {framework.name}")
        image = None
    names = {requirement.name for requirement in cleaned.requirements}
    of_code = sorted((row.python for row in builder.old if row.package in names), key=len)
    until = newest_pin(builder.releases, len(cleaned.requirements))
    # where pins tell the age, a README's Python does not
    said = builder.gathered.said.get("python") if until is None else None
    of_code = [f"=={said}.*" if said else "", *of_code]
    wanted = BaseNeeds(
        framework=framework,
        python=_series_of(next(pythons, next(filter(None, of_code), None))),
        image=image,
        cuda=cleaned.cuda or next(cudas, None),
        pythons=shared_pythons(builder.releases),
        until=until,
        driver=driver,
        gpu=gpu,
    )
    proposed = propose_base(wanted)
    for note in proposed.notes:
        builder.note("base", note)
    base = proposed.base
    shown = f"{base.image or base.bootstrap}{f' with {base.framework}' if base.framework else ''}"
    builder.proposals.insert(
        0,
        Proposal(
            kind="base",
            question=f"start from {shown}?",
            values=(shown, *(framework.text for framework in cleaned.frameworks[:1])),
            reason=proposed.reason,
        ),
    )
    return proposed


def _series_of(python: str | None) -> str | None:
    """Widen one exact Python to its series: a base has another patch release of it."""
    return re.sub(r"^==\s*(\d+\.\d+)\.\d+$", r"==\1.*", python) if python else None


def _choose_system(builder: DraftBuilder, cleaned: Cleaned, base: BaseSection) -> SystemSection:
    all_findings = builder.gathered.all_findings
    listed = chain.from_iterable(findings.system for findings in all_findings)
    named = tuple(dict.fromkeys((*listed, *cleaned.system)))
    build = tuple(dict.fromkeys(chain.from_iterable(one.build for one in all_findings)))
    if base.image is None:
        notes: list[str] = []
        named, build = for_debian(named, notes), for_debian(build, notes)
        for note in notes:
            builder.note("system", note)
    run, wanted = propose_system(builder.requirements)
    if file := file_written_for(builder.gathered.tree, "compiling"):
        run |= dict.fromkeys(COMPILERS, f"torch.compile or Triton in {file}")
    if base.image is None and (file := file_written_for(builder.gathered.tree, "drawing")):
        run |= {"python3-tk": f"tkinter or turtle in {file}"}
    added = {name: why for name, why in run.items() if name not in named}
    posts = chain.from_iterable(findings.post for findings in all_findings)
    post = tuple(line for line in posts if line.isprintable() and not has_secret(line))
    _note_refused(builder)
    if post:
        remark = "from the definition: look at each, a build has no network"
        builder.beside["system", "post", ""] = remark
    if base.image is not None and not takes_debian_packages(base.image):
        every = " ".join(dict.fromkeys((*named, *build, *run, *wanted)))
        if every:
            what = "Debian packages that are wanted, if the image has not got them"
            builder.note("system", f"{what}: {every}")
        return SystemSection(post=post)
    for name, why in added.items():
        builder.beside["system", "packages", name] = f"for {why}"
    builders = {name: why for name, why in wanted.items() if name not in build}
    if added or builders:
        names = tuple(dict.fromkeys((*added, *builders)))
        reasons = dict.fromkeys((*added.values(), *builders.values()))
        proposal = Proposal(
            kind="system",
            question=f"install the Debian packages {name_few(names)}?",
            values=names,
            reason=f"for {', '.join(reasons)}",
        )
        builder.proposals.append(proposal)
    return SystemSection(packages=(*named, *added), build_packages=(*build, *builders), post=post)


def _note_refused(builder: DraftBuilder) -> None:
    """Name the lines and variables of definitions that are not taken."""
    refused: list[str] = []
    for findings in builder.gathered.all_findings:
        refused += [f"{text} ({findings.file}): {why}" for text, why in findings.refused]
    for text in refused[:MOST_REFUSED]:
        builder.note("system", f"not taken: {text}")
    if len(refused) > MOST_REFUSED:
        builder.note(
            "system",
            f"not taken: {len(refused) - MOST_REFUSED} more lines; look at the definition itself",
        )


def _run_section(builder: DraftBuilder) -> RunSection:
    """Return the command and variables of a definition."""
    all_findings = builder.gathered.all_findings
    command = next((findings.command for findings in all_findings if findings.command), ())
    if has_secret(" ".join(command)):
        builder.note("run", "the definition's command holds a secret, so it is not taken")
        command = ()
    environment: dict[str, str] = {}
    for name, value in chain.from_iterable(findings.environment for findings in all_findings):
        if is_secret_name(name) or has_secret(value) or is_loader(name):
            builder.note(
                "run", f"variable {name} is not taken: hand it on from your own environment"
            )
        elif name not in FOLDER_VARIABLES:
            environment[name] = value
    return RunSection(command=command, environment=environment)


def _head_lines(builder: DraftBuilder) -> Texts:
    gathered = builder.gathered
    read = ", ".join(findings.file for findings in gathered.all_findings)
    code = len(gathered.tree.code) + len(gathered.tree.notebooks)
    parts = filter(None, (read, f"the imports of {count_noun(code, 'file')}" if code else ""))
    drafted = f"Drafted by envbuild init from {' and '.join(parts)}."
    first = f"{drafted}  Look it over; then: envbuild lock {gathered.name}"
    notes = chain.from_iterable(findings.notes for findings in gathered.all_findings)
    every = tuple(dict.fromkeys((*gathered.notes, *notes)))
    return (first, "", *every) if every else (first,)
