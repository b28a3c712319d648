"""Checks of imports: direct requirements, what the project takes, what opens at run time."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from envbuild.check.answers import Imported
from envbuild.check.checks import libraries
from envbuild.check.checks.frameworks import BACKENDS, advise_on_keras
from envbuild.check.evidence import Evidence, Verdict, failed, given, listing, passed, skipped
from envbuild.data import lookup
from envbuild.data.tables import EntryPoint, load_entry_points
from envbuild.project.names import distribution_of
from envbuild.store.units import count_noun


def direct_imports(evidence: Evidence) -> Verdict:
    """Check whether every direct requirement imports."""
    answers = given(evidence.imports).modules
    modules = {name: answer for name, answer in answers.items() if answer.ok or not answer.used}
    broken = {name: answer for name, answer in modules.items() if not answer.ok}
    needs_driver = {name for name, answer in broken.items() if _waits_for_driver(evidence, answer)}
    shown = {
        "seconds": {name: answer.seconds for name, answer in sorted(modules.items())},
        "errors": {name: answer.error for name, answer in sorted(broken.items())},
    }
    real = {name: answer for name, answer in broken.items() if name not in needs_driver}
    if real:
        return _broken_import(evidence, real, "import", shown)
    if needs_driver:
        return skipped(
            f"{listing(sorted(needs_driver))} can only be imported where an NVIDIA driver is; the others import",
            "check again on a machine with a GPU",
            **shown,
        )
    absent = _absent(evidence)
    if absent:
        return failed(
            f"{listing(absent)} is not installed",
            "lock and build again: envbuild lock, envbuild make",
            **shown,
        )
    if not modules:
        return skipped("there is nothing to import")
    nothing = _without_modules(evidence)
    note = f" ({listing(nothing)} has no module to import)" if nothing else ""
    count = f"{count_noun(len(modules), 'module')} {'imports' if len(modules) == 1 else 'import'}"
    slowest = max(modules, key=lambda name: modules[name].seconds)
    return passed(
        f"{count}; the slowest, {slowest}, in {modules[slowest].seconds:.1f} s{note}",
        **shown,
    )


def project_imports(evidence: Evidence) -> Verdict:
    """Check whether the project's own source finds what it imports from the image's packages.

    Packages that import their parts late (transformers, spaCy) prove nothing by their own import.
    """
    modules = given(evidence.imports).modules
    tried = sorted(name for name in evidence.uses if name in modules)
    if not tried:
        return skipped("the project's own Python imports no package of the image")
    broken = {name: modules[name] for name in tried if not modules[name].ok}
    real = {
        name: one
        for name, one in broken.items()
        if one.used and not _waits_for_driver(evidence, one)
    }
    shown = {"modules": tried, "errors": {name: one.error for name, one in broken.items()}}
    if real:
        told = _broken_import(evidence, real, "the project's source imports", shown)
        return replace(told, hint=_cure_of_project(evidence, real) or told.hint)
    counted = f"{len(tried)} modules" if len(tried) > 1 else "the module"
    return passed(
        f"{counted} that the project's source imports, and what it takes from them", **shown
    )


def _cure_of_project(evidence: Evidence, broken: dict[str, Imported]) -> str | None:
    """Say what mends an import of what its package, which is there, does not have."""
    module = min(broken)
    answer = broken[module]
    lacking = re.search(r"No module named '([\w.]+)'", answer.error)
    gone = lacking is not None and module.startswith(lacking[1])
    if not gone and answer.kind not in ("AttributeError", "ImportError"):
        return None
    if _cure_of_library(evidence, answer.error) or _cure_of_version(answer.error):
        return None
    package = module.partition(".")[0]
    lacks = NAME_GONE.search(answer.error)
    if lacks is not None and lacks["module"].partition(".")[0] != package:
        return None  # two packages of the image do not go together: no line of the project mends it
    return (
        f"the image's {package} does not have it: change that line of the project, or bound "
        f"{package} to a release that has it (envbuild lock --prove looks for one)"
    )


def _broken_import(
    evidence: Evidence, broken: dict[str, Imported], what: str, shown: dict[str, Any]
) -> Verdict:
    """Tell of the first import that failed, and name the others."""
    names = sorted(broken)
    first = broken[names[0]]
    more = f"; also {listing(names[1:])}" if len(names) > 1 else ""
    noise = {"output": list(first.noise)} if first.noise else {}
    said = useful_line(first.error, first.noise)
    hint = _cure_of_requirements(evidence, names[0]) or _cure(evidence, names[0], first)
    return failed(f"{what} {names[0]}: {said}{more}", hint, **shown, **noise)


def entry_points(evidence: Evidence) -> Verdict:
    """Check whether packages find what they open when they run, as they do it themselves."""
    tried = given(evidence.imports).entries
    if not tried:
        return skipped("no package is known to open more when it runs")
    rows = {entry.name: entry for entry in load_entry_points().entry}
    shown = {"seconds": {name: one.seconds for name, one in tried.items()}}
    broken = {name: one for name, one in tried.items() if not one.ok}
    if not evidence.gpu:
        broken = {name: one for name, one in broken.items() if not _names_driver(one.error)}
    if broken:
        reasons = [f"{name}: {useful_line(one.error, one.noise)}" for name, one in broken.items()]
        hints = [_entry_cure(evidence, rows[name], broken[name].error) for name in broken]
        errors = {name: [one.error, *one.noise] for name, one in broken.items()}
        return failed("; ".join(reasons), "\n".join(dict.fromkeys(hints)), errors=errors, **shown)
    notes = [f"{name} {one.note}" for name, one in tried.items() if one.note]
    note = f" ({'; '.join(notes)})" if notes else ""
    return passed(f"{listing(list(tried))}: all is found{note}", **shown)


def _cure_of_requirements(evidence: Evidence, module: str) -> str | None:
    """Say which packages are not of the releases that a module's own distribution asks for."""
    found = evidence.installed
    top = module.partition(".")[0]
    python = {"extra": "", "python_full_version": found.python}
    python["python_version"] = ".".join(found.python.split(".")[:2])
    for holder, modules in found.imports.items():
        if top not in {name.partition(".")[0] for name in modules}:
            continue
        for wish in _requirements(found.requires.get(holder, ())):
            dist = found.dist(canonicalize_name(wish.name))
            if wish.marker is not None and not wish.marker.evaluate(python):
                continue
            if dist is not None and not _is_met(wish, dist.version):
                asked = f'put "{wish.name}{wish.specifier}" into [python] dependencies'
                return f"{asked}: {holder} asks for it, and {dist.name} {dist.version} is there"
    return None


def _is_met(wish: Requirement, version: str) -> bool:
    try:
        return wish.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return True  # a version that is none cannot be compared


def _entry_cure(evidence: Evidence, entry: EntryPoint, error: str) -> str:
    """Say how a package gets what it opens.

    That is the library that its message names, else the table's own advice.
    """
    soname = re.search(r"\blib[\w+-]+\.so\.[\d.]*\d", error)
    if soname is None or lookup.provider_of(soname[0]) is None:
        return _cure_of_requirements(evidence, entry.module) or entry.cure
    advice = libraries.advise_on_extra(evidence, entry.dists) or libraries.advise_on_library(
        evidence, soname[0]
    )
    return f"{advice}; {entry.cure}"


def _names_driver(error: str) -> bool:
    words = error.replace(":", " ").replace("'", " ").split()
    return any(lookup.from_driver(word) for word in words)


NAME_GONE = re.compile(
    r"(?:cannot import name '\w+' from (?:partially initialized module )?|module )"
    r"'(?P<module>[\w.]+)'"
)
"""What Python says of a name that a module does not have."""
USELESS = re.compile(r"^[\W_]*$|^\[?(?:end|start) of|^\^+$|^={3,}|^-{3,}", re.IGNORECASE)
"""Last lines of messages that say nothing: rules, brackets, "end of traceback"."""


def useful_line(error: str, noise: tuple[str, ...] = ()) -> str:
    """Return an error's line; where it says nothing, the last one before that looks like one."""
    text = error.partition(": ")[2] if ": " in error else error
    if text.strip() and not USELESS.match(text.strip()):
        return error
    told = [line.strip() for line in noise if re.search(r"Error|cannot|failed|not ", line)]
    return told[-1] if told else error


def _waits_for_driver(evidence: Evidence, answer: Imported) -> bool:
    return not evidence.gpu and lacks_driver(answer)


def lacks_driver(answer: Imported) -> bool:
    """Whether an import failed for want of the NVIDIA driver only, which no image holds."""
    return _names_driver(answer.error)


def _cure(evidence: Evidence, module: str, answer: Imported) -> str:
    """Say what mends an import: what its message names, else what its kind of failure suggests."""
    named = _cure_of_library(evidence, answer.error) or _cure_of_version(answer.error)
    if named:
        return named
    if answer.kind == "ModuleNotFoundError":
        return _cure_of_module(evidence, answer.error)
    if re.search(r"_pytorch_\d[\d.]*\.so", answer.error):
        return (
            "it has no library for this release of torch: take the wheel of its own index for it, "
            "or a torch that it has a library for"
        )
    gone = NAME_GONE.search(answer.error)
    if answer.kind in ("ImportError", "AttributeError") and gone:
        return _cure_of_two(evidence, module, gone["module"])
    if answer.kind in ("SIGILL", "SIGSEGV", "SIGBUS", "SIGABRT"):
        return "its compiled code does not fit this machine or its libraries; try another release of the package"
    return "the whole message is in the evidence: envbuild check --json"


def _cure_of_two(evidence: Evidence, module: str, lacking: str) -> str:
    """Say what mends a module that asks another one for a name that it does not have.

    Which of the two is too old no message tells; the newest of both go together.
    """
    found = evidence.installed
    top = module.partition(".")[0]
    held = [name for name, modules in found.imports.items() if top in modules]
    asks = held[0] if held else distribution_of(module) or canonicalize_name(top)
    stem = lacking.partition(".")[0]
    other = distribution_of(lacking) or canonicalize_name(stem)
    dist = found.dist(other)
    if dist is None or other == asks:
        return (
            "it and the package whose name it misses are not of releases that go together: take a "
            "newer release of it, or of the other one"
        )
    if lookup.framework_of(other) is not None:
        return f"take the release of {asks} that goes with {other} {dist.version}"
    return (
        f"{asks} takes from {other} {dist.version} what it does not have: take the newest of both "
        f'(put "{asks}" and "{other}" without bounds into [python] dependencies)'
    )


def _cure_of_symbol(evidence: Evidence, error: str) -> str:
    """Say what mends a symbol that is missing: another copy of its library, or of its package."""
    named = re.search(r"\bversion (lib[\w+-]+\.so[.\d]*)", error)
    found = given(evidence.libraries) if evidence.libraries and evidence.libraries.data else None
    if named and found:
        copies = set(found.all_copies)
        for folder in found.library_path:
            if f"{folder}/{named[1]}" in copies:
                return (
                    f"take {folder} out of LD_LIBRARY_PATH: the {named[1]} there is another "
                    "release, and loaded first"
                )
    other = "torch" if re.search(r"torch|c10|_ZN?K?2at", error) else "what it was built with"
    return (
        f"its compiled code is for another release of {other}: take the release of it that was "
        "built for this one"
    )


def _cure_of_library(evidence: Evidence, error: str) -> str | None:
    """Say how a library that a message names is found, or that it is another release of it."""
    if "undefined symbol" in error:
        return _cure_of_symbol(evidence, error)
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
    lacking = re.search(r"No module named '([\w.]+)'", error)
    if lacking is None:
        return "add the missing package to the recipe's dependencies, lock and build again"
    module = lacking[1]
    if module.partition(".")[0] in BACKENDS:
        set_otherwise = advise_on_keras(evidence)
        if set_otherwise:
            return set_otherwise
    same = canonicalize_name(module.partition(".")[0])
    name = distribution_of(module) or same
    every = _requirements(chain.from_iterable(evidence.installed.requires.values()))
    wishes = [wish for wish in every if canonicalize_name(wish.name) == name]
    if evidence.installed.dist(name) is not None:
        return (
            f"{name} is here in a release without {module}: take another release of it, or of the "
            "package that asks for it; envbuild lock --prove looks for releases that import"
        )
    if wishes:
        wish = f"{wishes[0].name}{wishes[0].specifier}"
        return f'add "{wish}" to [python] dependencies: it has the module {module}'
    if distribution_of(module):
        return f'add "{name}" to [python] dependencies: it has the module {module}'
    return f"add the package that has the module {module} to [python] dependencies"


def _requirements(lines: Iterable[str]) -> list[Requirement]:
    """Return what distributions ask for without an extra."""
    found = []
    for line in lines:
        with contextlib.suppress(InvalidRequirement):
            wish = Requirement(line)
            if "extra" not in str(wish.marker):
                found.append(wish)
    return found


def _cure_of_version(error: str) -> str | None:
    """Say which release a message asks for."""
    newest = re.search(r"\bNumPy (\d+)\.(\d+) or less", error)
    if newest:
        bound = f"numpy<{newest[1]}.{int(newest[2]) + 1}"
        return f'add "{bound}" to the dependencies, or take a newer release of it'
    required = re.search(r"\b([A-Za-z][\w.-]*[<>=!~][^ ]*) is required .*but found ", error)
    if required:
        return f'add "{required[1]}" to the dependencies, lock and build again'
    if "No module named 'pkg_resources'" in error:
        return 'add "setuptools<81" to the dependencies, or take a newer release of the package'
    if "Descriptors cannot" in error:
        return 'add "protobuf<3.21" to the dependencies, or take a newer release of the package'
    if re.search(r"_ARRAY_API|numpy\.core\.multiarray failed|numpy\.dtype size", error):
        return 'it was compiled for another NumPy: add "numpy<2" to the dependencies, or take a newer release of it'
    return None


def _absent(evidence: Evidence) -> list[str]:
    """Return direct requirements that no distribution of the image meets.

    A lock's check tells of the locked ones.
    """
    known = evidence.expected
    asked = [
        name for name in known.direct if name not in known.locked and name not in known.conditional
    ]
    return [name for name in asked if evidence.installed.dist(name) is None]


def _without_modules(evidence: Evidence) -> list[str]:
    return [name for name in evidence.expected.direct if not evidence.installed.imports.get(name)]
