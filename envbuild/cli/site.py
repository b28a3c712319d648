"""``envbuild site``: the clusters that jobs can go to, and how each says things."""

from __future__ import annotations

import re

import click

from envbuild.cli.complete import complete_site
from envbuild.cli.follow import follow_job
from envbuild.cli.group import CommandGroup
from envbuild.cli.options import flag
from envbuild.cli.output import json_option, print_json, print_rows, print_text
from envbuild.cli.terminal import short_path
from envbuild.context import Context
from envbuild.errors import CheckFailedError, UsageError
from envbuild.job.compose import JobDraft, compose_job
from envbuild.job.request.intent import Flags, make_intent
from envbuild.job.schedulers import SCHEDULERS
from envbuild.job.sites.believe import note_site, require_believed
from envbuild.job.sites.detect import PROBE, detect, probed_sections, with_facts
from envbuild.job.sites.detect import site_text as detected_site_text
from envbuild.job.sites.find import FOLDER, load_site, read_sites, site_files, site_text
from envbuild.job.submit import new_key, submit
from envbuild.job.track.records import log_files
from envbuild.recipe.model import JobSection as Wanted
from envbuild.store.atomic import write_text


@click.group("site", cls=CommandGroup)
def command() -> None:
    """List and show site files, or write one for this cluster."""


@command.command("list")
@json_option
@click.pass_obj
def list_command(context: Context, *, as_json: bool) -> None:
    """List the sites: your own, and those shipped."""
    rows = []
    files = site_files(context.settings)
    for name, site in read_sites(files, context).items():
        about, path = site.site, files[name]
        closed = f" (closed {about.retired})" if about.retired else ""
        where = short_path(str(path)) if path else "shipped"
        rows.append((name, about.scheduler, where, about.summary + closed))
    print_rows(("site", "scheduler", "where", "summary"), rows, as_json=as_json)


@command.command("show")
@click.argument("name", shell_complete=complete_site)
@json_option
@click.pass_obj
def show_command(context: Context, *, name: str, as_json: bool) -> None:
    """Print a site file: copy it to sites/NAME.toml to change it."""
    site = load_site(name, context.settings)
    if as_json:
        print_json(site)
        return
    print_text(site_text(name, context.settings), nl=False)


@command.command("init")
@click.argument("name")
@flag("--print only_print", "Print it instead of writing sites/NAME.toml.")
@click.option(
    "--scheduler",
    metavar="|".join(name for name, one in SCHEDULERS.items() if one.features.banner),
    help="The scheduler, if this machine has several.",
)
@json_option
@click.pass_obj
def init_command(
    context: Context, *, name: str, only_print: bool, scheduler: str | None, as_json: bool
) -> None:
    """Write sites/NAME.toml from what this machine's scheduler says about itself."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name):
        hint = "letters, digits, dot, underscore and hyphen"
        raise UsageError("is not a valid site name", where=name, hint=hint)
    path = context.settings.cwd / FOLDER / f"{name}.toml"
    if path.exists() and not only_print:
        hint = "remove it first, or choose another name"
        raise UsageError("is there already", where=path, hint=hint)
    found = detect(context, scheduler)
    text = detected_site_text(name, found, context)
    if only_print:
        print_text(text, nl=False)
        return
    write_text(path, text)
    note_site(name, context.settings)
    site = load_site(name, context.settings)
    if as_json:
        print_json({"file": str(path), "site": site})
    context.report.say(f"found {found.version}; wrote {path}")
    context.report.say("check the file: comments mark what only you can know, such as accounts")


@command.command("probe")
@click.option(
    "--on",
    "name",
    required=True,
    metavar="SITE",
    shell_complete=complete_site,
    help="The site; it must have a file of your own.",
)
@click.option("--gpus", default="1", help="Number of GPUs of the job.")
@click.option("--account", help="The account, project or group that pays.")
@click.option("--partition", help="Partition or queue.")
@click.pass_obj
def probe_command(
    context: Context, *, name: str, gpus: str, account: str | None, partition: str | None
) -> None:
    """Run a job of one minute, and write driver, C library and GPUs into the site file."""
    settings = context.settings
    path = site_files(settings).get(name)
    if path is None:
        hint = f"envbuild site show {name} > sites/{name}.toml"
        raise UsageError("its file is not yours to write to", where=name, hint=hint)
    site = load_site(name, settings)
    require_believed(site, settings)
    flags = Flags(gpus=gpus, walltime="1m", account=account, partition=partition)
    intent = make_intent(Wanted(), flags)
    job = compose_job(JobDraft(name="probe", argv=PROBE, intent=intent), site, settings)
    record = submit(job, site, context, key=new_key("probe"), purpose="probe", subject=name)
    follow_job(context, record, site)
    log_file = log_files(record, settings.cwd)[0]
    facts, found = probed_sections(log_file.read_text("utf-8", "replace"))
    if not facts:
        raise CheckFailedError("the probe printed no facts", where=log_file)
    write_text(path, with_facts(path.read_text("utf-8"), facts, found))
    if path.parent == settings.cwd / FOLDER:
        note_site(name, settings)
    context.report.say(f"wrote {', '.join(facts)} and {len(found)} kinds of GPU to {path}")
