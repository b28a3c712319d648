"""Draft a recipe from what a project's files say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from envbuild.base.suggest import framework_name
from envbuild.project.age import keras_2_only, newest_pin, shared_pythons, torch_bounds
from envbuild.project.clean import Cleaned, bounds_of, clean, companion_unpinned, without_others
from envbuild.project.gather import Gathered
from envbuild.project.imports import compiling, old_tensorflow
from envbuild.project.making import Making, few
from envbuild.project.model import Draft, Imported, Index, Need, Proposal
from envbuild.project.names import distribution_of, implied_framework, load_names
from envbuild.project.needs import declared, undeclared
from envbuild.project.private import has_secret, is_loader, is_secret_name, without_secrets
from envbuild.project.propose import (
    Proposed,
    Wanted,
    for_debian,
    is_held,
    propose_base,
    propose_system,
    takes_debian_packages,
)
from envbuild.project.tree import is_aside
from envbuild.recipe.model import About, Base, Job, Python, Recipe, Run, System

COMPILERS = ("gcc", "g++", "python3-dev")
"""Debian packages with what torch.compile and Triton build code with when a program runs."""
MOST_REFUSED = 12
"""Lines of definitions that are named as not taken."""
FOLDER_VARIABLES = {
    "PYTHONPATH",
    "HOME",
    "USER",
    "PWD",
    "CUDA_HOME",
    "CONDA_DIR",
    "CONDA_VERSION",
    "PIP_DOWNLOAD_CACHE",
}
"""Variables of definitions that name folders of another image."""


def draft(
    gathered: Gathered, index: Index, *, driver: str | None = None, gpu: str | None = None
) -> Draft:
    """Make a draft: direct dependencies, a base, Debian packages, and comments on what is not certain."""
    making = Making(gathered)
    modules = {one.module: distribution_of(one.module) for one in gathered.imports}
    used = frozenset(name for name in modules.values() if name)
    needs = declared(making, used, index)
    making.releases, has = index.look_up(
        tuple(need for need in clean(needs).needs if not framework_name(need.name))
    )
    added = undeclared(making, needs, modules, has)
    if any(implied_framework(need.name) == "tensorflow" for need in added):
        making.releases = {**making.releases, **index.look_up(tuple(added))[0]}
    cleaned = clean([*needs, *added])
    _frameworks(making, cleaned)
    base = _base(making, cleaned, driver, gpu)
    kept = cleaned.needs if base.exact else [companion_unpinned(need) for need in cleaned.needs]
    making.needs = without_others(kept, base.python, cleaned)
    _tell(making, cleaned)
    _extra_frameworks(making, cleaned, base.base)
    system = _system(making, cleaned, base.base)
    for need in making.needs:
        making.beside["python", "dependencies", need.text] = need.where
    _tell_compiled(making)
    making.needs.sort(key=lambda need: need.name)
    recipe = Recipe(
        recipe=About(name=gathered.name, summary=""),
        base=base.base,
        python=Python(dependencies=tuple(dict.fromkeys(need.text for need in making.needs))),
        system=system,
        run=_run(making),
        job=Job(gpus=1) if cleaned.frameworks and not base.base.cpu else Job(),
    )
    return Draft(
        recipe=recipe,
        head=tuple(map(without_secrets, _head(making))),
        beside=making.beside,
        below={
            section: tuple(map(without_secrets, lines)) for section, lines in making.below.items()
        },
        proposals=tuple(making.proposals),
        sources=tuple(saying.file for saying in gathered.sayings),
    )


def without(made: Draft, refused: Sequence[Proposal]) -> Draft:
    """Return the draft without the proposals that were refused."""
    import msgspec

    recipe, below = made.recipe, made.below
    for proposal in refused:
        gone = set(proposal.values)
        if proposal.kind == "import":
            kept = tuple(line for line in recipe.python.dependencies if line not in gone)
            recipe = msgspec.structs.replace(
                recipe, python=msgspec.structs.replace(recipe.python, dependencies=kept)
            )
        elif proposal.kind == "system":
            system = msgspec.structs.replace(
                recipe.system,
                packages=tuple(name for name in recipe.system.packages if name not in gone),
                build_packages=tuple(
                    name for name in recipe.system.build_packages if name not in gone
                ),
            )
            recipe = msgspec.structs.replace(recipe, system=system)
        else:
            recipe, below = _without_base(recipe, proposal, below)
    return Draft(
        recipe=recipe,
        head=made.head,
        beside=made.beside,
        below=below,
        proposals=tuple(proposal for proposal in made.proposals if proposal not in refused),
        sources=made.sources,
    )


def _without_base(
    recipe: Recipe, proposal: Proposal, below: dict[str, tuple[str, ...]]
) -> tuple[Recipe, dict[str, tuple[str, ...]]]:
    """Return a recipe on a bare Debian that still asks for its framework: no image is for the CPU by accident."""
    import msgspec

    shown, *frameworks = proposal.values
    names = tuple(sorted({*recipe.python.dependencies, *frameworks}))
    recipe = msgspec.structs.replace(
        recipe,
        base=Base(bootstrap="debian:bookworm"),
        python=msgspec.structs.replace(recipe.python, dependencies=names),
    )
    if not frameworks:
        return recipe, below
    word = framework_name(frameworks[0])
    note = f"not taken: {shown}. For another one: envbuild base suggest --framework {word}; for the CPU: cpu = true"
    return recipe, {**below, "base": (*below.get("base", ()), note)}


def _tell_compiled(making: Making) -> None:
    """Say of what is built for the GPU that the base has to have a compiler for it."""
    found = [need.name for need in making.needs if need.name in load_names().compiled.names]
    if found:
        making.note(
            "python",
            f"{few(sorted(found))}: source only on the index, compiled for the GPU: take a base with nvcc (a -devel "
            "image), or their makers' wheels by an index of your own ([python] indexes)",
        )


def _tell(making: Making, cleaned: Cleaned) -> None:
    for note in cleaned.notes:
        making.note("python", note)
    brought = sorted(
        {need.name for need, why in cleaned.dropped if "base" in why and "framework" in why}
    )
    if brought:
        making.note(
            "python", f"not taken, because the base's framework brings them: {few(brought)}"
        )
    for need, why in cleaned.dropped:
        if need.name not in brought:
            making.note("python", f"not taken: {need.name} ({need.where}): {why}")
    if cleaned.frameworks:
        first = cleaned.frameworks[0]
        asks = (
            first.where
            if first.where.startswith(("imported", "no list"))
            else f"{first.where} asks for it"
        )
        making.note("base", f"{first.text}: {asks}")


def _frameworks(making: Making, cleaned: Cleaned) -> None:
    """Sort the frameworks that are asked for; where none is, take what the code or the other packages need."""
    if not cleaned.frameworks:
        cleaned.frameworks += _implied(making, cleaned)
    cleaned.frameworks.sort(
        key=lambda need: (not is_held(need), *_weight(need, making.gathered.imports))
    )
    first = cleaned.frameworks[0] if cleaned.frameworks else None
    if first is None or re.search(r"==|~=|<", bounds_of(first)):
        return
    upper, why = _upper_bound(making, cleaned, first)
    if upper:
        bounds = ",".join(filter(None, (bounds_of(first), upper)))
        name = framework_name(first.name) or first.name
        cleaned.frameworks[0] = Need(text=f"{name}{bounds}", name=name, where=first.where)
        making.note("base", why)


def _upper_bound(making: Making, cleaned: Cleaned, framework: Need) -> tuple[str, str]:
    """Return bounds that nobody wrote down but that hold all the same, and why; empty where there are none."""
    if framework_name(framework.name) == "torch":
        for need in cleaned.needs:
            bounds = torch_bounds(need)
            if bounds:
                return bounds, f"{need.text} ({need.where}) goes with torch{bounds}"
    if framework_name(framework.name) != "tensorflow":
        return "", ""
    where = old_tensorflow(making.gathered.tree)
    if where is not None:
        return "<2", f"{where} is written for TensorFlow 1: a release before 2 is taken"
    old = keras_2_only(cleaned.needs, making.releases)
    return (
        ("<2.16", f"{few(old)}: made for Keras 2, which TensorFlow has before 2.16")
        if old
        else ("", "")
    )


def _implied(making: Making, cleaned: Cleaned) -> list[Need]:
    """Return the framework that files import, else the one that most packages are nothing without."""
    imported = [
        one for one in making.gathered.imports if framework_name(one.module) and _counts(one)
    ]
    if imported:
        most = max(imported, key=lambda one: (one.certain, one.files))
        return [Need(text=most.module, name=most.module, where=f"imported in {most.where}")]
    if any(need.name == "keras" for need in cleaned.needs):
        # Keras computes nothing by itself, and TensorFlow is the backend that it takes where nobody says another
        return [
            Need(text="tensorflow", name="tensorflow", where="imported by keras as its backend")
        ]
    votes: dict[str, list[str]] = {}
    for need in cleaned.needs:
        framework = implied_framework(need.name)
        if framework is not None:
            votes.setdefault(framework, []).append(need.name)
    if not votes:
        return []
    best = max(votes, key=lambda name: len(votes[name]))
    return [Need(text=best, name=best, where=f"no list names it, but {few(votes[best])} need it")]


def _counts(one: Imported) -> bool:
    """Whether an import tells a framework: of a program that may do without it too, but not of a notebook or a test."""
    path = Path(one.where)
    return one.certain or (path.suffix == ".py" and not is_aside(path))


def _base(making: Making, cleaned: Cleaned, driver: str | None, gpu: str | None) -> Proposed:
    sayings = making.gathered.sayings
    framework = cleaned.frameworks[0] if cleaned.frameworks else None
    cudas = [saying.cuda for saying in sayings if saying.cuda]
    wanted = Wanted(
        framework=framework,
        python=next((saying.python for saying in sayings if saying.python), None),
        image=next((saying.image for saying in sayings if saying.image), None),
        cuda=cleaned.cuda or next(iter(cudas), None),
        pythons=shared_pythons(making.releases),
        until=newest_pin(making.releases, len(cleaned.needs)),
        driver=driver,
        gpu=gpu,
    )
    proposed = propose_base(wanted)
    for note in proposed.notes:
        making.note("base", note)
    base = proposed.base
    shown = f"{base.image or base.bootstrap}{f' with {base.framework}' if base.framework else ''}"
    making.proposals.insert(
        0,
        Proposal(
            kind="base",
            question=f"start from {shown}?",
            values=(shown, *(framework.text for framework in cleaned.frameworks[:1])),
            reason=proposed.reason,
        ),
    )
    return proposed


def _weight(need: Need, imports: Sequence[Imported]) -> tuple[int, bool]:
    """Sort frameworks: that of most files first, those with an exact version first."""
    module = framework_name(need.name)
    return (-sum(one.files for one in imports if one.module == module), "==" not in need.text)


def _extra_frameworks(making: Making, cleaned: Cleaned, base: Base) -> None:
    """Keep further frameworks as packages; the base's own has to go."""
    first = _framework_of(base) or (
        framework_name(cleaned.frameworks[0].name) if cleaned.frameworks else None
    )
    seen = {first}
    for need in cleaned.frameworks:
        if framework_name(need.name) not in seen:
            seen.add(framework_name(need.name))
            making.needs.append(need)
            making.note(
                "python",
                f"{need.name} is a second framework: it brings its own CUDA libraries beside the base's",
            )


def _framework_of(base: Base) -> str | None:
    """Return the framework that an image's name promises: .../pytorch:1.5, nvcr.io/nvidia/tensorflow."""
    words = re.split(r"[^a-z0-9]+", (base.image or "").lower())
    return next((name for word in words if (name := framework_name(word))), None)


def _system(making: Making, cleaned: Cleaned, base: Base) -> System:
    sayings = making.gathered.sayings
    said = tuple(
        dict.fromkeys((*(name for saying in sayings for name in saying.system), *cleaned.system))
    )
    build = tuple(dict.fromkeys(name for saying in sayings for name in saying.build))
    if base.image is None:
        notes: list[str] = []
        said, build = for_debian(said, notes), for_debian(build, notes)
        for note in notes:
            making.note("system", note)
    run, wanted = propose_system(making.needs)
    if file := compiling(making.gathered.tree):
        run = {**run, **dict.fromkeys(COMPILERS, f"torch.compile or Triton in {file}")}
    added = {name: why for name, why in run.items() if name not in said}
    post = tuple(
        line
        for saying in sayings
        for line in saying.post
        if line.isprintable() and not has_secret(line)
    )
    _tell_refused(making)
    if post:
        making.beside["system", "post", ""] = (
            "from the definition: look at each, a build has no network"
        )
    if base.image is not None and not takes_debian_packages(base.image):
        every = tuple(dict.fromkeys((*said, *build, *run, *wanted)))
        if every:
            making.note(
                "system",
                f"Debian packages that are wanted, if the image has not got them: {' '.join(every)}",
            )
        return System(post=post)
    for name, why in added.items():
        making.beside["system", "packages", name] = f"for {why}"
    builders = {name: why for name, why in wanted.items() if name not in build}
    if added or builders:
        names = (*added, *(name for name in builders if name not in added))
        reason = ", ".join(dict.fromkeys([*added.values(), *builders.values()]))
        making.proposals.append(
            Proposal(
                kind="system",
                question=f"install the Debian packages {few(names)}?",
                values=names,
                reason=f"for {reason}",
            )
        )
    return System(packages=(*said, *added), build_packages=(*build, *builders), post=post)


def _tell_refused(making: Making) -> None:
    """Name the lines and variables of definitions that are not taken."""
    refused = [
        (f"{text} ({saying.file}): {why}")
        for saying in making.gathered.sayings
        for text, why in saying.refused
    ]
    for text in refused[:MOST_REFUSED]:
        making.note("system", f"not taken: {text}")
    if len(refused) > MOST_REFUSED:
        making.note(
            "system",
            f"not taken: {len(refused) - MOST_REFUSED} more lines; look at the definition itself",
        )


def _run(making: Making) -> Run:
    """Return the command and variables of a definition; a script that it copied is the one in the project's folder."""
    sayings, root = making.gathered.sayings, making.gathered.tree.root
    command = next((saying.command for saying in sayings if saying.command), ())
    command = tuple(
        name
        if word.startswith("/") and (name := word.rpartition("/")[2]) and (root / name).is_file()
        else word
        for word in command
    )
    if has_secret(" ".join(command)):
        making.note("run", "the definition's command holds a secret, so it is not taken")
        command = ()
    environment: dict[str, str] = {}
    for name, value in (pair for saying in sayings for pair in saying.environment):
        if is_secret_name(name) or has_secret(value) or is_loader(name):
            making.note(
                "run", f"variable {name} is not taken: hand it on from your own environment"
            )
        elif name not in FOLDER_VARIABLES:
            environment[name] = value
    return Run(command=command, environment=environment)


def _head(making: Making) -> tuple[str, ...]:
    gathered = making.gathered
    read = ", ".join(saying.file for saying in gathered.sayings)
    code = len(gathered.tree.code) + len(gathered.tree.notebooks)
    parts = [part for part in (read, f"the imports of {code} files" if code else "") if part]
    lines = [
        f"Drafted by envbuild init from {' and '.join(parts)}.  Look it over; then: envbuild lock {gathered.name}"
    ]
    notes = [note for saying in gathered.sayings for note in saying.notes]
    every = tuple(dict.fromkeys((*gathered.notes, *notes)))
    return (*lines, "", *every) if every else tuple(lines)
