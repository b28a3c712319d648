"""Checks of imports: direct requirements, what the project takes, what opens at run time."""

from __future__ import annotations

import re
from typing import Any

from envbuild.check.answers import Imported, Tried
from envbuild.check.checks import libraries
from envbuild.check.checks.cures.imports import (
    cure_import,
    cure_of_blamed,
    cure_of_cpu_build,
    cure_of_fuller_build,
    cure_of_library,
    cure_of_name,
    cure_of_requirements,
    cure_of_variable,
    holder_of,
    lacking_module,
)
from envbuild.check.checks.cures.releases import cure_of_version
from envbuild.check.evidence import Evidence, Verdict, failed, given, passed, skipped
from envbuild.data import lookup
from envbuild.data.tables import EntryPoint, load_entry_points
from envbuild.names import Texts
from envbuild.project.names import distribution_of
from envbuild.records import replace
from envbuild.store.units import count_noun, listing

UNFIT = re.compile(
    r"^TypeError: \w+\(\) (?:got|missing|too|multiple)|\(\) (?:does nothing but raise|refuses)"
    r"|^(?:Attribute|Type)Error: (?:'(?!None)[\w.]+' object (?:has|is) no|.{1,80}? was removed)"
)
"""What the probe says of a call, or of an object, that the installed release does not take or have."""

NO_DRIVER = re.compile(
    r"\b0 active drivers|No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device"
    r"|cudaError(?:NoDevice|InsufficientDriver)|driver version is insufficient"
    r"|\b(?:[Nn]eeds? a|[Rr]equires? an?|only (?:works on|supports)|No(?! module)|find any)\b"
    r"[\w ]{1,24}\b(?:GPUs?|accelerators?)\b"
)
"""What Triton, torch, CUDA's runtime and packages that want a GPU say where there is no driver."""


def direct_imports(evidence: Evidence) -> Verdict:
    """Check whether every direct requirement imports."""
    answers = given(evidence.imports).modules
    modules = {name: answer for name, answer in answers.items() if answer.ok or not answer.used}
    broken = {name: answer for name, answer in modules.items() if not answer.ok}
    shown = {
        "seconds": {name: answer.seconds for name, answer in sorted(modules.items())},
        "errors": {name: answer.error for name, answer in sorted(broken.items())},
    }
    real = {
        name: answer for name, answer in broken.items() if not _waits_for_driver(evidence, answer)
    }
    if real:
        return _broken_import(evidence, real, "import", shown)
    if broken:
        return skipped(
            f"{listing(sorted(broken))} can only be imported where an NVIDIA driver is; the others import",
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
    tried = sorted(name for name in evidence.uses.names if name in modules)
    absent = given(evidence.imports).absent
    if not tried and not absent:
        return skipped("the project's own Python imports no package of the image")
    broken = {name: modules[name] for name in tried if not modules[name].ok}
    real = {
        name: one
        for name, one in broken.items()
        if one.used and not _waits_for_driver(evidence, one)
    }
    errors = {name: one.error for name, one in broken.items()}
    shown = {"modules": tried, "errors": errors, "absent": list(absent)}
    needed = {name: one for name, one in real.items() if (name, one.taking) in evidence.uses.needed}
    if needed:
        verdict = _broken_import(evidence, needed, "the project's source imports", shown)
        return replace(verdict, hint=_cure_of_project(evidence, needed) or verdict.hint)
    lacking = _lacking(evidence, absent, shown) if absent else None
    if real:
        aside = _broken_aside(evidence, real, shown)
        if lacking is None:
            return aside
        return replace(
            aside,
            reason=f"{aside.reason}; {lacking.reason}",
            hint=f"{aside.hint}\n{lacking.hint}",
        )
    if lacking is not None:
        return lacking
    counted = f"{len(tried)} modules" if len(tried) > 1 else "the module"
    return passed(
        f"{counted} that the project's source imports, and what it takes from them", **shown
    )


def _broken_aside(
    evidence: Evidence, broken: dict[str, Imported], shown: dict[str, Any]
) -> Verdict:
    """Say which files of the project cannot run in the image; nobody may ever start them."""
    files = {
        evidence.uses.files.get((name, one.taking), "a file of the project"): (name, one)
        for name, one in sorted(broken.items())
    }
    first, (module, answer) = next(iter(files.items()))
    said = useful_line(answer.error, answer.noise)
    also = f"; also {listing(list(files)[1:])}" if len(files) > 1 else ""
    cure = _cure_of_project(evidence, {module: answer}) or cure_import(evidence, module, answer)
    return skipped(
        f"{first}, which not every program of the project loads, cannot run: "
        f"{module}: {said}{also}",
        f"leave it if nobody runs it; else {cure}",
        files=list(files),
        **shown,
    )


def _lacking(evidence: Evidence, absent: Texts, shown: dict[str, Any]) -> Verdict:
    """Say which files of the project cannot run in the image; somebody may run them elsewhere."""
    first, *more = (f"{name} ({evidence.expected.needed[name]})" for name in absent)
    also = f"; also {listing(more)}" if more else ""
    package = distribution_of(absent[0]) or "the package that has it"
    return skipped(
        f"nothing in the image has {first}, which the project imports{also}",
        f"add {package} to the recipe (envbuild add), or leave it if that file runs elsewhere",
        **shown,
    )


def _cure_of_project(evidence: Evidence, broken: dict[str, Imported]) -> str | None:
    """Say what mends an import of what its package, which is there, does not have."""
    module = min(broken)
    answer = broken[module]
    top = module.partition(".")[0]
    package = holder_of(evidence, module)
    change = (
        f"the image's {package} does not have it: change that line of the project, or bound "
        f"{package} to a release that has it"
    )
    lacks = lacking_module(answer.error)
    foreign = lacks is not None and lacks.partition(".")[0] != top
    if UNFIT.search(answer.error) and not foreign:
        return change
    lacking = re.search(r"No module named '([\w.]+)'", answer.error)
    gone = lacking is not None and module.startswith(lacking[1])
    if not gone and answer.kind not in ("AttributeError", "ImportError"):
        return None
    told = cure_of_library(evidence, answer.error) or cure_of_version(answer.error)
    told = told or cure_of_variable(evidence, answer.error)
    if told or (lacks is None and not gone):
        return None  # the package says in words of its own what it is about
    usual = cure_of_name(evidence, module) or cure_of_cpu_build(evidence, module, answer.error)
    usual = usual or (cure_of_fuller_build(evidence, module) if lacks is not None else None)
    if usual:
        return usual
    if foreign:
        return None  # two packages of the image do not go together: no line of the project mends it
    return f"{change} (envbuild lock --prove looks for one)"


def _broken_import(
    evidence: Evidence, broken: dict[str, Imported], what: str, shown: dict[str, Any]
) -> Verdict:
    """Tell of the first import that failed, and name the others."""
    names = sorted(broken)
    first = broken[names[0]]
    more = f"; also {listing(names[1:])}" if len(names) > 1 else ""
    noise = {"output": list(first.noise)} if first.noise else {}
    said = useful_line(first.error, first.noise)
    hint = cure_of_requirements(evidence, names[0], first.error) or cure_import(
        evidence, names[0], first
    )
    return failed(f"{what} {names[0]}: {said}{more}", hint, **shown, **noise)


def entry_points(evidence: Evidence) -> Verdict:
    """Check whether packages find what they open when they run, as they do it themselves."""
    tried = given(evidence.imports).entries
    if not tried:
        return skipped("no package is known to open more when it runs")
    rows = {entry.name: entry for entry in load_entry_points().entry}
    shown = {"seconds": {name: one.seconds for name, one in tried.items()}}
    broken = {
        name: one
        for name, one in tried.items()
        # an image may answer what was not asked
        if name in rows and not one.ok and not _waits_for_driver(evidence, one)
    }
    if broken:
        reasons = [f"{name}: {useful_line(one.error, one.noise)}" for name, one in broken.items()]
        hints = [_entry_cure(evidence, rows[name], broken[name].error) for name in broken]
        errors = {name: [one.error, *one.noise] for name, one in broken.items()}
        return failed("; ".join(reasons), "\n".join(dict.fromkeys(hints)), errors=errors, **shown)
    notes = [f"{name} {one.note}" for name, one in tried.items() if one.note]
    note = f" ({'; '.join(notes)})" if notes else ""
    return passed(f"{listing(list(tried))}: all is found{note}", **shown)


def _entry_cure(evidence: Evidence, entry: EntryPoint, error: str) -> str:
    """Say how a package gets what it opens.

    That is the library that its message names, else the table's own advice.
    """
    soname = re.search(r"\blib[\w+-]{1,200}\.so\.[\d.]*\d", error)
    blamed = cure_of_blamed(error)
    if blamed:
        return blamed
    extra = re.search(r"\(ask for ([\w.-]+\[[\w-]+\])\)$", error)
    if extra:
        return f'ask for "{extra[1]}", whose extra brings the CUDA libraries that it opens'
    if soname is None or lookup.provider_of(soname[0]) is None:
        asked = cure_of_requirements(evidence, entry.module, error) or cure_of_version(error)
        return asked or entry.cure
    advice = libraries.advise_on_extra(evidence, entry.dists) or libraries.advise_on_library(
        evidence, soname[0]
    )
    return f"{advice}; {entry.cure}"


USELESS = re.compile(r"^[\W_]*$|^\[?(?:end|start) of|^\^+$|^={3,}|^-{3,}", re.IGNORECASE)
"""Last lines of messages that say nothing: rules, brackets, "end of traceback"."""


def useful_line(error: str, noise: Texts = ()) -> str:
    """Return an error's line; where it says nothing, the last one before that looks like one."""
    text = error.partition(": ")[2] if ": " in error else error
    if text.strip() and not USELESS.match(text.strip()):
        return error
    likely = [line.strip() for line in noise if re.search(r"Error|cannot|failed|not ", line)]
    return likely[-1] if likely else error


def _waits_for_driver(evidence: Evidence, answer: Imported | Tried) -> bool:
    return not evidence.gpu and lacks_driver(answer)


def lacks_driver(answer: Imported | Tried) -> bool:
    """Whether something failed for want of the NVIDIA driver only, which no image holds."""
    if NO_DRIVER.search(answer.error):
        return True
    words = answer.error.replace(":", " ").replace("'", " ").split()
    return any(lookup.from_driver(word) for word in words)


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
