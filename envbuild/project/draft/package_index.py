"""Ask the package index for a draft, or do without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.project.draft.known import look_up, pinned_files
from envbuild.project.lists.freeze import find_roots, guess_roots, requirements_of
from envbuild.project.model import Release, Requirement
from envbuild.store.units import count_noun

GUESSED = "by a list of packages that others usually bring; look it over"


class Offline:
    """An index that is not asked."""

    def reduce(
        self, requirements: tuple[Requirement, ...], imported: frozenset[str]
    ) -> tuple[tuple[Requirement, ...], str]:
        """Reduce a dump by a list of packages that others usually bring."""
        return guess_roots(requirements, imported), GUESSED

    def look_up(
        self,
        requirements: tuple[Requirement, ...],  # noqa: ARG002
        wanted: frozenset[str] = frozenset(),  # noqa: ARG002
    ) -> tuple[Mapping[str, Release], Mapping[str, str]]:
        """Know nothing."""
        return {}, {}


@dataclass(frozen=True, kw_only=True)
class Online:
    """This machine's package index; where it does not answer, a draft is made without it."""

    context: Context

    def reduce(
        self, requirements: tuple[Requirement, ...], imported: frozenset[str]
    ) -> tuple[tuple[Requirement, ...], str]:
        """Reduce a dump by what the packages themselves require."""
        try:
            with self.context.report.stage(
                f"ask the index what {count_noun(len(requirements), 'package requires', 'packages require')}"
            ) as stage:
                files = pinned_files(requirements, self.context, stage)
                requires = requirements_of(requirements, files, self.context)
        except EnvbuildError as error:
            self.context.report.say(f"the index cannot be asked: {error}")
            return Offline().reduce(requirements, imported)
        roots = find_roots(requirements, requires, imported)
        return guess_roots(roots, imported), "the packages' own metadata"

    def look_up(
        self, requirements: tuple[Requirement, ...], wanted: frozenset[str] = frozenset()
    ) -> tuple[Mapping[str, Release], Mapping[str, str]]:
        """Read the index's pages of the requirements, and the ends of their wheels."""
        if not requirements and not wanted:
            return {}, {}
        count = count_noun(len(requirements) + len(wanted), "package")
        try:
            with self.context.report.stage(f"look {count} up on the index") as stage:
                return look_up(requirements, wanted, self.context, stage)
        except EnvbuildError as error:
            self.context.report.say(
                f"the index cannot be asked: {error}; --offline does not ask it"
            )
            return {}, {}
