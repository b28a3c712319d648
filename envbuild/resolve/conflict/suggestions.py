"""What would help against a conflict: a pin to loosen, a later date, another base.

Nothing is proposed that was not tried: each is a question to uv, bounded in number and seconds.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec import structs
from packaging.utils import canonicalize_name

from envbuild.base.catalogue import CatalogueEntry
from envbuild.base.model import BaseFacts
from envbuild.base.suggest import BaseQuery, framework_name, suggest_bases
from envbuild.data.tables import load_frameworks
from envbuild.errors import EnvbuildError, UsageError
from envbuild.names import Texts
from envbuild.records import frozen_record, replace
from envbuild.resolve.conflict.explain import (
    NO_WHEELS,
    PYTHON,
    Clash,
    ConflictError,
    Problem,
    held_directs,
    mentioned_names,
    name_of,
)
from envbuild.resolve.conflict.index_advice import advise_on_index
from envbuild.resolve.couplings import NO_RELEASE, couplings_for
from envbuild.resolve.dates import read_date
from envbuild.resolve.platform import python_minor
from envbuild.resolve.pylock import Chosen
from envbuild.resolve.requirements import Direct
from envbuild.resolve.stubs import Stub, Stubs, lenient_version
from envbuild.resolve.uv.answer_checks.extras import find_missing_extra
from envbuild.resolve.uv.passes import Task
from envbuild.resolve.uv.query import Question
from envbuild.resolve.uv.session import Session
from envbuild.resolve.versions import is_newer, is_preview, is_within
from envbuild.store.units import count_noun, join_numbers

SECONDS = 20.0
"""How long to look for what would help, all together."""
MOST_TRIALS = 16
MOST_STEPS = 3
MOST_IMAGES = 2
PYTHONS = ("3.12", "3.11", "3.10", "3.9", "3.13", "3.8", "3.7")
NEWEST_GLIBC = "2.40"
MOST_PINS = 4
ANCIENT_DAYS = 730


@frozen_record
class FittingRelease:
    """The release that fits once the bounds are gone; ``uploaded`` is an ISO date or empty.

    ``alone`` tells that nothing else needs to give way.
    """

    version: str
    uploaded: str
    alone: bool = True


@dataclass(kw_only=True)
class Trials:
    """Questions about a task that was changed a little, until their number or time is used up."""

    session: Session
    task: Task
    asked: int = 0
    end: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    def ask(self, question: Question, session: Session | None = None) -> dict[str, Chosen] | None:
        """Return the answer with all extras asked for, None where there is none or no time."""
        seconds = self.end - time.monotonic()
        if self.asked >= MOST_TRIALS or seconds <= 0:
            return None
        self.asked += question.deps  # one about a name alone is no change that is tried
        asking = session or self.session
        with suppress(ConflictError, EnvbuildError):
            answer = asking.ask(replace(question, seconds=seconds))
            if find_missing_extra(self.task, asking.warnings, answer) is None:
                return answer
        return None

    def changed(
        self, loose: Collection[str] = (), *, without: Collection[str] = (), bounds: Texts = ()
    ) -> Question:
        """Return the task's question with some direct requirements free of bounds, or left out."""
        problem = self.task.problem
        kept = [direct for direct in problem.directs if direct.name not in without]
        wanted = tuple(direct.unbound if direct.name in loose else direct.text for direct in kept)
        return Question(
            requirements=(*self.task.roots, *wanted),
            constraints=(*self.task.constraints, *bounds),
            as_of=problem.as_of,
        )


def suggest_changes(
    session: Session, task: Task, conflict: ConflictError, clashes: Iterable[Clash]
) -> Texts:
    """Return what to change, the smallest change first, or that nothing was found."""
    # what the index lacks is mended by no other version
    index_advice = tuple(advise_on_index(conflict, task.problem))
    if index_advice:
        return index_advice
    trials = _make_trials(session, task)
    told_of = tuple(clashes)
    # the date is one trial: it is made before the pins have used up the trials
    later = tuple(_later_dates(trials))
    found = [
        *_loosened_pins(trials, conflict),
        *later,
        *_other_bases(trials, conflict, told_of),
    ]
    if not found and not told_of:
        found += _other_pythons(trials, conflict)
    if not found:
        found += _left_out(trials, conflict)
    if found:
        return tuple(found)
    tried = f" ({count_noun(trials.asked, 'change')} tried)" if trials.asked else ""
    separate = "make an image of its own for each of what excludes the other"
    return (f"{separate}: nothing else was found{tried}",)


def _make_trials(session: Session, task: Task) -> Trials:
    """Return the trials of a task, in which the recipe's framework may be another release."""
    stubs = task.problem.stubs
    chosen = {name for name, stub in stubs.by_name.items() if stub.chosen}
    if not chosen:
        return Trials(session=session, task=task)
    kept = {
        name: stub
        for name, stub in stubs.by_name.items()
        if name not in chosen and stub.alias_of not in chosen
    }
    dists = tuple(
        dist for dist in session.facts.dists if canonicalize_name(dist.name) not in chosen
    )
    trials = Trials(session=session, task=task)
    free = _session_elsewhere(
        trials, structs.replace(session.facts, dists=dists, framework=None), Stubs(kept)
    )
    roots = tuple(root for root in task.roots if name_of(root) not in chosen)
    roots += tuple(filter(None, (task.problem.framework,)))
    return Trials(session=free, task=replace(task, roots=roots))


def _loosened_pins(trials: Trials, conflict: ConflictError) -> Iterable[str]:
    """Yield the direct requirements to loosen: each alone, else all of them together."""
    pins = _pinned_directs(conflict, trials.task.problem)[:MOST_PINS]
    found = {
        pin.name: fit
        for pin in pins
        if (fit := _fitting_release(trials, pin, {pin.name})) is not None
    }
    # no pin helps alone: perhaps all of them together do
    if not found and len(pins) > 1:
        names = {pin.name for pin in pins}
        fits = {pin.name: _fitting_release(trials, pin, names) for pin in pins}
        found = {name: replace(fit, alone=False) for name, fit in fits.items() if fit is not None}
    fitting = [pin for pin in pins if pin.name in found]
    useful = [pin for pin in fitting if not is_within(found[pin.name].version, pin.specifier)]
    # a pin that stays as it is was not in the way, unless it is the only one
    for pin in useful or fitting:
        yield _describe_loosened(pin, trials.task.problem, found[pin.name])


def _pinned_directs(conflict: ConflictError, problem: Problem) -> tuple[Direct, ...]:
    """Return the direct requirements with bounds that a conflict is about."""
    names = mentioned_names(conflict.text)
    # a derivation may name another conflict than that with what the base protects
    names |= {direct.name for direct in held_directs(problem)}
    return tuple(direct for direct in problem.directs if direct.name in names and direct.specifier)


def _fitting_release(trials: Trials, pin: Direct, loose: Collection[str]) -> FittingRelease | None:
    """Return the newest release that a requirement gets without bounds."""
    answer = trials.ask(trials.changed(loose))
    chosen = answer.get(pin.name) if answer else None
    # uv goes back too far from a conflict: newer ones are tried step by step
    for _ in range(MOST_STEPS):
        if chosen is None or chosen.from_base:
            break
        above = trials.ask(trials.changed(loose, bounds=(f"{pin.name}>{chosen.version}",)))
        # where there is no release above it, uv answers with a release candidate
        if above is None or pin.name not in above or is_preview(above[pin.name].version):
            break
        chosen = above[pin.name]
    if chosen is None:
        return None
    return FittingRelease(version=chosen.version, uploaded=chosen.uploaded)


def _later_dates(trials: Trials) -> Iterable[str]:
    if trials.task.problem.as_of and trials.ask(replace(trials.changed(), as_of=None)) is not None:
        yield 'set as-of under [python] to a later date, or to "none"'


def _left_out(trials: Trials, conflict: ConflictError) -> Iterable[str]:
    names = mentioned_names(conflict.text)
    directs = trials.task.problem.directs
    for direct in [direct for direct in directs if direct.name in names][:MOST_PINS]:
        if len(directs) > 1 and trials.ask(trials.changed(without={direct.name})) is not None:
            yield f"leave out {direct.written}: the rest fits"


def _other_bases(
    trials: Trials, conflict: ConflictError, clashes: tuple[Clash, ...]
) -> Iterable[str]:
    """Yield bases of the catalogue on which the requirements have an answer."""
    problem = trials.task.problem
    wanted = dict.fromkeys(clash.wanted for clash in clashes if clash.stub.hard)
    pins = _pinned_directs(conflict, problem)
    # a framework's own wheels may be there, and not those that its extra pins
    lacking = NO_WHEELS.search(conflict.text)
    wanted |= dict.fromkeys(pin.text for pin in pins if lacking or problem.stubs.hard(pin.name))
    wanted |= dict.fromkeys(_turned_bounds(conflict, problem))
    named = [text for text in map(_bound_of_framework, wanted) if framework_name(text)]
    for candidates in _candidate_bases(conflict, problem, named):
        if fitting := [entry for entry in candidates if _has_answer(trials, entry)]:
            bases = " or ".join(map(_describe_entry, fitting))
            which = f"a base that holds {named[0]}" if named else "another base"
            yield f"take {which}: {bases}"
            break


def _bound_of_framework(text: str) -> str:
    """Return a bound on a part of a framework as one on the whole: jaxlib's releases are jax's."""
    for row in load_frameworks().framework:
        if name_of(text) in row.parts:
            return text.replace(name_of(text), row.name, 1)
    return text


def _turned_bounds(conflict: ConflictError, problem: Problem) -> Iterable[str]:
    """Yield the releases of the base's framework that packages in the way have a release for."""
    said = mentioned_names(conflict.text)
    for row in problem.couplings:
        has_none = row.package in said and row.constraint.endswith(NO_RELEASE)
        if has_none and row.turned and problem.stubs.hard(name_of(row.turned)):
            yield row.turned


def _candidate_bases(
    conflict: ConflictError, problem: Problem, named: list[str]
) -> Iterable[list[CatalogueEntry]]:
    """Yield bases to try, those that change the least of the project first."""
    own = join_numbers(python_minor(problem.facts))
    pythons = [bounds.rstrip(",") for bounds, _ in PYTHON.findall(conflict.text)]
    wishes = []
    for text in named[:MOST_PINS]:
        # the same Python first: nothing else of the project has to change then
        wishes += [BaseQuery(framework=text, python=own), BaseQuery(framework=text, python=None)]
    if pythons and not named:
        wishes = [BaseQuery(framework=text, python=pythons[0]) for text in _held_framework(problem)]
    for wish in wishes:
        try:
            chosen = [
                choice.entry for choice in suggest_bases(wish)[0] if choice.entry.defect is None
            ]
        except UsageError:
            continue
        if chosen:
            made = [entry for entry in chosen if entry.is_bootstrap][:1]
            yield [*[entry for entry in chosen if not entry.is_bootstrap][:MOST_IMAGES], *made]


def _has_answer(trials: Trials, entry: CatalogueEntry) -> bool:
    """Whether another base has an answer, as far as its framework and Python are known.

    The framework is asked of the index, so that what it requires counts; an image's release that
    the index does not have stands there as it is.
    """
    facts = trials.session.facts
    python = (entry.python or facts.python).rstrip("?")
    glibc = entry.glibc or facts.glibc
    facts = structs.replace(facts, python=python, glibc=glibc, cuda=entry.cuda, cudnn=entry.cudnn)
    try:
        held = _held_stub(entry.framework or "", entry.version or "")
    except ValueError:
        return False  # the catalogue knows its line only
    asked = entry.requirement or f"{held.name}=={held.public}"
    name = name_of(asked)
    other = _session_elsewhere(trials, facts, Stubs({}))
    alone = Question(requirements=(asked,), deps=False, binary=(name,))
    published = trials.ask(alone, other)
    if published is not None:
        held = _held_stub(name, published[name].version)
    elif entry.is_bootstrap:
        return False
    else:
        asked, other = name, _session_elsewhere(trials, facts, Stubs({name: held}))
    directs = trials.task.problem.directs
    rows = couplings_for(facts, Stubs({name: held}), {direct.name for direct in directs})
    question = Question(
        requirements=(asked, *(direct.text for direct in directs)),
        constraints=tuple(row.constraint for row in rows if row.binding),
    )
    return trials.ask(question, other) is not None


def _held_stub(name: str, real: str) -> Stub:
    return Stub(name=name, version=lenient_version(real), real=real, hard=True)


def _session_elsewhere(trials: Trials, facts: BaseFacts, stubs: Stubs) -> Session:
    """Return a session like the task's own, on another base."""
    session = trials.session
    count = len(list(session.folder.parent.iterdir()))
    folder = session.folder.with_name(f"{session.folder.name}-base-{count}")
    folder.mkdir()
    return replace(session, folder=folder, facts=facts, stubs=stubs)


def _other_pythons(trials: Trials, conflict: ConflictError) -> Iterable[str]:
    """Yield the Python with which there is an answer; where none has, a newer glibc."""
    tags = [tag for _, tag in NO_WHEELS.findall(conflict.text)]
    if not (PYTHON.search(conflict.text) or tags):
        return
    facts = trials.session.facts
    for python in (*PYTHONS, None):
        # None stands for the same Python on a newer system
        glibc = facts.glibc if python else NEWEST_GLIBC
        other = structs.replace(facts, python=python or facts.python, glibc=glibc)
        if other == facts or (python and facts.python.startswith(f"{python}.")):
            continue
        if (
            trials.ask(trials.changed(), _session_elsewhere(trials, other, trials.session.stubs))
            is not None
        ):
            yield (
                f"take a base with Python {python}" if python else "take a base with a newer glibc"
            )
            return


def _describe_loosened(direct: Direct, problem: Problem, fit: FittingRelease) -> str:
    if problem.stubs.hard(direct.name):
        stub = problem.stubs.by_name[direct.name]
        whose = "the framework's" if stub.chosen else "the base's"
        return f"loosen {direct.written}: {whose} {stub.public} is then taken"
    day = f" of {fit.uploaded}" if fit.uploaded else ""
    others = "" if fit.alone else ", once the others named here are loosened too"
    if _is_ancient(fit, problem) and not is_newer(fit.version, direct.specifier):
        only = f"only {direct.name} {fit.version}{day} fits then, years older than this base"
        return f"loosen {direct.written}, though {only}"
    return f"loosen {direct.written}: {direct.name} {fit.version}{day} fits this base{others}"


def _is_ancient(fit: FittingRelease, problem: Problem) -> bool:
    """Whether a release is from long before the base: it mostly fits for lack of bounds."""
    made = problem.facts.created
    if not made or not fit.uploaded:
        return False
    return (read_date(made, "created") - read_date(fit.uploaded, "uploaded")).days > ANCIENT_DAYS


def _held_framework(problem: Problem) -> list[str]:
    """Return what the base's framework is called, at its version and at any."""
    for stub in problem.stubs.by_name.values():
        name = framework_name(stub.name)
        if name is not None and stub.hard and not stub.alias_of:
            return [f"{name}=={stub.public}", name]
    return []


def _describe_entry(entry: CatalogueEntry) -> str:
    if entry.is_bootstrap:
        return (
            f'bootstrap = "{entry.reference}" with framework = "{entry.requirement}" (Python '
            f"{entry.python})"
        )
    return f"{entry.reference} ({entry.holds}, Python {entry.python})"
