"""Every error that a user may see: what happened, to which value, what to do, and its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from envbuild.run import Result

OK = 0
INTERRUPTED = 130
OWN_FAILURE = 125
"""Exit code of ``exec``, ``shell``, ``run``, ``watch`` and ``submit --wait`` when envbuild itself
failed, not the command."""


class EnvbuildError(Exception):
    """Root of all errors that the user sees without a traceback.

    ``where`` names the value at fault (file, line, key); ``hint`` is the next step, one line or
    several.
    """

    code = 7

    def __init__(
        self, what: str, *, where: str | Path | None = None, hint: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = None if where is None else str(where)
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class CheckFailedError(EnvbuildError):
    """A check or a verification failed; ``details`` is the whole report, shown before the error."""

    code = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | Path | None = None,
        hint: str | None = None,
        details: str = "",
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.details = details


class UsageError(EnvbuildError):
    """The command line, a recipe, a settings file or a site file is wrong."""

    code = 2


class NoSolutionError(EnvbuildError):
    """The direct requirements have no solution on this base."""

    code = 3


class StaleLockError(EnvbuildError):
    """The lock was made from another recipe than the one at hand."""

    code = 4


class NetworkError(EnvbuildError):
    """An index or mirror did not answer, or an artifact is gone."""

    code = 5


class RateLimitError(NetworkError):
    """A server answers no more for a while (HTTP 429)."""


class IntegrityError(EnvbuildError):
    """A hash, digest or signature does not match."""

    code = 6


class HostError(EnvbuildError):
    """The machine lacks something: a tool, a permission, a kernel feature."""

    code = 7


class ToolMissingError(HostError):
    """A program is not on PATH."""


class ToolFailedError(HostError):
    """A tool ended with an error; carries its exit code and last lines.

    ``stdout`` and ``stderr`` are what the runner kept of the two streams (text, each at most its
    capture limit).
    """

    def __init__(
        self,
        what: str,
        *,
        exit_code: int = 1,
        stdout: str = "",
        stderr: str = "",
        where: str | Path | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr

    @classmethod
    def of(
        cls,
        result: Result | ToolFailedError,
        what: str,
        *,
        where: str | Path | None = None,
        hint: str | None = None,
    ) -> ToolFailedError:
        """Return the error for a command that failed, in words of one's own."""
        code = result.exit_code if isinstance(result, ToolFailedError) else result.code
        return cls(
            what,
            exit_code=code,
            stdout=result.stdout,
            stderr=result.stderr,
            where=where,
            hint=hint,
        )


class SpaceError(EnvbuildError):
    """A file system is full, or will be."""

    code = 8
