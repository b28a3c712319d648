"""Look before submitting: who answers under a client's name, and what became of the jobs that this one follows."""

from __future__ import annotations

import re

from envbuild.context import Context
from envbuild.errors import HostError, UsageError
from envbuild.job.model import Job, Record
from envbuild.job.schedulers import features_of, scheduler_of
from envbuild.job.sites.site import Site
from envbuild.job.submit import ask
from envbuild.job.track.monitor import exit_code
from envbuild.job.track.records import (
    find_record,
    is_stopped,
    is_whole,
    plain_id,
    read_receipts,
)
from envbuild.records import replace
from envbuild.settings import Settings


def check_client(site: Site, context: Context) -> None:
    """Raise HostError where the clients on PATH are of another scheduler than the site's."""
    features = features_of(site)
    for stranger in features.strangers:
        try:
            result = ask(stranger.argv, context, patience=10)
        except HostError:
            continue  # the submission itself tells what is missing
        output = f"{result.stdout}\n{result.stderr}"
        if result.timed_out or not re.search(stranger.pattern, output, flags=re.MULTILINE):
            continue
        raise HostError(
            f"{stranger.argv[0]} is that of {stranger.title} here, and the site has {features.title}",
            where=f"site {site.name}",
            hint="log in to the site's own cluster, or choose this one: envbuild site list, envbuild site init",
        )


def check_predecessors(job: Job, site: Site, context: Context) -> Job:
    """Return the job without the predecessors that have ended as they should, the others by their whole ids.

    A scheduler forgets jobs that have ended, and then deletes what follows them (PBS without
    history) or starts it (Slurm).  Raises UsageError for a job to follow that has failed already,
    or that the scheduler has forgotten.
    """
    settings, after = context.settings, []
    for number in job.intent.after:
        record = _find_record(number, site, settings)
        if record is not None and _succeeded(record, settings):
            continue
        # afterok of a job that Slurm has purged (slurm.conf(5), MinJobAge) counts as fulfilled
        unsure = features_of(site).trusts_unknown
        if unsure and not _known(number, site, context):
            raise UsageError(
                f"{features_of(site).title} does not know job {number}, and would take it for one that succeeded",
                where="--after",
                hint=f"leave it out if it has succeeded; --after-any {number} does not ask how it ended",
            )
        after.append(record.id if record else number)
    after_any = []
    for number in job.intent.after_any:
        record = _find_record(number, site, settings)
        if record is None or not _ended(record, settings):
            after_any.append(record.id if record else number)
    # PBS never releases a job that names another one twice (seen with 23.06.06); success is an end, too
    after_any = [number for number in after_any if number not in after]
    intent = replace(
        job.intent, after=tuple(dict.fromkeys(after)), after_any=tuple(dict.fromkeys(after_any))
    )
    return replace(job, intent=intent)


def _find_record(number: str, site: Site, settings: Settings) -> Record | None:
    try:
        return find_record(number, settings.cwd, site=site.name)
    except UsageError:
        return None


def _ended(record: Record, settings: Settings) -> bool:
    """Whether a job has left all its receipts, and none of a signal: then it might run again."""
    receipts = read_receipts(record, settings.cwd)
    return is_whole(record, receipts) and not is_stopped(receipts)


def _succeeded(record: Record, settings: Settings) -> bool:
    """Tell whether a job has left all its receipts and they tell success.

    Raises UsageError where they report a failure.
    """
    if not _ended(record, settings):
        return False
    code = exit_code(read_receipts(record, settings.cwd))
    if code:
        number = plain_id(record.id)
        raise UsageError(
            f"job {number} has failed already, with code {code}: what follows it would never start",
            where="--after",
            hint=f"run that again first, or write --after-any {number}",
        )
    return True


def _known(job: str, site: Site, context: Context) -> bool:
    for question in scheduler_of(site).questions(job):
        try:
            result = ask(question.argv, context, patience=30)
        except HostError:
            continue
        if result.timed_out or question.read(result, job) is not None:
            return True
    return False
