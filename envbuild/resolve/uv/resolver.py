"""Resolve with uv against a base's facts: the first backend (docs/resolve.md)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import structs
from packaging.utils import canonicalize_name

from envbuild.context import Context
from envbuild.data.package_tables import load_majors
from envbuild.errors import NoSolutionError, UsageError
from envbuild.names import Texts
from envbuild.net.index import index_url
from envbuild.progress import SilentStage, Stage
from envbuild.records import replace
from envbuild.resolve.aliases import alias_bounds, merge_aliases
from envbuild.resolve.conflict.explain import HEADING, ConflictError, name_of
from envbuild.resolve.conflict.overlap import describe_overlaps, find_overlaps
from envbuild.resolve.couplings import Coupling
from envbuild.resolve.dates import read_date
from envbuild.resolve.model import Request, Resolution
from envbuild.resolve.platform import python_minor
from envbuild.resolve.pylock import new_versions
from envbuild.resolve.uv.answer_checks.extras import bound_for, find_missing_extra, is_below
from envbuild.resolve.uv.answer_checks.foreign_wheels import find_other_wheels, source_note
from envbuild.resolve.uv.answer_checks.major_releases import broken_rows, outdated_rows
from envbuild.resolve.uv.attempt import RequestAttempt
from envbuild.resolve.uv.coupled_search import search_coupled
from envbuild.resolve.uv.later_cutoff import (
    LaterDate,
    YoungerPartners,
    find_later_date,
    find_solved_date,
)
from envbuild.resolve.uv.newest import find_alone
from envbuild.resolve.uv.passes import Task
from envbuild.resolve.uv.refusal import UnexplainedError, refusal_error
from envbuild.resolve.uv.resolution import SearchAnswer, make_resolution, older_directs
from envbuild.resolve.uv.session import Session
from envbuild.resolve.uv.tasks import bound_by, make_task
from envbuild.resolve.versions import adds_previews, is_preview
from envbuild.store.atomic import os_errors_as

MOST_EXTRAS = 4
"""How often an extra that is missing may ask for another answer."""


class UvResolver:
    """The uv backend: a resolve.model.Resolver."""

    def __init__(self, context: Context, stage: Stage | None = None) -> None:
        self.context = context
        self.stage = stage or SilentStage()

    def __call__(self, request: Request) -> Resolution:
        """Resolve.

        Raises NoSolutionError in the user's words, NetworkError, UsageError for a hostile
        requirement or an unknown index, SpaceError and HostError when uv cannot work here.
        """
        if request.as_of is not None:
            read_date(request.as_of, "as-of")
        with self.context.store.outside(self.context.settings.tmpdir) as folder:
            if request.alone:
                return self._find_alone(request, folder)
            try:
                found = self._put_attempts(RequestAttempt(asked=request), folder)
            except UnexplainedError as refusal:
                later = self._answer_later(request, refusal, folder)
                if later is None:
                    raise refusal_error(refusal, hints=request.hints) from None
                return later
            return self._renew_ancient(request, found, folder) if found.ancient else found

    def _find_alone(self, request: Request, folder: Path) -> Resolution:
        """Return the newest releases of what is asked for, without their sizes and requirements."""
        task = make_task(request)[0]
        return find_alone(self._open_session(request, task, folder / "alone"), task)

    def _put_attempts(self, attempt: RequestAttempt, folder: Path) -> Resolution:
        while True:
            try:
                found = self._answer(attempt.request, folder)
            except NoSolutionError:
                # the date of the first fitting release may be too early for the others
                patient = attempt.at_patient_date()
                if patient is None:
                    raise
                attempt = patient
                continue
            if isinstance(found, Resolution):
                return replace(found, notes=(*attempt.notes, *found.notes))
            attempt = attempt.changed(found)

    def _renew_ancient(self, request: Request, found: Resolution, folder: Path) -> Resolution:
        """Return the answer of a later date that has no ancient release, else the answer itself.

        Raises NoSolutionError where all that is left of a package is an ancient preview: as no
        release fits, uv goes back to a preview that names no bounds.
        """
        has_preview = any(is_preview(row.version) for row in found.ancient)
        if not request.later and not has_preview:
            return found
        floors = tuple(f"{row.name}>={row.newest}" for row in found.ancient)
        bounded = replace(request, bounds=(*request.bounds, *floors))
        old = ", ".join(f"{row.name} {row.version}" for row in found.ancient)
        reason = f"then {old} is the newest that fits"
        try:
            self._put_attempts(RequestAttempt(asked=bounded), folder)
        except UnexplainedError as refusal:
            later = self._answer_later(bounded, refusal, folder, reason)
            if later is None and has_preview:
                raise refusal_error(refusal, hints=request.hints) from None
            return later or found
        except NoSolutionError:
            return found
        # bounds do not exclude the newer one: it would have to be compiled
        return found

    def _answer_later(
        self,
        request: Request,
        refusal: UnexplainedError,
        folder: Path,
        reason: str = "the requirements have no solution then",
    ) -> Resolution | None:
        """Return the answer at the first later date that has one, None where no date helps."""
        found = find_solved_date(request, refusal.session, refusal.task, refusal.conflict)
        if found is not None and request.latest is not None:
            later = LaterDate(date=found, reason=reason, patient=request.latest)
            with suppress(NoSolutionError):
                return self._put_attempts(RequestAttempt(asked=request, later=later), folder)
        return None

    def _answer(self, request: Request, folder: Path) -> Resolution | LaterDate | YoungerPartners:
        """Return the answer, or the later dates with which the request has to be put again."""
        task, notes = make_task(request)
        # cupy was put as cupy-cuda12x: where that has no answer, it is asked for as written
        if any(direct.instead for direct in task.problem.directs):
            with suppress(NoSolutionError):
                return self._put_task(request, task, notes, folder)
            task, notes = make_task(request, built=False)
        try:
            return self._put_task(request, task, notes, folder)
        except NoSolutionError:
            found = self._without_extras(request, task, folder)
            if found is None:
                raise
            return found

    def _without_extras(self, request: Request, task: Task, folder: Path) -> Resolution | None:
        """Return an answer without added extras, where their lower bounds hold all the same.

        dm-haiku[jax] 0.0.9 pins jax 0.3.16, and works with the 0.3.25 that AlphaFold pins.
        """
        added = {direct.name: direct.added for direct in task.problem.directs if direct.added}
        if not added:
            return None
        without, notes = make_task(request, built=False, extras=False)
        try:
            found = self._put_task(request, without, notes, folder)
        except NoSolutionError:
            return None
        if not isinstance(found, Resolution):
            return None
        known = {name: stub.public for name, stub in without.problem.stubs.by_name.items()}
        known |= {package.name: package.version for package in found.packages}
        if any(
            is_below(package.requires, added.get(package.name), known) for package in found.packages
        ):
            return None
        named = ", ".join(f"{name}[{extra}]" for name, extra in added.items())
        note = f"of {named} the lower bounds alone are kept: what is asked for excludes the others"
        return replace(found, notes=(note, *found.notes))

    def _put_task(
        self, request: Request, task: Task, notes: Texts, folder: Path
    ) -> Resolution | LaterDate | YoungerPartners:
        with os_errors_as(folder):
            place = folder / f"task-{len(list(folder.iterdir()))}"
            place.mkdir()
        session = self._open_session(request, task, place / "first")
        try:
            answer = self._search_merged(request, self._search_apart(session, task), place)
            return make_resolution(request, answer, notes)
        except ConflictError as conflict:
            return self._later_or_refused(request, session, task, conflict)

    def _later_or_refused(
        self, request: Request, session: Session, task: Task, conflict: ConflictError
    ) -> LaterDate | YoungerPartners:
        """Return the date to resolve at instead.  Raises NoSolutionError where none helps."""
        task = bound_by(task, conflict.couplings)
        try:
            later = (
                find_later_date(session, conflict, task.problem, request.latest)
                if request.latest
                else None
            )
        except ConflictError as deeper:
            task = replace(task, problem=replace(task.problem, as_of=None))
            raise UnexplainedError(session, task, deeper) from None
        if later is None:
            raise UnexplainedError(session, task, conflict) from None
        return later

    def _open_session(self, request: Request, task: Task, folder: Path) -> Session:
        with os_errors_as(folder):
            folder.mkdir()
        indexes = self._index_urls(request)
        settings = self.context.settings
        # their passwords count
        settings = replace(settings, indexes={**settings.indexes, **indexes})
        return Session(
            folder=folder,
            facts=request.facts,
            stubs=task.problem.stubs,
            indexes=indexes,
            archives=request.archives,
            context=replace(self.context, settings=settings),
            from_source=request.from_source,
            late=tuple(name for name, _ in request.younger),
            refresh=request.refresh,
            stage=self.stage,
        )

    def _search_apart(self, session: Session, task: Task) -> SearchAnswer:
        """Search, and again without what would write over protected files.  Raises ConflictError.

        An older release of what is asked for is not taken for that: it mostly declares no bounds.
        """
        answer = self._search_by_majors(session, task)
        problem = task.problem
        new = new_versions(answer.chosen)
        found = find_overlaps(new, problem.stubs)
        if not found:
            return answer
        rows = tuple(overlap.row for overlap in found)
        try:
            other = self._search_apart(session, bound_by(task, rows))
        except ConflictError as conflict:
            conflict.first_reasons = (describe_overlaps(found, new), *conflict.first_reasons)
            conflict.couplings = (*rows, *conflict.couplings)
            raise
        back = older_directs(answer, other)
        if not back:
            return other
        fits = " ".join(f"{name}=={other.chosen[name].version}" for name in back)
        raise NoSolutionError(
            f"{HEADING}\n- {describe_overlaps(found, new)}",
            hint=(
                f"ask for {fits}, which has no such files\nor make an image of its own for "
                f"{', '.join(back)}"
            ),
        )

    def _search_by_majors(self, session: Session, task: Task) -> SearchAnswer:
        """Search, and again below releases that break what is older.  Raises ConflictError.

        Only what certainly breaks, extensions, may cost an older release of what is asked for.
        """
        answer = self._search_with_extras(session, task)
        facts, context = session.facts, session.context
        for major in load_majors().major:
            # of the answer so far: the bound of one may have taken away what another one breaks
            rows = broken_rows(major, answer.chosen, task.requirements, facts, context)
            answer, task = self._search_below(session, task, answer, rows, certain=major.compiled)
        tried: set[Coupling] = set()
        while left := set(outdated_rows(answer.chosen, facts, context)) - tried:
            row = min(left, key=str)
            tried.add(row)
            answer, task = self._search_below(session, task, answer, (row,), certain=False)
        return answer

    def _search_below(
        self,
        session: Session,
        task: Task,
        answer: SearchAnswer,
        rows: tuple[Coupling, ...],
        *,
        certain: bool,
    ) -> tuple[SearchAnswer, Task]:
        """Search again under the first row, turned first; tell all where that costs too much."""
        for bound in filter(None, (rows[0].turned, rows[0].constraint) if rows else ()):
            row = structs.replace(rows[0], package=name_of(bound), constraint=bound)
            below = bound_by(task, (row,))
            try:
                other = self._search_with_extras(session, below)
            except ConflictError:
                continue
            older = older_directs(answer, other, {row.package})
            if certain or not (older or adds_previews(answer.chosen, other.chosen)):
                return other, below
        answer.search.notes += [
            f"{row.reason}, may not import beside {row.constraint.replace('<', ' ')}"
            for row in rows
        ]
        return answer, task

    def _search_with_extras(self, session: Session, task: Task) -> SearchAnswer:
        """Search, and again under a bound where an extra is missing.  Raises ConflictError."""
        answer = self._search_wheels(session, task)
        for _ in range(MOST_EXTRAS):
            lack = find_missing_extra(task, answer.search.uv_warnings, answer.chosen)
            if lack is None:
                break
            task = bound_by(task, (bound_for(session, task, lack),))
            answer = self._search_wheels(session, task)
        return answer

    def _search_wheels(self, session: Session, task: Task) -> SearchAnswer:
        """Search, and once more where an older release has a wheel that the newest lacks.

        That older release is not worth an older release of something else that is asked for.
        """
        answer = search_coupled(session, task)
        wanted = {canonicalize_name(name) for name in session.from_source}
        new = (one for one in answer.chosen.values() if not one.from_base)
        sources = [one for one in new if not one.wheels and one.name not in wanted]
        found = find_other_wheels(sources, session.indexes, self.context) if sources else {}
        series = ".".join(map(str, python_minor(session.facts)))
        own = {name: wheels.own for name, wheels in found.items() if wheels.own}
        names = {name for name, wheels in found.items() if wheels.own or series in wheels.before}
        if not names:
            return answer
        with suppress(ConflictError):
            other = search_coupled(session, replace(task, binary=tuple(sorted(names))))
            if not older_directs(answer, other, names):
                return other
        answer.search.notes += [source_note(sources, own, series)] if own else []
        return answer

    def _search_merged(self, request: Request, answer: SearchAnswer, folder: Path) -> SearchAnswer:
        """Search again where several new packages hold one module, with one in their place."""
        new, problem = new_versions(answer.chosen), answer.task.problem
        # opencv-python and opencv-python-headless hold the same files: one stands for the other
        aliases = merge_aliases(new, {direct.name for direct in problem.directs})
        if not aliases:
            return answer
        same = {alias: new[real] for alias, real in aliases.items()}
        again = self._with_stand_ins(request, answer, folder, aliases, same)
        rows = alias_bounds(problem.directs, aliases, but=answer.task.constraints)
        if rows and again is None:
            with suppress(ConflictError):
                bounded = self._search_wheels(answer.session, bound_by(answer.task, rows))
                return self._search_merged(request, bounded, folder)
        if again is None:
            # their bounds exclude each other: one stands for the others as if of their releases
            own = {alias: new[alias] for alias in aliases}
            again = self._with_stand_ins(request, answer, folder, aliases, own)
            if again is None:
                return answer  # compose tells that both will be there
            answer.search.notes += [
                f"{alias} {new[alias]} would overwrite files of {real} {new[real]}, which has the "
                f"same modules: only {real} is taken"
                for alias, real in aliases.items()
            ]
        # other releases may have brought another member; what holds back is told without stand-ins
        return self._search_merged(request, replace(again, search=answer.search), folder)

    def _with_stand_ins(
        self,
        request: Request,
        answer: SearchAnswer,
        folder: Path,
        aliases: Mapping[str, str],
        own: Mapping[str, str],
    ) -> SearchAnswer | None:
        """Search with one package in place of others of versions ``own``; None without answer."""
        problem = answer.task.problem
        new = new_versions(answer.chosen)
        stubs = problem.stubs.with_aliases(
            {alias: (real, new[real]) for alias, real in aliases.items()}, own
        )
        keep = tuple((name, version) for name, version in new.items() if name not in aliases)
        task = replace(answer.task, problem=replace(problem, stubs=stubs), keep=keep)
        place = folder / f"merged-{len(list(folder.iterdir()))}"
        try:
            return self._search_wheels(self._open_session(request, task, place), task)
        except ConflictError:
            return None

    def _index_urls(self, request: Request) -> Mapping[str, str]:
        """Return name to URL in the order in which they are asked, the default index last."""
        if "default" in request.indexes or "base" in request.indexes:
            raise UsageError(
                '"default" and "base" are not names of extra indexes', where="[python] indexes"
            )
        named = {name: index_url(self.context, name) for name in request.indexes}
        return named | {"default": index_url(self.context)}
