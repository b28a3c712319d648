"""Everything that a check may look at, gathered before anything is judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from envbuild.check.answers import (
    Answer,
    BuiltFor,
    Code,
    Compute,
    CondaSurvey,
    Driver,
    Imports,
    LibrarySurvey,
    Owner,
    Plain,
    ScriptRun,
    Static,
)
from envbuild.check.checks.sources import Survey
from envbuild.check.expected import Expected
from envbuild.check.model import Outcome
from envbuild.data import lookup
from envbuild.data.tables import Framework, WheelBuild
from envbuild.project.code.uses import Uses
from envbuild.records import field, frozen_record

T = TypeVar("T")


@frozen_record
class Evidence:
    """Expectations, answers and the machine's state.

    ``framework`` is the one in question, ``frameworks`` are all that are looked at, the expected or
    first found before the others; ``computes`` are their computations by name, ``compute`` that of
    the one in question; ``gpu`` says that this machine has an NVIDIA driver; an answer is None
    where its probe was not run; ``sources`` are the project's own files, ``uses`` what these take.
    """

    expected: Expected
    framework: Framework | None = None
    static: Answer[Static] | None = None
    libraries: Answer[LibrarySurvey] | None = None
    imports: Answer[Imports] | None = None
    conda: Answer[CondaSurvey] | None = None
    code: Answer[Code] | None = None
    script: Answer[ScriptRun] | None = None
    driver: Answer[Driver] | None = None
    compute: Answer[Compute] | None = None
    computes: Mapping[str, Answer[Compute]] = field(default_factory=dict)
    frameworks: tuple[Framework, ...] = ()
    sources: Survey | None = None
    uses: Uses = field(default_factory=Uses)
    plain: Answer[Plain] | None = None
    gpu: bool = False

    @property
    def installed(self) -> Static:
        """The static probe's answer, for checks that are only called with one."""
        return given(self.static)

    @property
    def built_for(self) -> BuiltFor:
        """What the framework's own files say it was built for."""
        if self.framework is None:
            return BuiltFor()
        return self.installed.builds.get(self.framework.module, BuiltFor())

    @property
    def owners(self) -> tuple[Owner, ...]:
        """The distributions that have the framework's module."""
        if self.framework is None:
            return ()
        return self.installed.owners.get(self.framework.module, ())

    @property
    def release(self) -> str | None:
        """The framework's installed version."""
        return self.owners[0].version if self.owners else None

    @property
    def title(self) -> str:
        """The framework's name with its version, as far as these are known."""
        name = self.framework.name if self.framework else ""
        return f"{name} {self.release or ''}".strip()

    @property
    def build(self) -> WheelBuild | None:
        """The row of the framework's release.

        Only when it is of the same CUDA as the installed files.
        """
        if self.framework is None or self.release is None:
            return None
        row = lookup.build_of(self.framework.name, self.release)
        if row is None or self.built_for.cuda is None:
            return row
        seen = lookup.numbers(self.built_for.cuda)
        return row if lookup.numbers(row.cuda)[: len(seen)] == seen else None


@frozen_record
class Verdict:
    """What a check says."""

    outcome: Outcome
    reason: str
    hint: str | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


def passed(reason: str, **evidence: Any) -> Verdict:
    """Say that a check passed."""
    return Verdict(outcome="passed", reason=reason, evidence=evidence)


def failed(reason: str, hint: str, **evidence: Any) -> Verdict:
    """Say that a check failed and what to do."""
    return Verdict(outcome="failed", reason=reason, hint=hint, evidence=evidence)


def skipped(reason: str, hint: str | None = None, **evidence: Any) -> Verdict:
    """Say that a check could not be made, and why."""
    return Verdict(outcome="skipped", reason=reason, hint=hint, evidence=evidence)


def given(answer: Answer[T] | None) -> T:
    """Return an answer that the check's row in the table asks for, so that it is there."""
    if answer is None or answer.data is None:
        raise LookupError(
            "a check was called without the answer that its row in the table asks for"
        )
    return answer.data
