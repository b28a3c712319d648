"""What would help against a conflict: the pin to loosen and what it would give, the base to take, the date."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from envbuild.base.catalogue import Entry
from envbuild.base.suggest import Wish, framework_name, suggest
from envbuild.errors import EnvbuildError, UsageError
from envbuild.resolve.couplings import load_aliases
from envbuild.resolve.dates import read_date
from envbuild.resolve.explain import (
    BROKEN,
    MISSING,
    NO_WHEELS,
    PYTHON,
    Clash,
    ConflictError,
    Context,
    empty_pages,
    mentioned,
    name_of,
)
from envbuild.resolve.platform import python_minor
from envbuild.resolve.pylock import Chosen
from envbuild.resolve.question import Question
from envbuild.resolve.requirements import Direct
from envbuild.resolve.search import Task
from envbuild.resolve.session import Session
from envbuild.resolve.versions import newer, satisfies

SECONDS = 15.0
"""How long to look for what a loosened pin would give."""
MOST_IMAGES = 2
MOST_PINS = 4
ANCIENT_DAYS = 730


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The release of a direct requirement that fits once its bounds are gone; ``uploaded`` is an ISO date or None.

    ``alone`` tells that nothing else needs to give way.
    """

    version: str
    uploaded: str | None
    alone: bool = True


def what_fits(session: Session, task: Task, conflict: ConflictError) -> dict[str, Fit]:
    """Ask again without the bounds of the direct requirements that a conflict is about; empty where that fails too.

    Each is loosened alone, so that what is found goes with the other ones as they are; where that helps nowhere, all.
    """
    names = [d.name for d in pinned(conflict, task.context) if not task.context.stubs.hard(d.name)]
    found: dict[str, Fit] = {}
    for name in names[:MOST_PINS] if len(names) > 1 else ():
        found |= _loose(session, task, {name})
    both = found or _loose(session, task, {d.name for d in pinned(conflict, task.context)})
    return both if found else {name: replace(fit, alone=len(both) < 2) for name, fit in both.items()}


def _loose(session: Session, task: Task, loose: Collection[str]) -> dict[str, Fit]:
    """Return what fits once these are without bounds; empty where nothing does."""
    context = task.context
    if not loose:
        return {}
    wanted = (d.unbound if d.name in loose else d.text for d in context.directs)
    question = Question(
        requirements=(*task.roots, *wanted),
        constraints=task.constraints,
        as_of=context.as_of,
        seconds=SECONDS,
    )
    try:
        answer = session.ask(question)
    except (ConflictError, EnvbuildError):
        return {}
    return {name: _fit(answer[name]) for name in loose if name in answer and not answer[name].from_base}


def pinned(conflict: ConflictError, context: Context) -> tuple[Direct, ...]:
    """Return the direct requirements with bounds that a derivation speaks of."""
    names = mentioned(conflict.text)
    return tuple(direct for direct in context.directs if direct.name in names and direct.specifier)


def _fit(chosen: Chosen) -> Fit:
    uploads = [file.uploaded for file in (*chosen.wheels, chosen.sdist) if file is not None and file.uploaded]
    return Fit(version=chosen.version, uploaded=min(uploads, default=None))


def hints(
    conflict: ConflictError, context: Context, clashes: Iterable[Clash], fits: Mapping[str, Fit]
) -> tuple[str, ...]:
    """Return what to change, the smallest change first."""
    elsewhere = load_aliases().elsewhere
    found = [
        f"leave out {name}, or bring it otherwise: {elsewhere[name]}"
        if name in elsewhere
        else f"check the spelling of {name}; packages of another index need its name under [python] indexes"
        for name in dict.fromkeys((*MISSING.findall(conflict.text), *(n for n in conflict.traps if n in elsewhere)))
    ]
    found += [
        f"name the index that has the real {name} under [python] indexes, or look at what is there by that name, and "
        "write it under [python] dependencies if you want it"
        for name in conflict.traps
        if name not in elsewhere
    ]
    found += [
        f"look at what the index answers for {name}: a login or error page of a proxy offers nothing either"
        for name in empty_pages(conflict)
    ]
    pins = pinned(conflict, context)
    inert = [d for d in pins if d.name in fits and satisfies(fits[d.name].version, d.specifier)]
    useful = [d for d in pins if d.name in fits or context.stubs.hard(d.name)] if fits else pins
    pins = tuple(d for d in useful if d not in inert) or pins  # a pin that stays as it is was not in the way
    found += [_loosened(direct, context, fits.get(direct.name)) for direct in pins]
    if conflict.filtered:
        found.append('set as-of under [python] to a later date, or to "none"')
    wanted = dict.fromkeys(clash.wanted for clash in clashes if clash.stub.hard)
    wanted |= dict.fromkeys(d.text for d in pins if context.stubs.hard(d.name))
    lacking = {name_of(package) for package, _ in NO_WHEELS.findall(conflict.text)}
    bases = _bases(conflict, context, (*wanted, *(d.text for d in pins if d.name in lacking)))
    if context.facts.machine != "x86_64" and any("platform" in tag for _, tag in NO_WHEELS.findall(conflict.text)):
        bases = ""  # those of the catalogue are for x86_64, most of them for nothing else
    if wanted:
        found.append(f"take a base that holds {', '.join(wanted)}" + (f": {bases}" if bases else ""))
    elif bases:
        found.append(f"take another base: {bases}")
    elif NO_WHEELS.search(conflict.text):
        found.append(_without_wheels(conflict, context))
    return tuple(found) or _general(conflict, context)


def _without_wheels(conflict: ConflictError, context: Context) -> str:
    """Return what to do about packages that have no file for the base: the platform is in the way, or its Python."""
    tags = [(name_of(package), tag) for package, tag in NO_WHEELS.findall(conflict.text)]
    names = list(dict.fromkeys(name for name, tag in tags if "platform" in tag))
    if not names:
        return "take a base with another Python"
    machine = context.facts.machine
    other = f"a base for another machine than {machine}" if machine != "x86_64" else "a base with a newer glibc"
    return f"leave out {', '.join(names)}, or take {other}"


def _general(conflict: ConflictError, context: Context) -> tuple[str, ...]:
    if BROKEN.search(conflict.text):
        return ("take another index, or clear the cache of the mirror or proxy that answers here",)
    names = mentioned(conflict.text)
    return tuple(f"leave out {d.written}, or take another base" for d in context.directs if d.name in names)


def _loosened(direct: Direct, context: Context, fit: Fit | None) -> str:
    stubs = context.stubs
    if stubs.hard(direct.name):
        return f"loosen {direct.written}: the base's {stubs.by_name[direct.name].public} is then taken"
    if fit is None:
        return f"loosen {direct.written}"
    day = f" of {fit.uploaded}" if fit.uploaded else ""
    others = "" if fit.alone else ", once the others named here are loosened too"
    if _ancient(fit, context) and not newer(fit.version, direct.specifier):
        only = f"only {direct.name} {fit.version}{day} fits then, years older than this base"
        return f"loosen {direct.written}, though {only}"
    return f"loosen {direct.written}: {direct.name} {fit.version}{day} fits this base{others}"


def _ancient(fit: Fit, context: Context) -> bool:
    """Whether a release is from long before the base, and then fits mostly because it declares no bounds."""
    made = context.facts.created
    if not made or not fit.uploaded:
        return False
    return (read_date(made, "created") - read_date(fit.uploaded, "uploaded")).days > ANCIENT_DAYS


def _bases(conflict: ConflictError, context: Context, wanted: Iterable[str]) -> str:
    """Return bases of the catalogue that would do, in words; empty where it knows none."""
    asked = next((text for text in wanted if framework_name(text)), None)
    own = ".".join(map(str, python_minor(context.facts)))
    pythons = [bounds.rstrip(",") for bounds, _ in PYTHON.findall(conflict.text)]
    if asked:
        wishes = [Wish(framework=asked, python=own), Wish(framework=asked)]
    elif pythons:
        wishes = [Wish(framework=text, python=pythons[0]) for text in _held(context)]
    else:
        return ""
    for wish in wishes:
        try:
            chosen = [choice.entry for choice in suggest(wish)[0] if choice.entry.defect is None]
        except UsageError:
            continue
        if chosen:
            made = [entry for entry in chosen if entry.is_bootstrap][:1]
            images = [entry for entry in chosen if not entry.is_bootstrap][:MOST_IMAGES]
            return " or ".join(_told(entry) for entry in (*images, *made))
    return ""


def _held(context: Context) -> list[str]:
    """Return what the base's framework is called, at its version and at any."""
    for stub in context.stubs.by_name.values():
        name = framework_name(stub.name)
        if name is not None and stub.hard and not stub.alias_of:
            return [f"{name}=={stub.public}", name]
    return []


def _told(entry: Entry) -> str:
    if entry.is_bootstrap:
        return f'bootstrap = "{entry.reference}" with framework = "{entry.requirement}" (Python {entry.python})'
    return f"{entry.reference} ({entry.holds}, Python {entry.python})"
