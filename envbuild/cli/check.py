"""``envbuild check``: the self-check of an image."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.check import CheckRequest, check_named, failed_checks
from envbuild.app.job.remote import read_report, submit_check, target_of_site
from envbuild.app.source import require_place
from envbuild.check.model import Level, Outcome
from envbuild.check.reports.html_report import format_page
from envbuild.check.reports.report import (
    WIDTH,
    format_report,
    require_verdict,
    save_report,
    to_json,
)
from envbuild.check.target import read_target
from envbuild.cli.complete import complete_image
from envbuild.cli.follow import follow_job
from envbuild.cli.options import choice_option, flag, path_option, site_option, value_option
from envbuild.cli.output import print_text, terminal_width
from envbuild.cli.terminal import short_path
from envbuild.context import Context
from envbuild.errors import CheckFailedError, UsageError
from envbuild.store.atomic import write_bytes

COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow"}


@click.command("check")
@click.argument("target", metavar="[IMAGE|NAME]", required=False, shell_complete=complete_image)
@choice_option("--level", ("quick", "full", "soak"), "How much to check (default: quick).", "quick")
@flag("--require-gpu", "Fail if no GPU can be checked; without it, those checks are skipped.")
@value_option("--gpu", "CARD", "Judge for this GPU (A100, or a compute capability: 8.0).")
@value_option("--driver", "VERSION", "Judge for this NVIDIA driver (450.80.02).")
@value_option("--glibc", "VERSION", "Judge for a node with this C library (2.28).")
@site_option("--for site", "Judge for the nodes of a cluster (envbuild site list).")
@site_option("--on", "Check in a job on a GPU node of a cluster.")
@click.option("--account", help="With --on: the account, project or group that pays.")
@path_option("--html", "Also write the report as a web page.", metavar="FILE")
@flag("--json as_json", "Print the report as JSON (envbuild schema --of report).")
@click.pass_obj
def command(
    context: Context,
    /,
    *,
    target: str | None,
    level: Level,
    require_gpu: bool,
    site: str | None,
    on: str | None,
    account: str | None,
    html: Path | None,
    as_json: bool,
    **kind_of_node: str | None,
) -> None:
    """Check an image: the right framework, its files and libraries, imports, and the GPU where there is one.

    IMAGE is a .sif file; NAME is a recipe, whose image is ./NAME.sif.  --gpu, --driver and --glibc
    judge the image for the nodes where it will run, which this machine need not be. --for takes
    these values from a cluster's site file. --on runs the check in a job on the cluster.
    """
    node = read_target(**kind_of_node)
    if site is not None:
        node = target_of_site(site, context)
    if on is not None and node is not None:
        raise UsageError(
            "--on checks on a node; --for, --gpu, --driver and --glibc describe one: use either",
            where="--on",
        )
    if on is None:
        request = CheckRequest(level=level, require_gpu=require_gpu, node=node)
        report = check_named(target, request, context)
    else:
        record, where = submit_check(
            on, target, context, level=level, require_gpu=require_gpu, account=account
        )
        follow_job(context, record, where)
        report = read_report(record, where, context)
        save_report(report, context.store)
    if html is not None:
        page = context.settings.cwd / html
        require_place(page)
        write_bytes(page, format_page(report).encode())
    if as_json:
        print_text(to_json(report))
    else:
        columns = min(WIDTH, terminal_width() or WIDTH)
        print_text(short_path(format_report(report, style=_colour_text, columns=columns)))
    if report.verdict == "failed":
        raise CheckFailedError(f"the check failed: {failed_checks(report)}", where=report.image)
    require_verdict(report)


def _colour_text(text: str, outcome: Outcome) -> str:
    return click.style(text, fg=COLOURS[outcome])
