"""No scheduler: the script runs on this machine, in the background, in a session of its own."""

from __future__ import annotations

from envbuild.job.model import Job, Status
from envbuild.job.schedulers.features import load_features
from envbuild.job.schedulers.protocol import (
    Ask,
    StateQuestion,
    Words,
    last_id,
)
from envbuild.job.sites.site import Site
from envbuild.run import Result

START = 'setsid bash "$0" </dev/null >/dev/null 2>&1 & echo $!'
"""setsid takes over its process, so the number is that of the job's bash, of its session and of its
group."""


class Local:
    """This machine."""

    features = load_features("local")

    def options(self, job: Job, site: Site) -> tuple[Words, ...]:  # noqa: ARG002
        """Return nothing: there is nobody to ask, the walltime is kept by the script itself."""
        return ()

    def submit(self, script: str, job: Job, site: Site) -> Words:  # noqa: ARG002
        """Return the line that starts the script and prints its process number."""
        return ("sh", "-c", START, script)

    def interactive(
        self,
        script: str,
        job: Job,  # noqa: ARG002
        site: Site,  # noqa: ARG002
        *,
        terminal: bool = True,  # noqa: ARG002
    ) -> Words:
        """Return the script's own line."""
        return ("bash", script)

    def attach(self, script: str, job: str, *, terminal: bool) -> Words:  # noqa: ARG002
        """Return the script's own line: the job runs here."""
        return ("bash", script)

    def read_id(self, result: Result) -> str:
        """Read the number of the process."""
        return last_id(r"\d+", result)

    def questions(self, job: str) -> tuple[StateQuestion, ...]:
        """Ask whether the process lives."""
        return (StateQuestion(argv=("ps", "-o", "args=", "-p", job), read=_read),)

    def cancel(self, job: str, task: int | None = None) -> Words:  # noqa: ARG002
        """Return the line that ends the script, which ends its command."""
        return ("kill", "-TERM", job)

    def site_sections(self, ask: Ask) -> list[str]:  # noqa: ARG002
        """Return nothing: there is nobody to ask."""
        return []


def _read(result: Result, job: str) -> Status | None:  # noqa: ARG001
    """Read the process's command line; numbers are used again, so another program is not the job."""
    return Status(phase="running") if ".envbuild/jobs/" in result.stdout else None
