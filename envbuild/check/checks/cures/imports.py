"""What mends an import that fails: hints that name the package and the release."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable
from itertools import chain

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envbuild.check.answers import Imported
from envbuild.check.checks import libraries
from envbuild.check.checks.cures.releases import cure_of_version, load_cures
from envbuild.check.checks.frameworks import advise_on_keras
from envbuild.check.evidence import Evidence
from envbuild.data import lookup
from envbuild.data.package_tables import load_names
from envbuild.data.tables import load_frameworks
from envbuild.project.names import distribution_of, likely_distribution
from envbuild.recipe.requirement import NO_REQUIREMENT, allows, marker_values

NAME_GONE = re.compile(
    r"(?:'\w+' from (?:partially initialized module )?|\bmodule )'(?P<module>[\w.]+)'"
)
"""What Python says of a name that a module does not have."""
REMOVED = re.compile(
    r"\b(?P<module>[A-Za-z]\w{0,80})\.\w[\w.]{0,200}[`'\"]? (?:was|were|ha(?:s|ve) been) (?:re)?moved\b"
)
"""What packages say themselves of a name that a release has no more (JAX, NumPy)."""
MISSING = re.compile(r"No module named '(?P<module>[\w.]+)'")
OLD_PYTHON = re.compile(
    r"mutable default <class '[\w.]+'> for field \w+ is not allowed"
    r"|Missing parentheses in call to '(?:print|exec)'"
    r"|multiple exception types must be parenthesized"
)
"""What only code for an older Python does: dataclasses of 3.11 refuse it; the rest is Python 2."""


def cure_of_requirements(evidence: Evidence, module: str, error: str) -> str | None:
    """Say which package is not of the releases that a module's own distribution asks for.

    Where the error names another package, none but that one can be the cause.
    """
    found = evidence.installed
    named = _named_other(evidence, module, error)
    top = _top(module)
    python = marker_values(found.python)
    for holder, modules in found.imports.items():
        if top not in set(map(_top, modules)):
            continue
        for wish in _requirements(found.requires.get(holder, ())):
            dist = found.dist(canonicalize_name(wish.name))
            if wish.marker is not None and not wish.marker.evaluate(python):
                continue
            if dist is None or (named is not None and dist.name != named):
                continue
            if not allows(wish, dist.version):
                asked = f'put "{wish.name}{wish.specifier}" into [python] dependencies'
                return f"{asked}: {holder} asks for it, and {dist.name} {dist.version} is there"
    return None


def lacking_module(error: str) -> str | None:
    """Return the module that an error says to lack a name."""
    gone = NAME_GONE.search(error)
    removed = None if gone else REMOVED.search(error)
    if removed is not None:
        return {"np": "numpy"}.get(removed["module"], removed["module"])
    return gone["module"] if gone else None


def _named_other(evidence: Evidence, module: str, error: str) -> str | None:
    """Return the distribution that an error finds missing or too old, if not the module's own."""
    missing = MISSING.search(error)
    gone = missing["module"] if missing else lacking_module(error)
    if gone is None or _top(gone) == _top(module):
        return None
    name = likely_distribution(gone)
    asked = {canonicalize_name(wish.name) for wish in _all_requirements(evidence)}
    known = evidence.installed.dist(name) or name in asked or distribution_of(gone)
    return name if known else None


def _top(module: str) -> str:
    return module.partition(".")[0]


def cure_import(evidence: Evidence, module: str, answer: Imported) -> str:
    """Say what mends an import: what its message names, else what its kind of failure suggests."""
    error = answer.error
    named = cure_of_blamed(error) or cure_of_library(evidence, error, module)
    named = named or cure_of_version(error) or cure_of_variable(evidence, error)
    named = named or _cure_of_path(evidence, module) or _cure_of_strange(evidence, module)
    named = named or cure_of_name(evidence, module) or _cure_of_python(evidence, error, module)
    named = named or cure_of_version(answer.advice)
    named = named or _cure_of_kind(evidence, module, answer)
    if named:
        return named
    whole = "the whole message is in the evidence: envbuild check --json"
    says = re.search(r"\b(?:re)?install\b", error)
    return f"do what the package says itself; {whole}" if says else whole


def _cure_of_kind(evidence: Evidence, module: str, answer: Imported) -> str | None:
    """Say what mends an import that fails in a way of which the cause is known."""
    if "ModuleNotFoundError" in f"{answer.kind} {answer.error}" or MISSING.search(answer.error):
        return _cure_of_module(evidence, answer.error)
    if re.search(r"_pytorch_\d[\d.]*\.so", answer.error):
        return (
            "it has no library for this release of torch: take the wheel of its own index for it, "
            "or a torch that it has a library for"
        )
    gone = lacking_module(answer.error)
    if answer.kind in ("ImportError", "AttributeError") and gone:
        return _cure_of_two(evidence, module, answer, gone)
    if answer.kind in ("SIGILL", "SIGSEGV", "SIGBUS", "SIGABRT"):
        return "its compiled code does not fit this machine or its libraries; try another release of the package"
    if answer.kind in ("AttributeError", "TypeError"):
        return _cure_of_object(evidence, module, answer)
    return _cure_of_system(evidence, module, answer)


def _cure_of_system(evidence: Evidence, module: str, answer: Imported) -> str | None:
    """Say which Debian packages a package needs that looks for a library itself (names.toml)."""
    needs = load_names().system.get(holder_of(evidence, module))
    if answer.kind not in ("OSError", "ImportError") or not needs or not needs.packages:
        return None
    packages = '", "'.join(needs.packages)
    return f'add "{packages}" to [system] packages: a library of the system that it opens'


def _cure_of_object(evidence: Evidence, module: str, answer: Imported) -> str | None:
    """Say what mends a package that asks an object of another one for what it does not have.

    The message names neither; the traceback goes through the package that asks last.
    """
    held = holder_of(evidence, module)
    asks = next((name for name in answer.blame if evidence.installed.dist(name)), held)
    dist = evidence.installed.dist(asks)
    if dist is None or lookup.framework_of(asks) is not None:
        return None
    return (
        f"{asks} {dist.version} does not go with the release of a package that it works with: take "
        f'the newest that does (put "{asks}" without bounds into [python] dependencies); '
        "envbuild lock --prove looks for releases that import"
    )


def cure_of_name(evidence: Evidence, module: str) -> str | None:
    """Say that the package called like a module is not the one that most code takes it from."""
    held = holder_of(evidence, module)
    usual = distribution_of(module)
    top = _top(module)
    for both in evidence.installed.overlaps:
        if (
            held in both.dists
            and both.example.startswith(f"{top}/")
            and both.dists[0] != both.dists[1]
        ):
            names = " and ".join(both.dists)
            return f"{names} write the same files ({both.example}): ask for one of them only"
    if not usual or usual == held or held != canonicalize_name(top):
        return None
    return (
        f'"{held}" on a package index is another package than the one most code means by import '
        f'{module}: put "{usual}" into [python] dependencies in its place'
    )


def cure_of_cpu_build(evidence: Evidence, module: str, error: str) -> str | None:
    """Say which build has the GPU's part of a package, where the image has the one without."""
    held = holder_of(evidence, module)
    if not held.endswith("-cpu") or not re.search("gpu|cuda", error, re.IGNORECASE):
        return None
    for row in load_frameworks().exclusive:
        if held in row.dists:
            return f'"{held}" has no part for the GPU: ask for "{row.dists[-1]}" in its place'
    return None


def cure_of_fuller_build(evidence: Evidence, module: str) -> str | None:
    """Say which build of a package has more parts, where the image has one of those with fewer."""
    held = holder_of(evidence, module)
    for row in load_frameworks().exclusive:
        fuller = [name for name in row.dists if lookup.matches(name, row.fuller)]
        if held in row.dists and fuller and held not in fuller:
            alike = max(fuller, key=lambda name: len(set(name.split("-")) & set(held.split("-"))))
            return (
                f'"{held}" has fewer parts than "{alike}": ask for that in its place; where it '
                "has none of that name either, change that line of the project"
            )
    return None


def cure_of_blamed(error: str) -> str | None:
    """Say to take a variable out without which the probe saw all go well."""
    blamed = re.search(r"it works without (\w+) of the environment", error)
    return f"take {blamed[1]} out of the environment: without it all goes well" if blamed else None


def cure_of_variable(evidence: Evidence, error: str) -> str | None:
    """Say which variable of the image an error comes from."""
    blamed = cure_of_blamed(error)
    if blamed:
        return blamed
    env = evidence.installed.environment
    for row in load_cures().variable:
        if row.value in env.get(row.name, "") and re.search(row.pattern, error):
            return f"take {row.name} out of the environment: {row.why}"
    return None


def _cure_of_path(evidence: Evidence, module: str) -> str | None:
    """Say that a package that does not import comes from PYTHONPATH, before the image's own."""
    dist = evidence.installed.dist(holder_of(evidence, module))
    folders = evidence.installed.environment.get("PYTHONPATH", "").split(":")
    if dist is None or dist.folder not in folders:
        return None
    return (
        f"take {dist.folder} out of PYTHONPATH in the base's or the recipe's environment: its "
        f"{dist.name} {dist.version} comes before the image's own"
    )


def _cure_of_strange(evidence: Evidence, module: str) -> str | None:
    """Say that the compiled part of a package is for another Python or system."""
    if evidence.libraries is None or evidence.libraries.data is None:
        return None
    found = evidence.libraries.data
    for path in found.other_pythons:
        short = libraries.shorten_path(path, found.folders)
        if short.startswith(f"{module.partition('.')[0]}/"):
            return libraries.cure_of_strange(evidence, short)
    return None


def _cure_of_python(evidence: Evidence, error: str, module: str) -> str | None:
    """Say that a package asks its Python for what this release of Python does not have."""
    gone = lacking_module(error)
    own = gone is not None and _top(gone) in sys.stdlib_module_names
    if "circular import" in error or not (own or OLD_PYTHON.search(error)):
        return None  # a file that hides a module of Python is told by the check of sources
    held = holder_of(evidence, module)
    found = evidence.installed
    dist = found.dist(held)
    python = ".".join(found.python.split(".")[:2])
    what = f"{held} {dist.version}" if dist else held
    return (
        f"{what} was written for an older Python than the image's {python}: take the newest release "
        f'of {held} (put "{held}" without bounds into [python] dependencies); where that fails '
        "too, only an image with an older Python mends it, or another package"
    )


def _cure_of_two(evidence: Evidence, module: str, answer: Imported, lacking: str) -> str:
    """Say what mends a package that asks another one for a name that it does not have.

    Which of the two is too old no message tells; the newest of both go together. The traceback goes
    through the package that asks last.
    """
    other = likely_distribution(lacking)
    dist = evidence.installed.dist(other)
    blamed = [name for name in answer.blame if name != other and evidence.installed.dist(name)]
    asks = blamed[0] if blamed else holder_of(evidence, module)
    if dist is None or other == asks:
        return (
            f"{asks} does not go with the package whose name it misses: put "
            f'"{asks}" without bounds into [python] dependencies, or bound the other one'
        )
    if lookup.framework_of(other) is not None:
        return f"take the release of {asks} that goes with {other} {dist.version}"
    return (
        f"{asks} takes from {other} {dist.version} what it does not have: take the newest of both "
        f'(put "{asks}" and "{other}" without bounds into [python] dependencies)'
    )


def _cure_of_symbol(evidence: Evidence, error: str, module: str) -> str:
    """Say what mends a symbol that is missing: another copy of its library, or of its package."""
    if evidence.libraries and evidence.libraries.data:
        found = libraries.cure_of_symbol(evidence)
        if found:
            return found
    other = "torch" if re.search(r"torch|c10|_ZN?K?2at", error) else "what it was built with"
    torch = evidence.installed.dist(other)
    this = f"torch {torch.version}" if torch else "this one"
    held = holder_of(evidence, module)
    return (
        f"the compiled code of {held} is for another release of {other}: take a release of {held} "
        f"that was built for {this}; where the newest fails too, there is none, and nothing mends "
        "it"
    )


def holder_of(evidence: Evidence, module: str) -> str:
    """Return the distribution that a module is of; the module's own name where none says so."""
    top = _top(module)
    held = [name for name, modules in evidence.installed.imports.items() if top in modules]
    return held[0] if held else likely_distribution(module)


def cure_of_library(evidence: Evidence, error: str, module: str = "") -> str | None:
    """Say how a library that a message names is found, or that it is another release of it."""
    if "undefined symbol" in error:
        return _cure_of_symbol(evidence, error, module)
    words = error.replace(":", " ").replace("'", " ").split()
    library = next((word for word in words if ".so" in word and "/" not in word), None)
    if library is not None and lookup.from_rocm(library):
        return libraries.advise_provider(library)
    provider = lookup.provider_of(library) if library else None
    if library is None or provider is None:
        return None
    if provider.debian:
        note = f"; {provider.note}" if provider.note else ""
        return f'add "{provider.debian}" to [system] packages{note}'
    return libraries.advise_on_library(evidence, library) if provider.wheel else None


def _cure_of_module(evidence: Evidence, error: str) -> str:
    """Say which package has a module that is missing, as the packages' own requirements name it.

    A name that neither they nor names.toml know is not guessed: anybody could have registered it.
    """
    lacking = MISSING.search(error)
    if lacking is None:
        return "add the missing package to the recipe's dependencies, lock and build again"
    module = lacking[1]
    framework = lookup.framework_of(_top(module))
    other_backend = advise_on_keras(evidence) if framework and framework.keras else None
    if other_backend:
        return other_backend
    known = distribution_of(module)
    name = likely_distribution(module)
    every = _all_requirements(evidence)
    wishes = [wish for wish in every if canonicalize_name(wish.name) == name]
    if evidence.installed.dist(name) is not None:
        return (
            f"{name} is here in a release without {module}: take another release of it, or of the "
            "package that asks for it; envbuild lock --prove looks for releases that import"
        )
    wish = f"{wishes[0].name}{wishes[0].specifier}" if wishes else known
    if wish:
        return f'add "{wish}" to [python] dependencies: it has the module {module}'
    return f"add the package that has the module {module} to [python] dependencies"


def _all_requirements(evidence: Evidence) -> list[Requirement]:
    return _requirements(chain.from_iterable(evidence.installed.requires.values()))


def _requirements(lines: Iterable[str]) -> list[Requirement]:
    """Return what distributions ask for without an extra."""
    found = []
    for line in lines:
        with contextlib.suppress(*NO_REQUIREMENT):
            wish = Requirement(line)
            if "extra" not in str(wish.marker):
                found.append(wish)
    return found
