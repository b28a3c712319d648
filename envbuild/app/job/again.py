"""Submit again what failed: the tasks of an array that did not succeed, or the whole job."""

from __future__ import annotations

from pathlib import Path

from envbuild.app.image import FoundImage, find_image
from envbuild.app.job.prepare import JobRequest, image_of_job
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.job.compose import check_visible, git_commit
from envbuild.job.model import Array, Job, ParameterTable, Record
from envbuild.job.request.allocate import allocate
from envbuild.job.request.intent import MAY_CHANGE, change_intent
from envbuild.job.request.table import fill_rows
from envbuild.job.schedulers import features_of
from envbuild.job.sites.believe import require_believed
from envbuild.job.sites.find import load_site
from envbuild.job.sites.site import Site
from envbuild.job.track.records import find_own_record, load_own_records, plain_id
from envbuild.job.track.results import TaskResult, collect_results, find_origin, find_repetitions
from envbuild.names import Texts
from envbuild.records import replace
from envbuild.store.units import listing


def plan_again(
    number: str, request: JobRequest, context: Context
) -> tuple[Job, Site, FoundImage | None] | None:
    """Return the job that repeats what has failed of an earlier one; None where nothing has.

    Flags of resources go over what the job had asked for.  Raises UsageError for a job of an older
    envbuild, and for flags that would make it another job.
    """
    _refuse_other_flags(request)
    settings = context.settings
    record, own = find_own_record(number, settings), load_own_records(settings)
    first = find_origin(record, own)
    if first.job is None:
        raise UsageError("an older envbuild submitted it", where=f"job {number}")
    newest = [first, *find_repetitions(first, own)][-1]  # older ones lost their secrets
    failed = [task for task in collect_results(first, context) if task.failed]
    if first is record and record.tasks:
        failed = [task for task in failed if task.number in record.tasks]  # one may be named
    if not failed:
        return None
    site = load_site(first.site, settings)
    require_believed(site, settings)
    intent = change_intent(first.job.intent, request.flags)
    job = replace(
        first.job,
        intent=intent,
        allocation=allocate(intent, site, interactive=False),
        origin=first.job.key or "",
        key=None,
        checked=(),
        secrets=newest.job.secrets if newest.job else None,
        commit=git_commit(context),
    )
    if job.intent.array is not None:
        job = _with_tasks(job, failed, site)
    found = None
    if job.image is not None:
        found = find_image(str(settings.cwd / job.image.path), context)
        fresh = image_of_job(found, context)
        if fresh.digest != job.image.digest:
            context.report.say(f"note: the image is another one than that of job {number}")
        job = replace(job, image=fresh)
    binds = tuple((Path(source), target, writable) for source, target, writable in job.binds)
    check_visible(job, site, settings, binds)
    context.report.say(f"again: {_describe(failed, first)}")
    return job, site, found


def _refuse_other_flags(request: JobRequest) -> None:
    given: dict[str, object] = {
        "--with": request.packages,
        "NAME": request.image,
        "--on": request.site,
        "--name": request.name,
    }
    given |= {"-- CMD": request.argv, "--each": request.each, "--grid": request.grid}
    given |= {"--bind": request.binds, "--interactive": request.interactive}
    for flag, value in given.items():
        if value:
            raise UsageError("--again runs the same job", where=flag, hint=MAY_CHANGE)


def _with_tasks(job: Job, failed: list[TaskResult], site: Site) -> Job:
    """Return the job with the failed tasks alone, numbered from one; each knows its old number."""
    array = job.intent.array
    assert array is not None  # noqa: S101
    numbers = tuple(task.number for task in failed if task.number is not None)
    table = None
    argv = job.argv
    rows: tuple[Texts, ...] = ()
    if job.table is not None:
        kept = tuple(job.table.rows[array.numbers.index(number)] for number in numbers)
        table = ParameterTable(names=job.table.names, rows=kept)
        rows = fill_rows(table, job.argv, "--again")
    if len(numbers) < features_of(site).array_least:
        # this scheduler takes no array of one task
        output = job.intent.output
        if output:
            output = output.replace("{task}", str(numbers[0]))
        intent = replace(job.intent, array=None, output=output or None)
        if rows:
            argv, rows = rows[0], ()
    else:
        tasks = Array(first=1, last=len(numbers), limit=array.limit)
        intent = replace(job.intent, array=tasks)
    return replace(job, argv=argv, intent=intent, rows=rows, table=table, repeats=numbers)


def _describe(failed: list[TaskResult], first: Record) -> str:
    number = plain_id(first.id)
    if failed[0].number is None:
        return f"job {number}"
    tasks = listing([str(task.number) for task in failed], 10)
    return f"{len(failed)} of {len(first.tasks)} tasks of job {number} ({tasks})"
