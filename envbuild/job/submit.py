"""Hand a job to its scheduler: folders, then the script, the submission, and the record."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path

from envbuild.context import Context
from envbuild.data.tables import TableRow, table_loader
from envbuild.errors import HostError, ToolFailedError, ToolMissingError, UsageError
from envbuild.job.model import Image, Job, Record
from envbuild.job.render.script import receipt_pattern, render
from envbuild.job.schedulers import SCHEDULERS, features_of, scheduler_of
from envbuild.job.schedulers.features import Cause
from envbuild.job.schedulers.protocol import log_pattern
from envbuild.job.sites.site import Site
from envbuild.job.track.records import (
    job_folder,
    now,
    remove_secrets,
    require_record_folder,
    save_own_record,
)
from envbuild.names import Texts, Variables
from envbuild.records import replace
from envbuild.run import Command, Result
from envbuild.settings import Settings
from envbuild.store.atomic import os_errors_as, sync_folder, write_text

PATIENCE = 120.0
"""Seconds that a client of the scheduler gets; a busy controller answers slowly, a dead one
never."""

NO_FOLDER = Path("/")
"""Where clients run that need no folder: some take settings from files of the current one."""
OWN_VARIABLES = (scheduler.features.client_variables for scheduler in SCHEDULERS.values())
KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|TZ|KRB5CCNAME|LD_LIBRARY_PATH|MODULEPATH|MODULESHOME|LOADEDMODULES|_LMFILES_|"
    rf"LMOD_\w+|{'|'.join(filter(None, OWN_VARIABLES))}|MUNGE_SOCKET|TMPDIR"
)
"""Variables that a scheduler's client gets.  Others change what it does or prints
(SBATCH_*, SQUEUE_FORMAT), or are secrets that would go into the job's record."""


class Refusal(TableRow, frozen=True, kw_only=True):
    """Why a job is refused: what it means and what to do."""

    cause: Cause
    pattern: str = "$^"
    what: str
    hint: str


class _RefusalTable(TableRow, frozen=True):
    """The whole of refusals.toml."""

    refusal: tuple[Refusal, ...]


load_refusals = table_loader("refusals.toml", _RefusalTable)


def client_environment(environment: Variables) -> dict[str, str]:
    """Return what a client of the scheduler may see of the caller's environment, with messages in English."""
    return {
        **{key: value for key, value in environment.items() if KEPT.fullmatch(key)},
        "LC_ALL": "C",
    }


def ask(
    argv: Texts, context: Context, *, patience: float = PATIENCE, folder: Path = NO_FOLDER
) -> Result:
    """Run a client of the scheduler; its failure is for the caller to read."""
    env = client_environment(context.settings.environment)
    command = Command(argv=argv, env=env, cwd=folder, timeout=patience)
    return context.runner(command, check=False)


def place_client(argv: Texts, site: Site, settings: Settings) -> tuple[Texts, Path]:
    """Return the words of a client that starts a job of this folder, and where to run it."""
    option = features_of(site).folder_option
    if not option:
        return argv, settings.cwd
    others = (word for word in argv[1:] if word != "-cwd")
    return (argv[0], option, str(settings.cwd), *others), NO_FOLDER


def ask_site(argv: Texts, site: Site, context: Context, *, folder: Path = NO_FOLDER) -> Result:
    """Run a client that a site cannot do without.  Raises HostError where it is not found."""
    try:
        return ask(argv, context, folder=folder)
    except ToolMissingError as error:
        title = features_of(site).title
        raise HostError(
            f"{argv[0]} was not found: there is no {title} on this machine",
            where=f"site {site.name}",
            hint="log in to the cluster and run it there; envbuild job prints the script",
        ) from error


def write_script(job: Job, site: Site, settings: Settings, key: str) -> Path:
    """Write the script into ``.envbuild/jobs`` and return its path."""
    path = job_folder(settings.cwd) / f"{key}.sh"
    job = replace(job, key=key, umask=_read_umask(), image=_stamped(job.image, settings.cwd))
    write_text(path, render(job, site, scheduler_of(site)), mode=0o755)
    return path


def _stamped(image: Image | None, project: Path) -> Image | None:
    """Return the image with its size and time of change, which the job compares before it starts."""
    if image is None or not (project / image.path).is_file():
        return image
    state = (project / image.path).stat()
    return replace(image, stamp=f"{state.st_size} {int(state.st_mtime)}")


def write_secrets(values: Mapping[str, str], settings: Settings, key: str) -> str | None:
    """Write handed-on variables to a file that only their owner can read.

    None where there are none.
    """
    if not values:
        return None
    path = job_folder(settings.cwd) / f"{key}.env"
    # either runtime takes its own prefix off, and hands the rest in
    lines = []
    for name, value in values.items():
        quoted = shlex.quote(value)
        lines.append(f"export APPTAINERENV_{name}={quoted} SINGULARITYENV_{name}={quoted}\n")
    # not in the script, nor on the scheduler's command line: other users can read both
    write_text(path, "".join(lines), mode=0o600)
    return str(path)


def copy_secrets(path: Path, key: str) -> str:
    """Copy a job's handed-on variables for another one, and return the new file's path."""
    new = path.with_name(f"{key}.env")
    write_text(new, path.read_text("utf-8"), mode=0o600)
    return str(new)


def new_key(name: str) -> str:
    """Return a name for a submission's files that nobody guesses and nothing else has."""
    moment = now().replace("-", "").replace(":", "")
    return f"{name}-{moment}-{secrets.token_hex(3)}"


def make_log_folder(job: Job, settings: Settings) -> Path:
    """Make the folder of the logs, which Grid Engine and older Slurm do not.

    Raises HostError where that fails.
    """
    folder = (settings.cwd / log_pattern(job)).parent
    with os_errors_as(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # else the job would be the first to see, on a node and hours later, that it cannot write
        probe = folder / f".envbuild-{secrets.token_hex(4)}"
        probe.touch()
        probe.unlink()
    sync_folder(folder)
    return folder


def log_sizes(job: Job, settings: Settings) -> dict[Path, int]:
    """Return the sizes of the files in the folder of the logs: what they hold is of earlier jobs.

    A scheduler may give an id again, and a job appends to the log of that name.
    """
    folder = (settings.cwd / log_pattern(job)).parent
    return {path: path.stat().st_size for path in folder.glob("*") if path.is_file()}


def submit(
    job: Job,
    site: Site,
    context: Context,
    *,
    key: str,
    purpose: str = "command",
    subject: str = "",
) -> Record:
    """Submit a job and return its record.

    Raises HostError when the scheduler is missing, does not answer or refuses (its own words are
    told).
    """
    if site.site.retired:
        raise UsageError(
            f"the site closed on {site.site.retired}",
            where=f"site {site.name}",
            hint="envbuild site list",
        )
    scheduler, settings = scheduler_of(site), context.settings
    require_record_folder(settings)
    make_log_folder(job, settings)
    script = write_script(job, site, settings, key)
    argv, folder = place_client(scheduler.submit(str(script), job, site), site, settings)
    result = ask_site(argv, site, context, folder=folder)
    if result.code and not result.timed_out:
        raise refusal(site, result)
    # a client may hang after it has printed the id: then the job is there
    try:
        number = scheduler.read_id(result)
    except ToolFailedError:
        if result.timed_out:
            raise refusal(site, result) from None
        raise
    record = Record(
        id=number,
        site=site.name,
        name=job.name,
        script=str(script.relative_to(settings.cwd)),
        log=log_pattern(job),
        receipt=receipt_pattern(replace(job, key=key)),
        submitted=now(),
        tasks=tuple(job.intent.array.numbers) if job.intent.array else (),
        purpose=purpose,
        subject=subject,
        job=replace(job, key=key, rows=()),
    )
    save_own_record(record, settings)
    remove_secrets(settings)
    return record


def refusal(site: Site, result: Result) -> ToolFailedError:
    """Turn the failure of a submission into the error that says what it means, with the scheduler's own words."""
    where, program = f"site {site.name}", result.argv[0]
    if result.timed_out:
        what = f"{program} did not answer within {PATIENCE:.0f} s"
        hint = "the job may have been submitted all the same: look at the list of your jobs before trying again"
        return ToolFailedError.of(result, what, where=where, hint=hint)
    output = result.last_lines(6) or "nothing"
    whole = f"{result.stderr}\n{result.stdout}"
    own = features_of(site).refusals
    for row in load_refusals().refusal:
        if re.search(f"{row.pattern}|{own.get(row.cause, '$^')}", whole):
            what = f"{row.what}; {program} said:\n{output}"
            return ToolFailedError.of(result, what, where=where, hint=row.hint)
    what = f"the job was refused; {program} said (exit code {result.code}):\n{output}"
    return ToolFailedError.of(result, what, where=where)


def _read_umask() -> str:
    """Return this process's mask of permissions (proc(5), Umask), which a job of PBS does not inherit."""
    try:
        text = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return "022"
    found = re.search(r"^Umask:\s*(\d+)$", text, flags=re.MULTILINE)
    return found[1].rjust(3, "0")[-3:] if found else "022"


def check_project(folder: Path) -> None:
    """Refuse a project folder that cannot be bound or written into a script's directive.

    A percent sign is replaced in Slurm's names of logs, and PBS drops a blank at the end.
    """
    found = re.search(r"[\x00-\x1f\x7f,:\"'\\$`%]", str(folder))
    if found is None and all(part == part.strip() for part in folder.parts):
        return
    why = f"has {found[0]!r} in it" if found else "begins or ends with a blank"
    raise UsageError(
        f"jobs cannot run in a folder whose name {why}", where=folder, hint="rename it"
    )
