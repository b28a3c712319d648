"""Prove a lock by importing, and search versions and dates for one that imports.

Nothing here builds, imports or resolves: that is handed in, so that the search can be tried on any
story.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import structs
from packaging.version import VERSION_PATTERN, Version

from envbuild.errors import NoSolutionError, ToolFailedError
from envbuild.lock.model import PROOF_SECONDS, Lock, PythonPackage
from envbuild.names import DIRECT, Texts
from envbuild.records import frozen_record, replace
from envbuild.resolve.couplings import runs_on_gpu
from envbuild.resolve.outcome import HeldBack

MOST_CULPRITS = 4
"""Packages that are walked back for one failed import, those nearest to the failure first."""


@frozen_record
class Failure:
    """An import that failed.

    ``error`` is its traceback's last line, ``blame`` the distributions (canonical) that the
    traceback goes through, innermost first, the imported one last.  ``used`` says that only the
    project's source asks for it: a script may be older than the recipe, so that is mended where it
    can be, and else told.
    """

    module: str
    error: str
    blame: Texts = ()
    used: bool = False


@frozen_record
class SearchBounds:
    """What a lock is looked for with: bounds such as "keras<=2.3.1", and a date."""

    constraints: Texts = ()
    as_of: str | None = None

    def __str__(self) -> str:
        """Say it for people."""
        parts = [*self.constraints, *([f"as of {self.as_of}"] if self.as_of else [])]
        return ", ".join(parts) or "as resolved"


@frozen_record
class ImportAttempt:
    """One lock that was tried: its bounds, what failed (empty: nothing), its seconds."""

    bounds: SearchBounds
    failures: tuple[Failure, ...]
    seconds: float
    unsolvable: str | None = None

    def __str__(self) -> str:
        """Say it for people."""
        if self.unsolvable:
            return f"{self.bounds}: {self.unsolvable} ({self.seconds:.0f} s)"
        failed = "; ".join(f"{one.module}: {one.error}" for one in self.failures)
        return f"{self.bounds}: {failed or 'all imported'} ({self.seconds:.0f} s)"


class ImportTester(Protocol):
    """What can be done with locks."""

    def relock(self, bounds: SearchBounds, old: Lock) -> Lock:
        """Lock again with bounds, changing as little as possible.  Raises NoSolutionError."""

    def imports(self, lock: Lock) -> tuple[Failure, ...]:
        """Build the lock's image and import every direct dependency in it."""

    def releases(self, package: PythonPackage) -> Texts:
        """Return the versions of a package on its index."""


@dataclass(slots=True)
class ImportSearch:
    """One search.  ``dates`` are tried where no version helps; ``seconds`` is its budget."""

    lab: ImportTester
    seconds: float = PROOF_SECONDS
    dates: Texts = ()
    clock: Callable[[], float] = time.monotonic
    report: Callable[[str], None] = lambda _: None
    trials: list[ImportAttempt] = field(default_factory=list)
    reasons: list[tuple[PythonPackage | str, Failure]] = field(default_factory=list)
    started: float = 0.0

    def run(self, lock: Lock) -> Lock:
        """Return a lock whose direct dependencies all import, with ``proof`` set.

        Raises NoSolutionError saying what was tried and how long it took.
        """
        self.started = self.clock()
        failures = self._try_imports(SearchBounds(), lock)
        bounds = SearchBounds()
        left: list[Failure] = []
        while failures:
            found = self._mended_if_it_can(bounds, lock, failures)
            if found is None:
                left.append(failures[0])
                failures = failures[1:]
            else:
                bounds, lock, failures = found
                # a failure that may stay is not looked at again
                failures = tuple(
                    one
                    for one in failures
                    if not any(_still_fails(known, (one,)) for known in left)
                )
        for culprit, failure in self.reasons:
            lock = _explain_hold(lock, culprit, failure)
        notes = tuple(
            f"the project's source imports {one.module}, which fails: {one.error}" for one in left
        )
        return structs.replace(lock, proof="imported", notes=(*lock.notes, *notes))

    def _mended_if_it_can(
        self, bounds: SearchBounds, lock: Lock, failures: tuple[Failure, ...]
    ) -> tuple[SearchBounds, Lock, tuple[Failure, ...]] | None:
        """Return a lock without the first failure, None for one that may stay, or raise."""
        try:
            found = self._mend_first(bounds, lock, failures)
        except NoSolutionError:
            if not failures[0].used:
                raise
            return None
        if found is None and not failures[0].used:
            raise self._given_up(failures)
        return found

    def _mend_first(
        self, bounds: SearchBounds, lock: Lock, failures: tuple[Failure, ...]
    ) -> tuple[SearchBounds, Lock, tuple[Failure, ...]] | None:
        """Return a lock without the first failure: by an older culprit, else an older date."""
        failure = failures[0]
        for culprit in suspects(failure, lock):
            found = self._walk_back(culprit, failure, bounds, lock)
            if found is not None:
                return found
        # no older release of one package helps: all of an earlier day may
        for date in self.dates:
            if bounds.as_of is None or date < bounds.as_of:
                tried = replace(bounds, as_of=date)
                made, left = self._attempt_lock(tried, lock)
                if made is not None and not _still_fails(failure, left):
                    self.reasons.append((date, failure))
                    return tried, made, left
        return None

    def _walk_back(
        self, culprit: PythonPackage, failure: Failure, bounds: SearchBounds, lock: Lock
    ) -> tuple[SearchBounds, Lock, tuple[Failure, ...]] | None:
        """Find the newest release of a culprit that mends a failure: step back, then halve."""
        older = older_releases(culprit.version, self.lab.releases(culprit))
        walk = step_indexes(len(older))
        low, high = -1, len(older)  # the newest that is known to fail, the oldest that may be taken
        good: tuple[int, SearchBounds, Lock, tuple[Failure, ...]] | None = None
        while good is None or good[0] - low > 1:
            if good is not None and not self._has_time():
                break
            index = next(walk, None) if high == len(older) and good is None else None
            if index is None:  # what fails and what is good lie around it
                index = (low + (high if good is None else good[0])) // 2
            if index <= low:
                return None
            tried = _with_bound(bounds, f"{culprit.name}<={older[index]}")
            made, left = self._attempt_lock(tried, lock)
            if made is None:
                high = index  # older ones ask for still older neighbours, or for older tools to be built
            elif _still_fails(failure, left):
                low = index
            else:
                good = (index, tried, made, left)
        self.reasons.append((culprit, failure))
        return good[1:]

    def _attempt_lock(
        self, bounds: SearchBounds, old: Lock
    ) -> tuple[Lock | None, tuple[Failure, ...]]:
        """Lock with bounds and import; no lock where there is no solution, or no build.

        Raises NoSolutionError past the budget.
        """
        if not self._has_time():
            raise self._given_up(self.trials[0].failures)
        before = self.clock()
        try:
            lock = self.lab.relock(bounds, old)
        except NoSolutionError as error:
            reason = next((line.lstrip("- ") for line in error.what.splitlines()[1:]), error.what)
            self._note_attempt(bounds, before, unsolvable=reason)
            return None, ()
        try:
            return lock, self._try_imports(bounds, lock, before=before)
        except ToolFailedError as error:  # an old release's own setup.py may want tools of its day
            self._note_attempt(bounds, before, unsolvable=error.what)
            return None, ()

    def _try_imports(
        self, bounds: SearchBounds, lock: Lock, *, before: float | None = None
    ) -> tuple[Failure, ...]:
        before = self.clock() if before is None else before
        failures = self.lab.imports(lock)
        self._note_attempt(bounds, before, failures)
        return failures

    def _note_attempt(
        self,
        bounds: SearchBounds,
        before: float,
        failures: tuple[Failure, ...] = (),
        unsolvable: str | None = None,
    ) -> None:
        seconds = self.clock() - before
        trial = ImportAttempt(
            bounds=bounds, failures=failures, seconds=seconds, unsolvable=unsolvable
        )
        self.trials.append(trial)
        self.report(f"try {len(self.trials)}: {trial}")

    def _has_time(self) -> bool:
        return self.clock() - self.started < self.seconds

    def _given_up(self, failures: tuple[Failure, ...]) -> NoSolutionError:
        took = self.clock() - self.started
        failed = "; ".join(f"{one.module}: {one.error}" for one in failures)
        tried = "".join(f"\n- {trial}" for trial in self.trials)
        cut = f"; the budget of {self.seconds:.0f} s is used up" if took >= self.seconds else ""
        return NoSolutionError(
            f"no lock was found whose dependencies import ({failed}); "
            f"{len(self.trials)} tried in {took:.0f} s{cut}{tried}",
            hint=(
                "bound a dependency in the recipe, take a date (as-of), give more time (--budget), "
                "or skip the proof (--no-proof)"
            ),
        )


def suspects(failure: Failure, lock: Lock) -> tuple[PythonPackage, ...]:
    """Return the packages to walk back for a failure, nearest first, none of the base."""
    # what the base holds is a fact
    own = {package.name: package for package in lock.python if _may_move(package)}
    return tuple(own[name] for name in dict.fromkeys(failure.blame) if name in own)[:MOST_CULPRITS]


def _may_move(package: PythonPackage) -> bool:
    """Whether a package is resolved with the project, and does not run on the GPU."""
    if package.group == "framework":
        return DIRECT not in package.via and not runs_on_gpu(package.name)
    return package.group == "project"


def older_releases(version: str, releases: Texts) -> Texts:
    """Return the releases below a version, newest first, without pre-releases."""
    whole = re.compile(rf"\s*{VERSION_PATTERN}\s*", re.VERBOSE | re.IGNORECASE)
    known = {Version(release) for release in releases if whole.fullmatch(release)}
    return tuple(
        str(one)
        for one in sorted(known, reverse=True)
        if one < Version(version) and not one.is_prerelease
    )


def step_indexes(count: int) -> Iterator[int]:
    """Yield indexes 0, 2, 6, 14 … below a count, and the last one: steps back that double."""
    index, width = 0, 2
    while index < count:
        yield index
        if index == count - 1:
            return
        index, width = min(index + width, count - 1), width * 2


def _explain_hold(lock: Lock, culprit: PythonPackage | str, failure: Failure) -> Lock:
    """Return the lock saying why a package is not the newest, or of an earlier date."""
    error = f"({failure.module}: {failure.error})"
    if isinstance(culprit, str):
        return _with_note(lock, f"resolved as of {culprit}: later packages fail to import {error}")
    if lock.base.framework:
        error = f"on {lock.base.framework} {error}"
    name, newest = culprit.name, culprit.version
    now = next((package.version for package in lock.python if package.name == name), None)
    reason = f"{newest} fails to import {error}"
    if now is None:
        return _with_note(lock, f"{name} is left out: {reason}")
    hold = HeldBack(name=name, version=now, newest=newest, reason=reason)
    holds = {one.name: one for one in lock.held_back} | {name: hold}
    held = tuple(holds[key] for key in sorted(holds))
    lock = structs.replace(lock, held_back=held)
    return _with_note(lock, f"{name} {now}: newer ones fail to import {error}")


def _with_note(lock: Lock, note: str) -> Lock:
    return structs.replace(lock, notes=(*lock.notes, note))


def carry_proof(old: Lock, lock: Lock) -> Lock:
    """Return a new lock with an old one's proof where both hold the same files."""
    same = (old.python, old.debian, old.base, old.platform) == (
        lock.python,
        lock.debian,
        lock.base,
        lock.platform,
    )
    if not same or old.proof != "imported":
        return lock
    return structs.replace(lock, proof=old.proof, held_back=old.held_back, notes=old.notes)


def _with_bound(bounds: SearchBounds, constraint: str) -> SearchBounds:
    """Return bounds with a constraint in place of an older one on the same package."""
    name = constraint.partition("<=")[0]
    kept = tuple(one for one in bounds.constraints if one.partition("<=")[0] != name)
    return replace(bounds, constraints=(*kept, constraint))


def _still_fails(failure: Failure, failures: tuple[Failure, ...]) -> bool:
    """Whether a failure is still there, and not one with another reason elsewhere."""
    return any(one.module == failure.module and not _is_another(failure, one) for one in failures)


def _is_another(before: Failure, after: Failure) -> bool:
    # without the path of the file
    messages = [re.sub(r" \(.*\)$", "", one.error) for one in (before, after)]
    return messages[0] != messages[1] and before.blame[:1] != after.blame[:1]
