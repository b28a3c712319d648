"""Ask the package index for a draft, or do without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envbuild.errors import EnvbuildError
from envbuild.progress import Reporter
from envbuild.project.freeze import guessed, requirements_of, roots
from envbuild.project.known import look_up
from envbuild.project.model import Need, Release
from envbuild.project.names import load_names
from envbuild.run import Runner
from envbuild.settings import Settings

GUESSED = "by a list of packages that others usually bring; look it over"


class Offline:
    """An index that is not asked."""

    def reduce(
        self, needs: tuple[Need, ...], imported: frozenset[str]
    ) -> tuple[tuple[Need, ...], str]:
        """Reduce a dump by a list of packages that others usually bring."""
        return guessed(needs, imported), GUESSED

    def look_up(self, needs: tuple[Need, ...]) -> tuple[Mapping[str, Release], Mapping[str, str]]:  # noqa: ARG002
        """Know nothing."""
        return {}, {}


@dataclass(frozen=True, kw_only=True)
class Online:
    """This machine's package index; where it does not answer, a draft is made without it."""

    settings: Settings
    runner: Runner
    report: Reporter

    def reduce(
        self, needs: tuple[Need, ...], imported: frozenset[str]
    ) -> tuple[tuple[Need, ...], str]:
        """Reduce a dump by what the packages themselves require."""
        try:
            with self.report.stage(f"ask the index what {len(needs)} packages require"):
                requires = requirements_of(needs, self.settings, self.runner, self.report)
        except EnvbuildError as error:
            self.report.say(f"the index cannot be asked: {error}")
            return Offline().reduce(needs, imported)
        brought = set(load_names().transitive.names) - imported
        kept = tuple(need for need in roots(needs, requires, imported) if need.name not in brought)
        return kept, "the packages' own metadata"

    def look_up(self, needs: tuple[Need, ...]) -> tuple[Mapping[str, Release], Mapping[str, str]]:
        """Read the index's pages of the needs, and the ends of their wheels."""
        try:
            with self.report.stage(f"look {len(needs)} packages up on the index"):
                return look_up(needs, self.settings, self.runner)
        except EnvbuildError as error:
            self.report.say(f"the index cannot be asked: {error}; --offline does not ask it")
            return {}, {}
