"""``--on SITE`` of ``check`` and ``make``: the same verb as a job; and ``--for SITE``: a site's facts as a target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from envbuild.context import Context
from envbuild.errors import CheckFailedError, HostError, UsageError
from envbuild.limits import UNREADABLE

if TYPE_CHECKING:
    from envbuild.check.model import Level, Report
    from envbuild.check.target import Target
    from envbuild.job.model import Intent, Job, Record
    from envbuild.job.site import Gpu, Site

CHECK_TIME = {"quick": "30m", "full": "1h", "soak": "4h"}
"""Walltime that a check asks for."""


def target_of_site(text: str, context: Context) -> Target:
    """Return what SITE[:PARTITION or GPU] says about its nodes; raises UsageError where its file knows nothing."""
    from envbuild.check.target import Target
    from envbuild.job.sites import load_site

    name, _, part = text.partition(":")
    site = load_site(name, context.settings)
    gpu = _gpu(site, part)
    if gpu is None and not site.host.driver and not site.host.glibc:
        hint = f"envbuild site probe --on {name} asks one of its nodes; or say it: --gpu, --driver, --glibc"
        raise UsageError("its file tells nothing about its nodes", where=f"site {name}", hint=hint)
    return Target(
        gpu=gpu.name if gpu else None,
        capability=gpu.capability if gpu else None,
        driver=site.host.driver or None,
        glibc=site.host.glibc or None,
    )


def _gpu(site: Site, part: str) -> Gpu | None:
    found = [
        row
        for row in site.gpu
        if not part or row.partition == part or part.lower() in row.name.lower()
    ]
    if part and not found:
        known = ", ".join(row.name for row in site.gpu) or "none"
        raise UsageError(f'no GPU of "{part}" is known; known: {known}', where=f"site {site.name}")
    if len(found) > 1:
        choices = ", ".join(
            f"{site.name}:{row.partition or row.name.split('-')[0].split()[-1]}" for row in found
        )
        raise UsageError("which GPU?", where=f"site {site.name}", hint=f"write one of: {choices}")
    return found[0] if found else None


def check_on(
    site_text: str,
    target: str | None,
    context: Context,
    *,
    level: Level,
    require_gpu: bool,
    account: str | None,
) -> Report:
    """Check an image by a job and return its report.

    A check of the same image that was submitted before and still runs, or ended unseen, is taken up again: a lost
    connection costs nothing.
    """
    from envbuild.app.site import find_site
    from envbuild.base.digests import known_digest
    from envbuild.cli.enter import find_image
    from envbuild.cli.submit import follow
    from envbuild.job.records import job_folder

    site = find_site(site_text, context)
    subject = f"{known_digest(find_image(target, context), context.store)} {level}"
    report_of = job_folder(context.settings.cwd)
    record = _unfinished(site, subject, context)
    if record is not None:
        context.report.say(f"job {record.id} checks this image already")
    else:
        words = ("check", *((target,) if target else ()), "--level", level, "--json")
        words += ("--require-gpu",) if require_gpu else ()
        flags = _flags(site_text, target, context, account=account, walltime=CHECK_TIME[level])
        record = _send(words, flags, site, context, purpose="check", subject=subject)
    path = report_of / f"{Path(record.script).stem}.report.json"
    follow(context, record, site)
    return _read_report(path, site, record)


def _unfinished(site: Site, subject: str, context: Context) -> Record | None:
    """Return a check of this image whose report nobody has read yet."""
    from envbuild.job.follow import status_of
    from envbuild.job.records import load_records, read_receipts

    settings = context.settings
    for record in reversed(load_records(settings.cwd)):
        if (record.site, record.purpose, record.subject) != (site.name, "check", subject):
            continue
        seen = (settings.cwd / record.script).with_suffix(".seen").exists()
        alive = status_of(record, site, settings, context.runner).phase in ("queued", "running")
        return record if not seen and (alive or read_receipts(record, settings.cwd)) else None
    return None


def _read_report(path: Path, site: Site, record: Record) -> Report:
    import msgspec

    from envbuild.check.model import Report

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


def make_on(
    site_text: str,
    names: tuple[str, ...],
    options: tuple[str, ...],
    context: Context,
    *,
    account: str | None,
) -> None:
    """Build images by a job, one task per recipe; what needs the network is done here where nodes have none.

    Raises CheckFailedError naming the recipes that failed.
    """
    from envbuild.app.site import find_site
    from envbuild.cli.submit import follow

    site = find_site(site_text, context)
    if site.build.network == "login":
        for name in names:
            _fetch(name, context)
    flags = _build_flags(site_text, site, account)
    words = tuple(("make", name, *options) for name in names)
    record = _send(
        words[0], flags, site, context, purpose="make", subject=" ".join(names), rows=words
    )
    follow(context, record, site)
    failed = _failed(record, names, context)
    if failed:
        raise CheckFailedError(
            f"not built: {', '.join(failed)}", where=f"site {site.name}", hint="see the logs above"
        )


def _failed(record: Record, names: tuple[str, ...], context: Context) -> list[str]:
    from envbuild.job.records import read_receipts

    codes = {
        receipt.task or "1": receipt.code for receipt in read_receipts(record, context.settings.cwd)
    }
    return [name for number, name in enumerate(names, 1) if codes.get(str(number), 1) != 0]


def _fetch(name: str, context: Context) -> None:
    """Lock where there is no lock, and bring every file of it into the store, which the nodes share."""
    from envbuild.app.lock import require_whole_lock, write_first_lock
    from envbuild.build.fetch import fetch_files
    from envbuild.recipe.find import find_recipe

    source = find_recipe(name, context.settings)
    has_lock = source.lock.is_file()
    lock = require_whole_lock(source, context) if has_lock else write_first_lock(source, context)
    with context.report.stage(f"fetch {name}"):
        fetch_files(lock, context)


def _flags(
    site_text: str, target: str | None, context: Context, *, account: str | None, walltime: str
) -> Intent:
    """Return the intent of a check: one GPU where the site has any, and the recipe's own account and partition."""
    from envbuild.app.current import recipe_of
    from envbuild.job.intent import Flags, make_intent
    from envbuild.job.sites import load_site
    from envbuild.recipe.model import Job as Wanted

    name, _, partition = site_text.partition(":")
    site = load_site(name, context.settings)
    source = recipe_of(target, context) if target else None
    own = source.recipe.job if source else Wanted()
    kind = f"{own.gpu_type}:" if own.gpu_type else ""
    has_gpu = site.resources.gpu != "none"
    return make_intent(
        Wanted(),
        Flags(
            gpus=f"{kind}1" if has_gpu else None,
            walltime=walltime,
            account=account or own.account,
            partition=partition or own.partition,
        ),
    )


def _build_flags(site_text: str, site: Site, account: str | None) -> Intent:
    from envbuild.job.intent import Flags, make_intent
    from envbuild.recipe.model import Job as Wanted

    build, partition = site.build, site_text.partition(":")[2]
    fixed = site.resources.memory == "none"
    return make_intent(
        Wanted(),
        Flags(
            gpus=str(build.gpus) if build.gpus else None,
            cpus=build.cpus,
            memory=None if fixed else build.memory,
            walltime=build.walltime,
            account=account,
            partition=partition or build.partition,
        ),
    )


def _send(
    words: tuple[str, ...],
    intent: Intent,
    site: Site,
    context: Context,
    *,
    purpose: str,
    subject: str,
    rows: tuple[tuple[str, ...], ...] = (),
) -> Record:
    """Submit this very envbuild on a node of the site."""
    from envbuild.job.compose import compose
    from envbuild.job.submit import new_key, submit

    key = new_key(purpose)
    commands = tuple(
        _on_node(row, key, context, report=purpose == "check") for row in (rows or (words,))
    )
    job: Job = compose(
        purpose,
        commands[0],
        intent,
        site,
        context.settings,
        image=None,
        rows=commands if len(commands) > 1 else (),
    )
    record = submit(
        job, site, context.settings, context.runner, key=key, purpose=purpose, subject=subject
    )
    context.report.say(f"submitted job {record.id} to {site.name}")
    return record


def _on_node(
    words: tuple[str, ...], key: str, context: Context, *, report: bool
) -> tuple[str, ...]:
    """Return the command that runs envbuild on a node with this store; a report goes into a file beside the script."""
    from envbuild.job.records import job_folder

    command = (
        "env",
        f"ENVBUILD_STORE={context.settings.store}",
        sys.executable,
        "-m",
        "envbuild",
        *words,
    )
    if not report:
        return command
    path = job_folder(context.settings.cwd) / f"{key}.report.json"
    text = '"$@" >"$0.part"; code=$?; mv -f "$0.part" "$0"; exit $code'
    return ("bash", "-c", text, str(path), *command)
