"""Prove a lock: build its image, import every direct dependency in it, and look for versions that import."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)

from envbuild.app.source import project_folder
from envbuild.app.spec import build_spec
from envbuild.build.image_cache import choose_mode
from envbuild.build.make import building
from envbuild.check import plan
from envbuild.check.answers import Imports
from envbuild.check.checks.imports import lacks_driver
from envbuild.check.expected import CheckBasis, derive_expected
from envbuild.check.probe_runner import ProbeRunner
from envbuild.context import Context
from envbuild.errors import EnvbuildError, HostError
from envbuild.lock.decide.decide import decide_lock
from envbuild.lock.decide.import_search import Failure, ImportSearch, SearchBounds
from envbuild.lock.decide.options import LockOptions
from envbuild.lock.model import Lock, PythonPackage
from envbuild.names import Texts
from envbuild.net.index import index_url, read_links
from envbuild.net.web import make_client
from envbuild.project.code.uses import Uses, find_uses
from envbuild.recipe.model import Source
from envbuild.records import frozen_record, replace

DAYS = (90, 30, 0)
"""Dates that are tried where no version helps: so many days after the base was made."""


class _ImportsFailedError(EnvbuildError):
    """Ends a build whose image does not import, so that the store keeps none of it."""

    def __init__(self, failures: tuple[Failure, ...]) -> None:
        super().__init__("imports failed")
        self.failures = failures


def prove_lock(
    source: Source, lock: Lock, options: LockOptions, context: Context, seconds: float
) -> Lock:
    """Return a lock that is proved by importing: this one, or the nearest that imports.

    Raises NoSolutionError with what was tried, HostError where nothing can be built here.
    """
    if not lock.python_version:
        return lock  # there is nothing to import it with
    tester = _ImageImportTester(source=source, options=options, context=context)
    search = ImportSearch(
        lab=tester, seconds=seconds, dates=_earlier_dates(lock), report=context.report.say
    )
    return search.run(lock)


def _earlier_dates(lock: Lock) -> Texts:
    created = date.fromisoformat(lock.base.created)
    dates = [(created + timedelta(days=days)).isoformat() for days in DAYS]
    return tuple(day for day in dates if lock.as_of is None or day < lock.as_of)


@frozen_record
class _ImageImportTester:
    """What a search needs of the other stages: lock again, build and import, ask the index."""

    source: Source
    options: LockOptions
    context: Context

    def relock(self, bounds: SearchBounds, old: Lock) -> Lock:
        """Lock again, keeping what still fits."""
        options = replace(
            self.options,
            old=old,
            bounds=bounds.constraints,
            as_of=bounds.as_of or self.options.as_of,
            upgrade=(),
            upgrade_all=False,
            hints=False,  # one reason of a refusal is enough: the search goes on
        )
        today = datetime.now(timezone.utc).date()
        return decide_lock(self.source, options, self.context, today)

    def imports(self, lock: Lock) -> tuple[Failure, ...]:
        """Make the lock's image in the store; one that does not import is not kept."""
        with self.context.store.work("proof") as folder:
            target = folder / f"{self.source.recipe.name}.sif"
            spec = build_spec(self.source, lock, target, choose_mode("auto"), self.context)
            try:
                with building(spec, self.context) as image:
                    self._require_imports(image.path, lock)
            except _ImportsFailedError as failed:
                return failed.failures
        return ()

    def _require_imports(self, image: Path, lock: Lock) -> None:
        failures = self._failed_imports(image, lock)
        if failures:
            raise _ImportsFailedError(failures)

    def _failed_imports(self, image: Path, lock: Lock) -> tuple[Failure, ...]:
        """Import every direct dependency, and what the project's own source imports.

        Failures of the project's source come last.  Raises HostError where the image gives no
        answer.
        """
        recipe = self.source.recipe
        project = project_folder(self.source, self.context)
        used = find_uses(project) if project else Uses()
        request = plan.imports_request(
            derive_expected(CheckBasis(recipe=recipe, lock=lock)), uses=used.names
        )
        runtime, runner = self.context.runtime, self.context.runner
        probes = ProbeRunner(image, runtime, runner, gpu=False, network=recipe.check.network)
        answer = probes.ask((request,)).answer(request, Imports)
        if answer.data is None:
            raise HostError(f"the imports could not be tried: {answer.fault}", hint=answer.hint)
        failures = []
        for name, module in answer.data.modules.items():
            if not module.ok and not lacks_driver(module):
                failures.append(
                    Failure(module=name, error=module.error, blame=module.blame, used=module.used)
                )
        return tuple(sorted(failures, key=lambda failure: failure.used))

    def releases(self, package: PythonPackage) -> Texts:
        """Return the versions of a package that its index has files of."""
        settings = self.context.settings
        url = index_url(self.context, package.index)
        with make_client(settings) as client:
            links = read_links(url, package.name, client)
        versions: dict[str, None] = {}
        for link in links:
            parse = parse_wheel_filename if link.file.endswith(".whl") else parse_sdist_filename
            with suppress(InvalidWheelFilename, InvalidSdistFilename):
                version = str(parse(link.file)[1])
                if not link.yanked:
                    versions[version] = None
        return tuple(versions)
