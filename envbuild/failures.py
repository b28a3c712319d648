"""What the container runtime says when it fails, what that means, and what to do about it."""

from __future__ import annotations

import re
import signal

from envbuild.data.tables import RuntimeFailure, load_failures
from envbuild.errors import EnvbuildError, SpaceError, ToolFailedError, UsageError
from envbuild.limits import LONG_LINE
from envbuild.records import replace
from envbuild.run import Result, failure

ERRORS: dict[str, type[EnvbuildError]] = {"space": SpaceError, "usage": UsageError}
"""What the table calls errors that say nothing against the machine."""
PROGRESS = re.compile(
    r"^(?:INFO: .*|WARNING: (?:While bind mounting|Overriding HOME environment) .*|\+ set -\w+)\n",
    re.MULTILINE,
)
"""Lines that the runtime prints in every build: none of them is the reason of a failure."""


def find_known(text: str) -> RuntimeFailure | None:
    """Return the known failure whose message needs no value of the text; None for another text."""
    for known in load_failures().runtime:
        if "{value}" not in known.what and re.search(known.pattern, text):
            return known
    return None


def explain_failure(result: Result) -> EnvbuildError:
    """Turn a failed run of the runtime into the error that says what to do.

    Of an unknown text the last lines are kept, without those of every build.
    """
    text = re.sub(r"\x1b\[[0-9;]*m", "", LONG_LINE.sub("", f"{result.stderr}\n{result.stdout}"))
    for known in load_failures().runtime:
        found = re.search(known.pattern, text)
        if found is None:
            continue
        what = known.what.format(**found.groupdict())
        if known.error is None:
            return ToolFailedError.of(result, what, hint=known.advice)
        return ERRORS[known.error](what, hint=known.advice)
    return failure(without_progress(result))


def without_progress(result: Result) -> Result:
    """Leave out the lines that the runtime prints in every build."""
    return replace(result, stderr=PROGRESS.sub("", result.stderr))


def killed_by(code: int) -> str | None:
    """Return the name of the signal that an exit code tells of; None for any other end.

    A process that a signal ended has its number below zero, one inside a container 128 above it.
    """
    number = -code if code < 0 else code - 128
    try:
        return signal.Signals(number).name if number > 0 else None
    except ValueError:
        return None
