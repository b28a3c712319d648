"""The passes: newest direct requirements first, then the base, then what breaks.

Preferring the base's version of everything in one pass would take an old direct requirement to keep
an unimportant package of the base.  So the direct requirements are held from below: at their newest
releases, which mostly has an answer.  Where it has none, passes with and without preference for the
base tell which newer ones its protected packages allow; these are held in another one, and then
each is tried for a newer release that costs the others nothing: a resolver that goes back from a
conflict goes back too far.  The last pass lets packages of the base move that would be left broken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from packaging.requirements import Requirement
from packaging.version import Version

from envbuild.errors import EnvbuildError, HostError
from envbuild.names import Pairs, Texts
from envbuild.records import frozen_record, replace
from envbuild.resolve.conflict.explain import ConflictError, Problem, held_reason, plain_warning
from envbuild.resolve.conflict.pip_check import broken_requirements
from envbuild.resolve.couplings import Coupling
from envbuild.resolve.outcome import HeldBack
from envbuild.resolve.pylock import Chosen, new_versions
from envbuild.resolve.uv.answer_checks.ancient_releases import without_ancient
from envbuild.resolve.uv.query import Question
from envbuild.resolve.uv.session import Session
from envbuild.resolve.versions import adds_previews, is_older, is_worth

BUILD_TOOLS = ("setuptools", "wheel")
EXPLAIN_SECONDS = 10.0
"""How long to look for the reasons why direct requirements are held back, all of them together."""
CLIMB_SECONDS = 20.0
"""How long to look for newer releases of direct requirements that are behind, all together."""


@frozen_record
class Task:
    """What is searched for: the base's roots, the direct requirements, constraints.

    ``keep`` are versions of an old lock to prefer; ``binary`` names are only taken as wheels.
    """

    problem: Problem
    roots: Texts
    wanted: Texts
    constraints: Texts
    keep: Pairs = ()
    binary: Texts = ()

    @property
    def requirements(self) -> Texts:
        """All that uv is asked for."""
        return (*self.roots, *self.wanted)


class Passes:
    """One search.

    ``notes`` and ``warnings`` are for the user, ``uv_warnings`` are uv's, in its words.
    """

    def __init__(self, session: Session, task: Task) -> None:
        self.session = session
        self.task = task
        self.stubs = task.problem.stubs
        self.as_of = task.problem.as_of
        self.keep = dict(task.keep)
        self.notes: list[str] = []
        self.uv_warnings: Texts = ()
        self.newest: dict[str, str] = {}
        self.best: dict[str, str] = {}
        self._caps: dict[str, str] = {}
        self._fresh: Texts = BUILD_TOOLS if self.as_of else ()
        self._last = Question(requirements=(), as_of=self.as_of)
        self._warned: dict[frozenset[tuple[str, str]], Texts] = {}

    @property
    def warnings(self) -> Texts:
        """What uv warned of, in the user's words."""
        quiet = {
            f"{direct.name}[{direct.added}]" for direct in self.task.problem.directs if direct.added
        }
        return tuple(
            filter(
                None,
                (plain_warning(warning, self.stubs, quiet=quiet) for warning in self.uv_warnings),
            )
        )

    def run(self) -> dict[str, Chosen]:
        """Return the answer.  Raises ConflictError when there is none."""
        if not self.task.requirements:
            return {}
        # the newest releases by themselves, then what the couplings leave of them, are what answers
        # are measured by
        self.newest = self._ask_newest()
        self.best = self._ask_best()
        answer = self._run_passes()
        # build tools know no date at first, for old ones fail in new Pythons; as packages of the
        # answer they do
        late = [
            name
            for name in BUILD_TOOLS
            if self._too_late(answer.get(name)) and not self._asks_for_later(name)
        ]
        if late:
            self._caps = dict(filter(None, map(self._date_cap, late)))
            self._fresh = tuple(
                name for name in self._fresh if name in self._caps or name not in late
            )
            answer = self._run_passes()
        fixed = {*self.stubs.by_name, *(direct.name for direct in self.task.problem.directs)}
        answer = self._repair_broken(without_ancient(answer, self._last, fixed, self._put_question))
        self.uv_warnings = self._warned.get(_pinned_set(answer), ())
        return answer

    def _ask_newest(self) -> dict[str, str]:
        """Return the newest version of each direct requirement by itself."""
        return self._look_up(
            {d.name for d in self.task.problem.directs if d.name not in self.stubs.by_name}
        )

    def _ask_best(self) -> dict[str, str]:
        """Return the newest version of each direct requirement under the couplings."""
        coupled = {
            name
            for name, version in self.newest.items()
            if self._excluding_row(name, version) is not None
        }
        coupled |= set(self.task.binary) & set(self.newest)
        found = self._look_up(coupled, self.task.constraints) if coupled else {}
        return {**self.newest, **found}

    def _look_up(self, names: Collection[str], constraints: Texts = ()) -> dict[str, str]:
        directs = tuple(d.text for d in self.task.problem.directs if d.name in names)
        if not directs:
            return {}
        try:
            found = self.session.newest(*directs, constraints=constraints, as_of=self.as_of)
        except ConflictError:
            return {}  # the passes meet the same conflict and tell more
        return {name: chosen.version for name, chosen in found.items()}

    def _excluding_row(self, name: str, version: str) -> Coupling | None:
        """Return the row that rules a version out."""
        for row in self.task.problem.couplings:
            if row.binding and row.package == name:
                wanted = Requirement(row.constraint)
                if wanted.name == name and not wanted.specifier.contains(version, prereleases=True):
                    return row
        return None

    def _too_late(self, chosen: Chosen | None) -> bool:
        """Whether a build tool is in the answer, and newer than the date of the others."""
        if chosen is None or chosen.from_base or not self.as_of:
            return False
        return any((file.uploaded or "") > self.as_of for file in chosen.files)

    def _asks_for_later(self, name: str) -> bool:
        """Whether the direct requirements admit no release of a build tool of before the date."""
        texts = [d.text for d in self.task.problem.directs if d.name == name]
        if not texts:
            return False
        try:
            self.session.newest(*texts, as_of=self.as_of)
        except ConflictError:
            return True
        return False

    def _date_cap(self, name: str) -> tuple[str, str] | None:
        """Return (name, constraint) that keeps a build tool to the date, None without release.

        With it, uv's own builds on this host may take a newer one: an old setuptools fails on a new
        Python.
        """
        try:
            found = self.session.newest(name, as_of=self.as_of)
        except ConflictError:
            return None
        stub = self.stubs.by_name.get(name)
        limit = max(
            Version(Version(found[name].version).public), Version(stub.public if stub else "0")
        )
        return name, f"{name}<={limit}"

    def _run_passes(self) -> dict[str, Chosen]:
        wanted = {name: version for name, version in self.best.items() if name not in self.keep}
        try:
            return self._over_base(wanted)
        except ConflictError:
            if not wanted:
                raise
        # without a preference for the base uv may reach newer direct requirements
        first = self._newer_answer(
            self._ask_seeded(seed=self.keep),
            lambda: self._ask_seeded(seed={**self._base_versions(), **self.keep}),
        )
        stubs, directs = self.stubs.by_name, (d.name for d in self.task.problem.directs)
        names = tuple(name for name in directs if name in first and name not in stubs)
        # what has moved without need goes back: the same direct requirements, and the base preferred
        if any(name in stubs and not chosen.from_base for name, chosen in first.items()):
            first = self._over_base({name: first[name].version for name in names})
        end = time.monotonic() + CLIMB_SECONDS
        return self._trade_directs(self._climb_directs(first, names, end), names, end)

    def _newer_answer(
        self, one: dict[str, Chosen], ask_other: Callable[[], dict[str, Chosen]]
    ) -> dict[str, Chosen]:
        """Return the answer with the newer direct requirements; ask for the other if needed."""
        if not self._behind_names(one):
            return one
        before = self._last
        other = ask_other()
        ahead = sum(is_older(one, name, other[name].version) for name in self.best if name in other)
        behind = sum(is_older(other, name, one[name].version) for name in self.best if name in one)
        if ahead > behind:
            return other
        self._last = before
        return one

    def _climb_directs(
        self, answer: dict[str, Chosen], names: Texts, end: float
    ) -> dict[str, Chosen]:
        """Try newer releases of direct requirements that cost the others nothing, until ``end``."""
        for name in self._behind_names(answer):
            held = {one: answer[one].version for one in names if one in answer}
            if name in self.keep or name not in held:
                continue
            above = f"{name}>{Version(held.pop(name)).public}{self._newest_bound(name)}"
            before = self._last
            found = self._try_bound(above, held, end)
            if found is None or adds_previews(answer, found):
                self._last = before
                continue
            answer = found
        return answer

    def _trade_directs(
        self, answer: dict[str, Chosen], names: Texts, end: float
    ) -> dict[str, Chosen]:
        """Take the newest of a direct requirement where others lose far less than it gains.

        Last month's numpy is not worth a release of years ago of what does not go with it yet.
        """
        for name in self._behind_names(answer):
            if name in self.keep:
                continue
            before = self._last
            other = self._try_bound(f"{name}>={self.best[name]}", {}, end)
            if other is not None:
                other = self._climb_directs(other, names, end)
                if is_worth(answer, other) and not adds_previews(answer, other):
                    answer = other
                    continue
            self._last = before
        return answer

    def _try_bound(
        self, bound: str, others: Mapping[str, str], end: float
    ) -> dict[str, Chosen] | None:
        """Return an answer within one more bound, with others no older than these."""
        left = end - time.monotonic()
        if left <= 0:
            return None
        try:
            return self._over_base(others, above=(bound,), seconds=left)
        except (ConflictError, HostError):
            return None

    def _behind_names(self, answer: Mapping[str, Chosen]) -> list[str]:
        return [name for name, version in self.best.items() if is_older(answer, name, version)]

    def _base_versions(self) -> dict[str, str]:
        return {name: stub.version for name, stub in self.stubs.by_name.items()}

    def _over_base(
        self,
        direct: Mapping[str, str],
        *,
        above: Texts = (),
        seconds: float | None = None,
    ) -> dict[str, Chosen]:
        """Ask for direct requirements no older than these, and the base where they allow it."""
        floors = tuple(
            f"{name}>={Version(version).public}{self._newest_bound(name)}"
            for name, version in direct.items()
        )
        return self._ask_seeded(
            seed={**self._base_versions(), **direct, **self.keep},
            floors=(*floors, *above),
            seconds=seconds,
        )

    def _newest_bound(self, name: str) -> str:
        """Return a bound at the newest release: uv would else take a preview."""
        return f",<={Version(self.best[name]).public}" if name in self.best else ""

    def _repair_broken(self, answer: dict[str, Chosen]) -> dict[str, Chosen]:
        """Ask again with the packages as requirements that the answer would break."""
        hurt = self._broken_requirements(answer)
        if not hurt:
            return answer
        question = self._last
        # as requirements they may move to releases that fit what is new
        names = tuple(sorted({name for name, _ in hurt}))
        try:
            more = replace(question, requirements=(*question.requirements, *names))
            answer = self._put_question(more)
        except ConflictError as conflict:
            self.notes.append(f"{held_reason(conflict, self.task.problem)}: left as it is")
        self.notes += [
            f"{sentence}, which this resolution replaces"
            for _, sentence in self._broken_requirements(answer)
        ]
        return answer

    def _broken_requirements(self, answer: Mapping[str, Chosen]) -> Pairs:
        return broken_requirements(self.session.facts, self.stubs, new_versions(answer))

    def _ask_seeded(
        self, *, seed: Mapping[str, str], floors: Texts = (), seconds: float | None = None
    ) -> dict[str, Chosen]:
        question = Question(
            requirements=self.task.requirements,
            constraints=(*self.task.constraints, *self._caps.values(), *floors),
            seed=tuple(seed.items()),
            as_of=self.as_of,
            fresh=self._fresh,
            binary=self.task.binary,
            seconds=seconds,
        )
        return self._put_question(question)

    def _put_question(self, question: Question) -> dict[str, Chosen]:
        """Put a question; one about a whole set is then the last one."""
        answer = self.session.ask(question)
        if question.deps:
            self._last = replace(question, seconds=None)
            self._warned[_pinned_set(answer)] = self.session.warnings
        return answer

    def held_back(self, answer: Mapping[str, Chosen]) -> tuple[HeldBack, ...]:
        """Return the direct requirements behind their newest release, with the reason."""
        directs = {direct.name for direct in self.task.problem.directs}
        chosen = {
            name: one.version
            for name, one in sorted(answer.items())
            if name in directs and not one.from_base
        }
        held: list[HeldBack] = []
        end = time.monotonic() + EXPLAIN_SECONDS
        for name, version in chosen.items():
            newest = self.newest.get(name)
            if newest is None or not is_older(answer, name, newest):
                continue
            reason = self._why_not(name, newest, chosen, end)
            if reason:
                held.append(HeldBack(name=name, version=version, newest=newest, reason=reason))
        return tuple(held)

    def _why_not(self, name: str, newest: str, chosen: Mapping[str, str], end: float) -> str | None:
        """Return why the newest release cannot be had; None where only the old lock holds it."""
        row = self._excluding_row(name, newest)
        if row is not None:
            return row.sentence
        if name in self.task.binary:
            return (
                f"{name} {newest} has no wheel for this base, and would have to be compiled in it"
            )
        # with the others where they are: alone, uv goes back through all their releases
        floors = (
            f"{other}>={Version(version).public}"
            for other, version in chosen.items()
            if other != name
        )
        question = Question(
            requirements=(*self.task.requirements, f"{name}=={newest}"),
            constraints=(*self.task.constraints, *self._caps.values(), *floors),
            seed=self._last.seed,
            as_of=self.as_of,
            fresh=self._fresh,
            binary=self.task.binary,
            seconds=end - time.monotonic(),
        )
        try:
            self.session.ask(question)
        except ConflictError as conflict:
            return held_reason(conflict, self.task.problem)
        except EnvbuildError:
            return "the reason was not found"
        return None


def _pinned_set(answer: Mapping[str, Chosen]) -> frozenset[tuple[str, str]]:
    return frozenset((name, chosen.version) for name, chosen in answer.items())
