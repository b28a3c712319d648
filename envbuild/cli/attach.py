"""``envbuild attach``: a shell, or one command, in the image beside a job that runs."""

from __future__ import annotations

import sys

import click

from envbuild.cli.complete import complete_job
from envbuild.cli.options import CommandAfterDashes
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.job.model import Job, Record
from envbuild.job.schedulers import scheduler_of
from envbuild.job.sites.believe import require_believed
from envbuild.job.sites.find import load_site
from envbuild.job.submit import client_environment, new_key, write_script
from envbuild.job.track.monitor import status_of
from envbuild.job.track.records import find_own_record, plain_id
from envbuild.names import Texts
from envbuild.records import replace
from envbuild.run import hand_over

NOT_RUNNING = {
    "queued": "waits",
    "ended": "has ended",
    "unknown": "is not known to the scheduler",
}


@click.command("attach", cls=CommandAfterDashes)
@click.argument("job_id", metavar="ID", shell_complete=complete_job)
@click.argument("argv", metavar="-- CMD…", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def command(context: Context, *, job_id: str, argv: Texts) -> None:
    """Open a shell, or run CMD, in the image on the node of a running job, with that job's GPUs.

    \b
    envbuild attach 1234
    envbuild attach 1234 -- nvidia-smi

    This works with Slurm and on site local; Grid Engine and PBS do not allow it.
    """
    settings = context.settings
    record = find_own_record(job_id, settings)
    site = load_site(record.site, settings)
    require_believed(site, settings)
    job = _job_beside(record, argv)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    line = scheduler_of(site).attach("SCRIPT", plain_id(record.id), terminal=terminal)
    status = status_of(record, site, context)
    if status.phase != "running":
        what = f"it {NOT_RUNNING[status.phase]}, so there is nothing to attach to"
        raise UsageError(what, where=f"job {job_id}")
    script = write_script(job, site, settings, new_key("attach"))
    words = tuple(str(script) if word == "SCRIPT" else word for word in line)
    variables = client_environment(settings.environment)
    hand_over(words, {**variables, "TERM": settings.environment.get("TERM", "dumb")})


def _job_beside(record: Record, argv: Texts) -> Job:
    """Return a job like the one that runs, but for one command and nothing that was done already."""
    job = record.job
    where = f"job {record.id}"
    if job is None or job.image is None:
        raise UsageError("it runs in no image, or an older envbuild submitted it", where=where)
    if job.intent.array is not None:
        raise UsageError(
            "it is an array, which has many nodes", where=where, hint="attach to one job"
        )
    intent = replace(job.intent, launcher="single", stage=(), after=(), after_any=())
    return replace(
        job, argv=argv or ("bash",), intent=intent, checked=(), interactive=True, key=None
    )
