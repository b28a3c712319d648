"""Put a job together: intent, allocation, image, binds, variables, and the project's state."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path

from envbuild.context import Context
from envbuild.errors import EnvbuildError, HostError, UsageError
from envbuild.job.model import Array, Image, Intent, Job, ParameterTable, Record
from envbuild.job.render.staging import check_stage
from envbuild.job.request.allocate import allocate
from envbuild.job.request.inputs import check_inputs
from envbuild.job.schedulers import features_of
from envbuild.job.schedulers.features import Features
from envbuild.job.schedulers.protocol import check_owned
from envbuild.job.sites.site import Site, refuse
from envbuild.job.track.records import find_record, plain_id, receipt_files
from envbuild.limits import TABLE, read_whole
from envbuild.names import NAME, Paths, Texts, Variables
from envbuild.records import frozen_record, replace
from envbuild.resolve.sources.git import git_environment
from envbuild.run import Command, Result
from envbuild.runtime import Bind
from envbuild.settings import Settings

STATUS = (
    "status", "--porcelain=v2", "--branch", "--untracked-files=no",
    "--ignore-submodules=dirty",  # git would look into them by settings of their own
)  # fmt: skip


@frozen_record
class JobDraft:
    """What is known of a job before its site is asked; the fields are those of Job."""

    name: str
    argv: Texts
    intent: Intent
    image: Image | None = None
    rows: tuple[Texts, ...] = ()
    table: ParameterTable | None = None
    binds: tuple[Bind, ...] = ()
    commit: str = "none"
    interactive: bool = False


def compose_job(draft: JobDraft, site: Site, settings: Settings) -> Job:
    """Return the job that a site runs.

    Raises UsageError for what the site cannot do and for a predecessor that cannot be tested.
    """
    check_name(draft.name)
    argv, rows, intent = draft.argv, draft.rows, draft.intent
    features = features_of(site)
    check_owned(features, intent.options)
    if len(rows) == 1 and features.array_least > 1 and intent.array is None:
        # this scheduler takes no array of one task: the row becomes the command
        argv, rows = rows[0], ()
    if rows:
        intent = _array_of(rows, intent)
    if intent.account is None and site.fields.account is not None:
        intent = replace(intent, account=_usual_account(features, settings))
    if rows or intent.array is not None:
        _check_requeue(intent, site, features)
    if draft.interactive and (intent.array or intent.after or intent.after_any):
        raise UsageError(
            "an interactive job is one job that starts when you wait for it", where="--interactive"
        )
    if "{task}" in (intent.output or "") and intent.array is None:
        raise UsageError("{task} is for arrays", where="output", hint="leave it out")
    return Job(
        name=draft.name,
        argv=argv,
        intent=intent,
        allocation=allocate(intent, site, interactive=draft.interactive),
        image=draft.image,
        rows=rows,
        table=draft.table,
        binds=tuple((str(source), target, writable) for source, target, writable in draft.binds),
        commit=draft.commit,
        checked=_checked(intent, site, settings),
        interactive=draft.interactive,
    )


def _check_requeue(intent: Intent, site: Site, features: Features) -> None:
    if intent.requeue and not features.requeues_tasks:
        rule = f"{features.title} lets no task of an array go back into the queue"
        refuse(site, "--requeue", rule, "envbuild submit --again ID runs what was stopped")


def check_name(name: str) -> None:
    """Raise UsageError for a job's name that a scheduler, shell or file system would misread."""
    if not re.fullmatch(NAME, name):
        raise UsageError(
            f"{name!r} is not a valid job name",
            where="--name",
            hint="letters, digits, dot, underscore and hyphen, at most 64, a letter or digit first",
        )


def _usual_account(features: Features, settings: Settings) -> str | None:
    """Return the account of the variables that a site's guide tells its users to set.

    envbuild hands none of them on.
    """
    values = (settings.environment.get(name) for name in features.accounts)
    return next(
        (value for value in values if value and re.fullmatch(r"[\w.+-]{1,99}", value)), None
    )


def _array_of(rows: tuple[Texts, ...], intent: Intent) -> Intent:
    tasks = Array(first=1, last=len(rows))
    given = intent.array
    if given is not None:
        tasks = replace(tasks, limit=given.limit)
        if given != tasks:
            hint = f"--array 1-{tasks.last}%AT-ONCE, or leave it out"
            raise UsageError(
                f"the table gives the tasks 1-{tasks.last}", where="--array", hint=hint
            )
    return replace(intent, array=tasks)


def _checked(intent: Intent, site: Site, settings: Settings) -> Texts:
    """Return the receipts that must tell success, where a scheduler only knows of a job's end."""
    features = features_of(site)
    if not intent.after or (features.tests_success and features.tests_arrays):
        return ()
    if not features.queues:
        refuse(
            site,
            "--after",
            "nothing waits for another job here",
            "envbuild submit --wait … && envbuild submit …",
        )
    found: list[str] = []
    for job in intent.after:
        record = _predecessor(job, site, settings)
        if record is None or (features.tests_success and not record.tasks):
            continue
        found += [
            str(path.relative_to(settings.cwd)) for path in receipt_files(record, settings.cwd)
        ]
    return tuple(found)


def _predecessor(job: str, site: Site, settings: Settings) -> Record | None:
    """Return the record of a job to follow.

    None where it has none and the scheduler itself tests its success.  Raises UsageError where
    nobody can tell whether it succeeds.
    """
    features = features_of(site)
    try:
        return find_record(job, settings.cwd, site=site.name)
    except UsageError as error:
        if features.tests_success and "[" not in job:
            return None
        tested = "arrays for success" if features.tests_success else "for success"
        rule = (
            f"{features.title} cannot test {tested}, "
            f"and job {plain_id(job)} left no receipt in this folder"
        )
        raise UsageError(
            rule, where=f"site {site.name}, --after", hint=f"--after-any {job}"
        ) from error


def _visible_folders(site: Site, settings: Settings, binds: tuple[Bind, ...]) -> Paths:
    """Return the folders that the container sees at their own path, as far as is known here."""
    folders = []
    for text in site.shown_folders:
        is_variable = text.startswith("$")
        folders.append(settings.environment.get(text[1:], "") if is_variable else text)
    same = [source for source, target, _ in binds if str(source) == target]
    return (settings.cwd, *(Path(text) for text in folders if text), *same)


def check_visible(job: Job, site: Site, settings: Settings, binds: tuple[Bind, ...]) -> Texts:
    """Test every task's inputs; return warnings about links of the project that lead out of it."""
    # each word once: the rows of a table share most of theirs
    words = tuple(dict.fromkeys(itertools.chain(*(job.rows or (job.argv,)))))
    check_stage(job.intent.stage, settings.cwd)
    shown = (
        *_visible_folders(site, settings, binds),
        *(settings.cwd / name for name in job.intent.stage),
    )
    links = check_inputs(words, job.intent.inputs, settings.cwd, shown)
    return tuple(
        f"{item.named} leads to {item.real}, which the container does not see" for item in links
    )


def collect(names: Texts, given: Mapping[str, str], environment: Variables) -> dict[str, str]:
    """Return the values of variables to hand on; raises UsageError naming one that is not set."""
    found = dict(given)
    for name in names:
        if name in found:
            continue
        if name not in environment:
            raise UsageError(
                "a variable to hand on is not set here",
                where=name,
                hint=f"export {name}=…, or --env-file FILE",
            )
        found[name] = environment[name]
    return found


def read_env_file(path: Path) -> dict[str, str]:
    """Read lines KEY=VALUE; raises UsageError for other lines and a file that others can read."""
    try:
        mode, text = path.stat().st_mode, read_whole(path, TABLE).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=path) from error
    if mode & 0o077:
        raise UsageError("others can read it", where=path, hint=f"chmod 600 {path}")
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(r"(?:export\s+)?([A-Za-z_]\w*)=(.*)", line.strip())
        if match is None:
            raise UsageError("is not KEY=VALUE", where=f"{path}, line {number}")
        value = match[2]
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[match[1]] = value
    return found


def git_commit(context: Context) -> str:
    """Return the project's commit, "modified" where files differ, "none" without a repository.

    The folder may be a copy of a stranger's: nothing that its ``.git/config`` names is run.
    """
    settings = context.settings
    env = git_environment(settings.environment) | {"GIT_ALLOW_PROTOCOL": "none"}

    def ask(*arguments: str) -> Result:
        argv = ("git", "-c", "core.fsmonitor=false", *arguments)
        return context.runner(
            Command(argv=argv, cwd=settings.cwd, env=env, timeout=20), check=False
        )

    try:
        options = _without_filters(ask("config", "--show-scope", "-z", "--name-only", "--list"))
        status_result = ask(*options, *STATUS)
    except EnvbuildError:
        return "none"
    head = re.search(r"^# branch\.oid ([0-9a-f]+)$", status_result.stdout, flags=re.MULTILINE)
    if status_result.code or status_result.timed_out or head is None:
        return "none"
    changed = any(not line.startswith("#") for line in status_result.stdout.splitlines())
    return head[1] + (" (modified)" if changed else "")


def _without_filters(listed: Result) -> list[str]:
    """Return git's options that empty the filters of the repository's own settings.

    Raises HostError where git lists no settings, or one that no option can name.
    """
    words = listed.stdout.split("\0")
    own = [
        key
        for scope, key in zip(words[::2], words[1::2], strict=False)
        if scope not in ("system", "global")
    ]
    filters = [key for key in own if key.startswith("filter.")]
    if listed.code or any("=" in key for key in filters):
        raise HostError("git does not say which filters this repository has")
    options: list[str] = []
    for key in filters:
        options += ["-c", f"{key}="]
    return options
