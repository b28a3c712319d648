"""Draft a recipe from what a project's files say."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from envbuild.base.suggest import framework_name
from envbuild.project.clean import Cleaned, clean, companion_unpinned
from envbuild.project.gather import Gathered
from envbuild.project.imports import compiling
from envbuild.project.model import Draft, Imported, Need, Proposal, Saying
from envbuild.project.names import distribution_of, load_names
from envbuild.project.propose import Proposed, propose_base, propose_system, takes_debian_packages
from envbuild.recipe.model import About, Base, Job, Python, Recipe, Run, System
from envbuild.resolve.couplings import load_aliases

Reduce = Callable[[tuple[Need, ...], frozenset[str]], tuple[tuple[Need, ...], str]]
"""Reduce a dump to its roots, given the distributions that the code imports; also returns how that was found out."""
MOST_NAMED = 8
"""Names that a comment lists before it breaks off."""
WITH_TENSORFLOW = ("keras", "tensorboard", "protobuf", "absl-py")
"""Distributions that TensorFlow itself asks for."""
COMPILERS = ("gcc", "g++", "python3-dev")
"""Debian packages with what torch.compile and Triton build code with when a program runs."""
FOLDER_VARIABLES = {"PYTHONPATH", "HOME", "USER", "PWD", "CUDA_HOME"}
"""Variables of definitions that name folders of another image."""


@dataclass(slots=True)
class _Making:
    """A draft while it is made."""

    gathered: Gathered
    needs: list[Need] = field(default_factory=list)
    head: list[str] = field(default_factory=list)
    beside: dict[tuple[str, str, str], str] = field(default_factory=dict)
    below: dict[str, list[str]] = field(default_factory=dict)
    proposals: list[Proposal] = field(default_factory=list)

    def note(self, section: str, text: str) -> None:
        lines = self.below.setdefault(section, [])
        if text not in lines:
            lines.append(text)


def draft(gathered: Gathered, reduce: Reduce) -> Draft:
    """Make a draft: direct dependencies, a base, Debian packages, and comments on what is not certain."""
    making = _Making(gathered)
    modules = {one.module: distribution_of(one.module) for one in gathered.imports}
    used = frozenset(name for name in modules.values() if name)
    needs = _declared(making, used, reduce)
    cleaned = clean([*needs, *_undeclared(making, needs, modules)])
    if not cleaned.frameworks and any(need.name == "keras" for need in cleaned.needs):
        # Keras computes nothing by itself, and TensorFlow is the backend that it takes where nobody says another
        cleaned.frameworks.append(Need(text="tensorflow", name="tensorflow", where="imported by keras as its backend"))
    _tell(making, cleaned)
    base = _base(making, cleaned)
    making.needs = cleaned.needs if base.exact else [companion_unpinned(need) for need in cleaned.needs]
    _extra_frameworks(making, cleaned, base.base)
    system = _system(making, base.base)
    for need in making.needs:
        making.beside["python", "dependencies", need.text] = need.where
    _tell_compiled(making)
    making.needs.sort(key=lambda need: need.name)
    recipe = Recipe(
        recipe=About(name=gathered.name, summary=""),
        base=base.base,
        python=Python(dependencies=tuple(dict.fromkeys(need.text for need in making.needs))),
        system=system,
        run=_run(gathered),
        job=Job(gpus=1) if cleaned.frameworks and not base.base.cpu else Job(),
    )
    return Draft(
        recipe=recipe,
        head=_head(making),
        beside=making.beside,
        below={section: tuple(lines) for section, lines in making.below.items()},
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
            recipe = msgspec.structs.replace(recipe, python=msgspec.structs.replace(recipe.python, dependencies=kept))
        elif proposal.kind == "system":
            system = msgspec.structs.replace(
                recipe.system,
                packages=tuple(name for name in recipe.system.packages if name not in gone),
                build_packages=tuple(name for name in recipe.system.build_packages if name not in gone),
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


def _declared(making: _Making, used: frozenset[str], reduce: Reduce) -> list[Need]:
    """Return what lists ask for: direct lists as they are, dumps only where there is no direct list, reduced."""
    direct = [saying for saying in making.gathered.sayings if not saying.frozen and saying.needs]
    dumps = [saying for saying in making.gathered.sayings if saying.frozen]
    needs = [need for saying in direct for need in saying.needs]
    enough = any(not saying.image and saying.needs for saying in direct)
    for saying in dumps:
        if enough:
            making.note(
                "python", f"{saying.file} is a dump of a whole environment: the direct lists were taken instead"
            )
            continue
        roots, how = _roots(saying, used, reduce)
        making.note(
            "python", f"{saying.file} is a dump of {len(saying.needs)} packages; {len(roots)} are its roots ({how})"
        )
        needs += roots
    for saying in making.gathered.sayings:
        for text, reason in () if saying.frozen and enough else saying.aside:
            making.note("python", f"not taken: {text} ({reason})")
    ourselves = {saying.project for saying in making.gathered.sayings}
    return [need for need in needs if need.name not in ourselves]


def _roots(saying: Saying, used: frozenset[str], reduce: Reduce) -> tuple[tuple[Need, ...], str]:
    if saying.direct:
        return tuple(need for need in saying.needs if need.name in saying.direct), "it says so itself"
    return reduce(saying.needs, used)


def _undeclared(making: _Making, needs: list[Need], modules: dict[str, str | None]) -> list[Need]:
    """Return what the code imports and no list names; what is not certain becomes a comment."""
    named = {need.name for need in needs}
    frameworks = {name for name in map(framework_name, named) if name}
    complete = any(saying.needs and saying.file == "pyproject.toml" for saying in making.gathered.sayings)
    found: list[Need] = []
    unknown: list[Imported] = []
    optional: list[str] = []
    for one in making.gathered.imports:
        dist = modules[one.module]
        if dist is None:
            unknown.append(one)
        elif not dist:
            making.note(
                "python", f"not taken: {one.module} ({one.where}): no index has it; it is built from its own repository"
            )
        elif _is_there(dist, named):
            continue
        elif one.certain and not (complete or (framework_name(dist) and frameworks)):
            found.append(Need(text=dist, name=dist, where=f"imported in {one.where}"))
        elif dist not in optional:
            optional.append(dist)
    _tell_imports(making, found, unknown, optional, listed=bool(named))
    return found


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
    making: _Making, found: list[Need], unknown: list[Imported], optional: list[str], *, listed: bool
) -> None:
    if found and listed:
        names = tuple(sorted(need.text for need in found))
        making.proposals.append(
            Proposal(
                kind="import",
                question=f"add what the code imports and no list names: {_few(names)}?",
                values=names,
                reason="imported at the top of the project's code",
            )
        )
    certain = [one for one in unknown if one.certain]
    for one in certain[:MOST_NAMED]:
        making.note(
            "python", f"unknown: the module {one.module} ({one.where}) is in no table; add the package that has it"
        )
    if len(certain) > MOST_NAMED:
        making.note(
            "python",
            f"unknown: and {len(certain) - MOST_NAMED} more: {_few([one.module for one in certain[MOST_NAMED:]])}",
        )
    if optional:
        making.note("python", f"imported and in no list, but not needed at every start, so not taken: {_few(optional)}")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def _tell_compiled(making: _Making) -> None:
    """Say of what is built for the GPU that the base has to have a compiler for it."""
    found = [need.name for need in making.needs if need.name in load_names().compiled.names]
    if found:
        making.note(
            "python",
            f"{_few(sorted(found))}: source only on the index, compiled for the GPU: take a base with nvcc (a -devel "
            "image), or their makers' wheels by an index of your own ([python] indexes)",
        )


def _tell(making: _Making, cleaned: Cleaned) -> None:
    for note in cleaned.notes:
        making.note("python", note)
    brought = sorted({need.name for need, why in cleaned.dropped if "base" in why and "framework" in why})
    if brought:
        making.note("python", f"not taken, because the base's framework brings them: {_few(brought)}")
    for need, why in cleaned.dropped:
        if need.name not in brought:
            making.note("python", f"not taken: {need.name} ({need.where}): {why}")
    if cleaned.frameworks:
        first = cleaned.frameworks[0]
        asks = first.where if first.where.startswith("imported") else f"{first.where} asks for it"
        making.note("base", f"{first.text}: {asks}")


def _base(making: _Making, cleaned: Cleaned) -> Proposed:
    sayings = making.gathered.sayings
    image = next((saying.image for saying in sayings if saying.image), None)
    python = next((saying.python for saying in sayings if saying.python), None)
    cleaned.frameworks.sort(key=lambda need: _weight(need, making.gathered.imports))
    framework = cleaned.frameworks[0] if cleaned.frameworks else None
    proposed = propose_base(framework, python, image)
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


def _extra_frameworks(making: _Making, cleaned: Cleaned, base: Base) -> None:
    """Keep further frameworks as packages; the base's own has to go."""
    first = _framework_of(base) or (framework_name(cleaned.frameworks[0].name) if cleaned.frameworks else None)
    seen = {first}
    for need in cleaned.frameworks:
        if framework_name(need.name) not in seen:
            seen.add(framework_name(need.name))
            making.needs.append(need)
            making.note(
                "python", f"{need.name} is a second framework: it brings its own CUDA libraries beside the base's"
            )


def _framework_of(base: Base) -> str | None:
    """Return the framework that an image's name promises: .../pytorch:1.5, nvcr.io/nvidia/tensorflow."""
    words = re.split(r"[^a-z0-9]+", (base.image or "").lower())
    return next((name for word in words if (name := framework_name(word))), None)


def _system(making: _Making, base: Base) -> System:
    sayings = making.gathered.sayings
    said = tuple(dict.fromkeys(name for saying in sayings for name in saying.system))
    build = tuple(dict.fromkeys(name for saying in sayings for name in saying.build))
    run, wanted = propose_system(making.needs)
    if file := compiling(making.gathered.tree):
        run = {**run, **dict.fromkeys(COMPILERS, f"torch.compile or Triton in {file}")}
    added = {name: why for name, why in run.items() if name not in said}
    post = tuple(line for saying in sayings for line in saying.post if line.isprintable())
    if post:
        making.beside["system", "post", ""] = "from the definition: look at each, a build has no network"
    if base.image is not None and not takes_debian_packages(base.image):
        every = tuple(dict.fromkeys((*said, *build, *run, *wanted)))
        if every:
            making.note("system", f"Debian packages that are wanted, if the image has not got them: {' '.join(every)}")
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
                question=f"install the Debian packages {_few(names)}?",
                values=names,
                reason=f"for {reason}",
            )
        )
    return System(packages=(*said, *added), build_packages=(*build, *builders), post=post)


def _run(gathered: Gathered) -> Run:
    """Return the command and variables of a definition; a script that it copied is the one in the project's folder."""
    sayings, root = gathered.sayings, gathered.tree.root
    command = next((saying.command for saying in sayings if saying.command), ())
    command = tuple(
        name if word.startswith("/") and (name := word.rpartition("/")[2]) and (root / name).is_file() else word
        for word in command
    )
    environment = {
        name: value for saying in sayings for name, value in saying.environment if name not in FOLDER_VARIABLES
    }
    return Run(command=command, environment=environment)


def _head(making: _Making) -> tuple[str, ...]:
    gathered = making.gathered
    read = ", ".join(saying.file for saying in gathered.sayings)
    code = len(gathered.tree.code) + len(gathered.tree.notebooks)
    parts = [part for part in (read, f"the imports of {code} files" if code else "") if part]
    lines = [f"Drafted by envbuild init from {' and '.join(parts)}.  Look it over; then: envbuild lock {gathered.name}"]
    notes = [note for saying in gathered.sayings for note in saying.notes]
    every = tuple(dict.fromkeys((*gathered.notes, *notes)))
    return (*lines, "", *every) if every else tuple(lines)
