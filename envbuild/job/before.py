"""Look before submitting: who answers under a client's name, and what became of the jobs that this one follows."""

from __future__ import annotations

import re

from envbuild.errors import HostError, UsageError
from envbuild.job.follow import exit_code, stopped
from envbuild.job.model import Job, Record
from envbuild.job.records import find_record, plain_id, read_receipts
from envbuild.job.schedulers import scheduler_of
from envbuild.job.site import Site
from envbuild.job.submit import ask
from envbuild.run import Runner
from envbuild.settings import Settings

STRANGERS = {
    "gridengine": ("PBS", ("qsub", "--version"), r"^pbs_version = "),
    "pbs": (
        "Grid Engine",
        ("qstat", "-help"),
        r"^(?:SGE|UGE|AGE|GE|OGE|Univa Grid Engine|Altair Grid Engine) \d",
    ),
}
"""For each site's scheduler: who else has a qsub, what to ask it, and what it says then.

The other one would take the script, and read none of its lines.
"""


def check_client(site: Site, settings: Settings, runner: Runner) -> None:
    """Raise HostError where the clients on PATH are of another scheduler than the site's."""
    stranger = STRANGERS.get(site.site.scheduler)
    if stranger is None:
        return
    title, argv, pattern = stranger
    try:
        result = ask(argv, settings, runner, patience=10)
    except HostError:
        return  # the submission itself tells what is missing
    if not result.timed_out and re.search(
        pattern, f"{result.stdout}\n{result.stderr}", flags=re.MULTILINE
    ):
        raise HostError(
            f"{argv[0]} is that of {title} here, and the site has {scheduler_of(site).title}",
            where=f"site {site.name}",
            hint="log in to the site's own cluster, or choose this one: envbuild site list, envbuild site init",
        )


def check_predecessors(job: Job, site: Site, settings: Settings, runner: Runner) -> None:
    """Raise UsageError for a job to follow that has failed already, or that the scheduler has forgotten.

    Slurm takes a job that it does not know any more (MinJobAge) for one that succeeded, and starts its followers.
    """
    for number in job.intent.after:
        try:
            record = find_record(number, settings.cwd, site=site.name)
        except UsageError:
            record = None
        if record is not None and _succeeded(record, settings):
            continue
        if site.site.scheduler == "slurm" and not _known(number, site, settings, runner):
            raise UsageError(
                f"Slurm does not know job {number}, and would take it for one that succeeded",
                where="--after",
                hint=f"leave it out if it has succeeded; --after-any {number} does not ask how it ended",
            )


def _succeeded(record: Record, settings: Settings) -> bool:
    """Tell whether a job has left all its receipts and they tell success; raises UsageError where they tell failure."""
    receipts = read_receipts(record, settings.cwd)
    if len(receipts) < max(1, len(record.tasks)) or stopped(receipts):
        return False
    if code := exit_code(receipts):
        raise UsageError(
            f"job {plain_id(record.id)} has failed already, with code {code}: what follows it would never start",
            where="--after",
            hint=f"run that again first, or write --after-any {plain_id(record.id)}",
        )
    return True


def _known(job: str, site: Site, settings: Settings, runner: Runner) -> bool:
    for question in scheduler_of(site).questions(job):
        try:
            result = ask(question.argv, settings, runner, patience=30)
        except HostError:
            continue
        if result.timed_out or question.read(result, job) is not None:
            return True
    return False
