"""Prove a lock: build its image, import every direct dependency in it, and look for versions that import."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from envbuild.context import Context
from envbuild.errors import EnvbuildError, HostError
from envbuild.lock.decide.import_search import Bounds, Failure, Search

if TYPE_CHECKING:
    from collections.abc import Callable

    from envbuild.build.model import Workshop
    from envbuild.lock.decide.decide import Wish
    from envbuild.lock.model import Lock, PythonPackage
    from envbuild.recipe.model import Source

Decide: TypeAlias = "Callable[[Source, Wish, Context], Lock]"
"""Resolves a recipe to a lock."""
DAYS = (90, 30, 0)
"""Dates that are tried where no version helps: so many days after the base was made."""


class _ImportsFailedError(EnvbuildError):
    """Ends a build whose image does not import, so that the store keeps none of it."""

    def __init__(self, failures: tuple[Failure, ...]) -> None:
        super().__init__("imports failed")
        self.failures = failures


def prove(
    source: Source, lock: Lock, wish: Wish, context: Context, *, decide: Decide, seconds: float
) -> Lock:
    """Return a lock that is proved by importing: this one, or the nearest that imports.

    Raises NoSolutionError saying what was tried, HostError where nothing can be built here.
    """
    from envbuild.app.order import workshop

    lab = _Lab(source=source, wish=wish, context=context, decide=decide, shop=workshop(context))
    search = Search(lab=lab, seconds=seconds, dates=_dates(lock), say=context.report.say)
    return search.run(lock)


def _dates(lock: Lock) -> tuple[str, ...]:
    created = datetime.strptime(lock.base.created, "%Y-%m-%d").replace(tzinfo=timezone.utc).date()
    found = [(created + timedelta(days=days)).isoformat() for days in DAYS]
    return tuple(date for date in found if lock.as_of is None or date < lock.as_of)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Lab:
    """The hands of a search: resolve, build, import, ask the index."""

    source: Source
    wish: Wish
    context: Context
    decide: Decide
    shop: Workshop

    def relock(self, bounds: Bounds, old: Lock) -> Lock:
        """Lock again, keeping what still fits."""
        kept = replace(self.wish, old=old, bounds=bounds.constraints, upgrade=(), upgrade_all=False)
        return self.decide(
            self.source, replace(kept, as_of=bounds.as_of or self.wish.as_of), self.context
        )

    def imports(self, lock: Lock) -> tuple[Failure, ...]:
        """Make the lock's image in the store; one that does not import is not kept."""
        from envbuild.app.order import order_of
        from envbuild.build.known import choose_mode
        from envbuild.build.make import make_image
        from envbuild.build.packer import ready_packer

        mode = choose_mode("auto")
        ready_packer(lock, self.shop)
        with self.context.store.work("proof") as folder:
            order = order_of(self.source, lock, folder / f"{self.source.recipe.name}.sif", mode)
            try:
                make_image(order, self.shop, lambda image, _: self._require_imports(image, lock))
            except _ImportsFailedError as failed:
                return failed.failures
        return ()

    def _require_imports(self, image: Path, lock: Lock) -> None:
        """Import every direct dependency; raises _ImportsFailedError, HostError where the image gives no answer."""
        from envbuild.check import plan
        from envbuild.check.answers import Imports
        from envbuild.check.checks.packages import lacks_driver
        from envbuild.check.checks.uses import uses
        from envbuild.check.probe_runner import ProbeRunner

        expected = plan.expect(self.source.recipe, lock)
        settings = self.context.settings
        own = not self.source.shipped and settings.cwd.resolve() != settings.home.resolve()
        used = uses(settings.cwd) if own else {}  # a home folder is no project
        request = plan.imports_request(expected, uses=used)
        network = self.source.recipe.check.network
        inside = ProbeRunner(image, self.shop.runtime, self.shop.runner, gpu=False, network=network)
        answer = inside.ask((request,)).answer(request, Imports)
        if answer.data is None:
            raise HostError(f"the imports could not be tried: {answer.fault}", hint=answer.hint)
        modules = answer.data.modules
        failed = {
            name: one for name, one in modules.items() if not one.ok and not lacks_driver(one)
        }
        if failed:
            raise _ImportsFailedError(
                tuple(
                    Failure(module=name, error=one.error, blame=one.blame, used=one.used)
                    for name, one in sorted(failed.items(), key=lambda item: item[1].used)
                )
            )

    def releases(self, package: PythonPackage) -> tuple[str, ...]:
        """Return the versions of a package that its index has files of."""
        from packaging.utils import (
            InvalidSdistFilename,
            InvalidWheelFilename,
            parse_sdist_filename,
            parse_wheel_filename,
        )

        from envbuild.net.index import index_url, read_links
        from envbuild.net.web import make_client

        settings = self.context.settings
        with make_client(settings) as client:
            links = read_links(
                index_url(settings, self.context.runner, package.index), package.name, client
            )
        found: dict[str, None] = {}
        for link in links:
            with suppress(InvalidWheelFilename, InvalidSdistFilename):
                wheel = link.file.endswith(".whl")
                version = (parse_wheel_filename if wheel else parse_sdist_filename)(link.file)[1]
                if not link.yanked:
                    found[str(version)] = None
        return tuple(found)
