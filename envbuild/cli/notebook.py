"""``envbuild notebook``: JupyterLab from the image, here or on a node of a cluster."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import click

from envbuild.app.job.prepare import JobRequest
from envbuild.app.wrap.notebook import (
    Notebook,
    plan_here,
    preview_notebook,
    submit_notebook,
    wait_for_server,
)
from envbuild.cli.job import RESOURCES, job_option, show_submission
from envbuild.cli.options import flag, image_argument
from envbuild.cli.output import json_option, print_json, print_text
from envbuild.context import Context
from envbuild.errors import INTERRUPTED, UsageError
from envbuild.job.model import Record
from envbuild.job.request.intent import Flags
from envbuild.job.sites.site import Site
from envbuild.job.track.records import plain_id
from envbuild.run import hand_over


@click.command("notebook")
@image_argument
@job_option("site", *RESOURCES, "variables", "binds", "packages")
@flag("--jump", "Listen on the node's own loopback address; the tunnel logs in on the node.")
@flag("--dry-run", "Print what would be run; write nothing.")
@json_option
@click.pass_obj
def command(
    context: Context, /, *, name: str | None, jump: bool, dry_run: bool, as_json: bool, **given: Any
) -> int:
    """Start JupyterLab from the image, in the current folder.

    Without --on, JupyterLab runs on this machine until Ctrl-C. With --on, it runs in a job on a
    node: envbuild waits until it has started, then prints the ssh command for your own machine and
    the address to open. To see both again, type the command again. JupyterLab ends with the job. If
    the image has no JupyterLab, envbuild adds it in a layer.
    """
    flags = Flags(**{key: given.pop(key) for key in RESOURCES})
    if as_json and dry_run:
        raise UsageError("--dry-run prints text", where="--json", hint="leave one of them out")
    request = JobRequest(image=name, flags=flags, **given)
    if request.site is None:
        if as_json or jump:
            raise UsageError("--json and --jump need --on SITE")
        line = plan_here(request, context, dry_run=dry_run)
        if dry_run:
            print_text(shlex.join(line.argv))
            return 0
        hand_over(line.argv, line.env or {})
    if dry_run:
        show_submission(*preview_notebook(request, context, through_node=jump))
        return 0
    record, site = submit_notebook(request, context, through_node=jump)
    try:
        found = wait_for_server(record, site, context)
    except KeyboardInterrupt:
        _say_how_to_go_on(record, site, context)
        return INTERRUPTED
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        _show(found, context)
    return 0


def _show(found: Notebook, context: Context) -> None:
    context.report.say(f"JupyterLab is up: job {found.job} on {found.node}")
    if found.tunnel is not None:
        print_text(f"on your own machine:  {found.tunnel}")
    print_text(f"in your browser:      {found.url}")
    print_text(f"it ends with the job; earlier: envbuild cancel {found.job}")


def _say_how_to_go_on(record: Record, site: Site, context: Context) -> None:
    number = plain_id(record.id)
    context.report.say(
        f"job {number} goes on; its address: envbuild notebook --on {site.name},"
        f" its end: envbuild cancel {number}"
    )
