"""``--on SITE`` of ``check`` and ``make``: the verb as a job; ``--for SITE``: it as a target."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from envbuild.app.image import find_image, find_recipe_of_image
from envbuild.app.lock import write_first_lock
from envbuild.app.ready_lock import require_whole_lock
from envbuild.app.site import find_job_site
from envbuild.base.digests import known_digest
from envbuild.build.fetch import fetch_files
from envbuild.check.model import Level, Report
from envbuild.check.target import Target
from envbuild.context import Context
from envbuild.errors import CheckFailedError, HostError, UsageError
from envbuild.job.compose import JobDraft, compose_job
from envbuild.job.model import Intent, Record
from envbuild.job.request.intent import Flags, make_intent
from envbuild.job.sites.find import load_site
from envbuild.job.sites.site import Gpu, Site
from envbuild.job.submit import new_key, submit
from envbuild.job.track.monitor import status_of
from envbuild.job.track.records import job_folder, load_own_records, read_receipts
from envbuild.limits import UNREADABLE
from envbuild.names import Texts
from envbuild.recipe.find import find_recipe
from envbuild.recipe.model import JobSection as Wanted
from envbuild.run import OWN_PATH

CHECK_TIME = {"quick": "30m", "full": "1h", "soak": "4h"}
"""Walltime that a check asks for."""
START = f"{OWN_PATH}; from envbuild.cli import run_cli; sys.exit(run_cli(sys.argv[1:]))"
"""This very envbuild: "-m" would take a folder of its name in the project."""


def target_of_site(text: str, context: Context) -> Target:
    """Return what SITE[:PARTITION or GPU] says about its nodes.

    Raises UsageError where its file knows nothing.
    """
    name, _, part = text.partition(":")
    site = load_site(name, context.settings)
    gpu, host = _gpu_of_site(site, part), site.host
    if gpu is None and not site.host.driver and not site.host.glibc:
        hint = f"envbuild site probe --on {name} asks one of its nodes; or use --gpu, --driver, --glibc"
        raise UsageError("its file has no facts about its nodes", where=f"site {name}", hint=hint)
    driver, glibc = host.driver or None, host.glibc or None
    if gpu is None:
        return Target(driver=driver, glibc=glibc)
    return Target(gpu=gpu.name, capability=gpu.capability, driver=driver, glibc=glibc)


def _gpu_of_site(site: Site, part: str) -> Gpu | None:
    found = [
        row
        for row in site.gpu
        if not part or row.partition == part or part.lower() in row.name.lower()
    ]
    if part and not found:
        known = ", ".join(row.name for row in site.gpu) or "none"
        raise UsageError(f'no GPU of "{part}" is known; known: {known}', where=f"site {site.name}")
    if len(found) > 1:
        parts = [row.partition or row.name.split("-")[0].split()[-1] for row in found]
        choices = ", ".join(f"{site.name}:{part}" for part in parts)
        raise UsageError("which GPU?", where=f"site {site.name}", hint=f"write one of: {choices}")
    return found[0] if found else None


def submit_check(
    site_text: str,
    target: str | None,
    context: Context,
    *,
    level: Level,
    require_gpu: bool,
    account: str | None,
) -> tuple[Record, Site]:
    """Submit the check of an image as a job.

    A check of the same image that was submitted before and still runs, or ended unseen, is taken up
    again: a lost connection costs nothing.
    """
    site = find_job_site(site_text, context)
    subject = f"{known_digest(find_image(target, context).path, context.store)} {level}"
    record = _unfinished(site, subject, context)
    if record is not None:
        context.report.say(f"job {record.id} checks this image already")
        return record, site
    words = ("check", *((target,) if target else ()), "--level", level, "--json")
    if require_gpu:
        words += ("--require-gpu",)
    intent = _check_intent(site_text, target, context, account=account, level=level)
    record = _submit_words((words,), intent, site, context, purpose="check", subject=subject)
    return record, site


def _unfinished(site: Site, subject: str, context: Context) -> Record | None:
    """Return a check of this image whose report nobody has read yet."""
    settings = context.settings
    for record in reversed(load_own_records(settings)):
        if (record.site, record.purpose, record.subject) != (site.name, "check", subject):
            continue
        if (settings.cwd / record.script).with_suffix(".seen").exists():
            return None
        alive = status_of(record, site, context).phase in ("queued", "running")
        return record if alive or read_receipts(record, settings.cwd) else None
    return None


def read_report(record: Record, site: Site, context: Context) -> Report:
    """Return the report that a check on a node has written; raises HostError without one."""
    path = job_folder(context.settings.cwd) / f"{Path(record.script).stem}.report.json"
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except (OSError, *UNREADABLE) as error:
        raise HostError(
            "the check on the node brought no report",
            where=f"site {site.name}, job {record.id}",
            hint="see its log above",
        ) from error
    path.with_name(path.name.replace(".report.json", ".seen")).touch()
    return report


def submit_builds(
    site_text: str,
    names: Texts,
    options: Texts,
    context: Context,
    *,
    account: str | None,
) -> tuple[Record, Site]:
    """Submit the builds of recipes as a job, one task each.

    What needs the network is done here where nodes have none.
    """
    site = find_job_site(site_text, context)
    if site.build.network == "login":
        for name in names:
            _fetch_files(name, context)
    build = site.build
    gpus = str(build.gpus) if build.gpus else None
    memory = build.memory if site.resources.memory != "none" else None
    flags = Flags(
        gpus=gpus,
        cpus=build.cpus,
        memory=memory,
        walltime=build.walltime,
        account=account,
        partition=site_text.partition(":")[2] or build.partition,
    )
    intent = make_intent(Wanted(), flags)
    words = tuple(("make", name, *options) for name in names)
    subject = " ".join(names)
    record = _submit_words(words, intent, site, context, purpose="make", subject=subject)
    return record, site


def require_built(record: Record, names: Texts, site: Site, context: Context) -> None:
    """Raise CheckFailedError naming the recipes whose task of a job failed."""
    receipts = read_receipts(record, context.settings.cwd)
    codes = {receipt.task or "1": receipt.code for receipt in receipts}
    failed = [name for number, name in enumerate(names, 1) if codes.get(str(number), 1) != 0]
    if failed:
        raise CheckFailedError(
            f"not built: {', '.join(failed)}", where=f"site {site.name}", hint="see the logs above"
        )


def _fetch_files(name: str, context: Context) -> None:
    """Lock where there is no lock, and fetch its files into the store, which the nodes share."""
    source = find_recipe(name, context.settings)
    has_lock = source.lock.is_file()
    lock = require_whole_lock(source, context) if has_lock else write_first_lock(source, context)
    with context.report.stage(f"fetch {name}"):
        fetch_files(lock, context)


def _check_intent(
    site_text: str, target: str | None, context: Context, *, account: str | None, level: Level
) -> Intent:
    """Return a check's intent: a GPU if the site has any, the recipe's account and partition."""
    name, _, partition = site_text.partition(":")
    site = load_site(name, context.settings)
    source = find_recipe_of_image(target, context) if target else None
    own = source.recipe.job if source else Wanted()
    gpus = None
    if site.resources.gpu != "none":
        gpus = f"{own.gpu_type}:1" if own.gpu_type else "1"
    flags = Flags(
        gpus=gpus,
        walltime=CHECK_TIME[level],
        account=account or own.account,
        partition=partition or own.partition,
    )
    return make_intent(Wanted(), flags)


def _submit_words(
    words: tuple[Texts, ...],
    intent: Intent,
    site: Site,
    context: Context,
    *,
    purpose: str,
    subject: str,
) -> Record:
    """Submit this very envbuild on a node of the site, one task for each row of words."""
    settings = context.settings
    key = new_key(purpose)
    commands = tuple(_on_node(row, key, context, report=purpose == "check") for row in words)
    rows = commands if len(commands) > 1 else ()
    draft = JobDraft(name=purpose, argv=commands[0], intent=intent, rows=rows)
    job = compose_job(draft, site, settings)
    record = submit(job, site, context, key=key, purpose=purpose, subject=subject)
    context.report.say(f"submitted job {record.id} to {site.name}")
    return record


def _on_node(words: Texts, key: str, context: Context, *, report: bool) -> Texts:
    """Return the command that runs envbuild on a node with this store.

    A report goes into a file beside the script.
    """
    command = (
        "env",
        f"ENVBUILD_STORE={context.settings.store}",
        sys.executable,
        "-c",
        START,
        *words,
    )
    if not report:
        return command
    path = job_folder(context.settings.cwd) / f"{key}.report.json"
    text = '"$@" >"$0.part"; code=$?; mv -f "$0.part" "$0"; exit $code'
    return ("bash", "-c", text, str(path), *command)
