"""``envbuild check``: the self-check of an image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuild.cli.complete import complete_image, complete_site
from envbuild.context import Context
from envbuild.errors import CheckFailedError, UsageError

if TYPE_CHECKING:
    from envbuild.check.model import Level, Report
    from envbuild.check.target import Target
    from envbuild.recipe.model import Source

COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow"}


@click.command("check")
@click.argument("target", metavar="[IMAGE|NAME]", required=False, shell_complete=complete_image)
@click.option(
    "--level",
    type=click.Choice(["quick", "full", "soak"]),
    default="quick",
    help="How deep to look.",
)
@click.option(
    "--require-gpu",
    is_flag=True,
    help="Fail where no GPU can be checked, instead of skipping that part.",
)
@click.option(
    "--gpu", metavar="CARD", help="Judge for this GPU (A100, or a compute capability: 8.0)."
)
@click.option("--driver", metavar="VERSION", help="Judge for this NVIDIA driver (450.80.02).")
@click.option("--glibc", metavar="VERSION", help="Judge for a node with this C library (2.28).")
@click.option(
    "--for",
    "site",
    metavar="SITE[:PARTITION]",
    shell_complete=complete_site,
    help="Judge for the nodes of a cluster (envbuild site list).",
)
@click.option(
    "--on",
    metavar="SITE[:PARTITION]",
    shell_complete=complete_site,
    help="Check on a GPU node of a cluster, by a job.",
)
@click.option("--account", help="With --on: account, project or group that pays.")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the report as a page too.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the report as JSON (envbuild schema --of report).",
)
@click.pass_obj
def command(
    context: Context,
    *,
    target: str | None,
    level: Level,
    require_gpu: bool,
    gpu: str | None,
    driver: str | None,
    glibc: str | None,
    site: str | None,
    on: str | None,
    account: str | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Check an image: the right framework, its files and libraries, imports, and the GPU where there is one.

    IMAGE is a .sif file; NAME is a recipe, whose image is ./NAME.sif.  With --gpu, --driver and --glibc it is judged
    for the kind of node where it will run, on any machine; --for takes these from a cluster's site file, and --on
    checks it there.
    """
    from envbuild.check.report import require_verdict, save, table, to_json
    from envbuild.check.target import read_target
    from envbuild.cli.remote import check_on, target_of_site

    node = (
        target_of_site(site, context) if site else read_target(gpu=gpu, driver=driver, glibc=glibc)
    )
    if on and node:
        raise UsageError(
            "--on looks at a node, --for, --gpu, --driver and --glibc tell of one: not both",
            where="--on",
        )
    report = (
        check_on(on, target, context, level=level, require_gpu=require_gpu, account=account)
        if on
        else _check(context, target, level=level, require_gpu=require_gpu, node=node)
    )
    save(report, context.store)
    if html is not None:
        _write_page(report, context.settings.cwd / html)
    if as_json:
        click.echo(to_json(report))
    else:
        click.echo(
            table(report, style=lambda text, outcome: click.style(text, fg=COLOURS[outcome]))
        )
    if report.verdict == "failed":
        names = ", ".join(
            finding.check for finding in report.findings if finding.outcome == "failed"
        )
        raise CheckFailedError(f"the check failed: {names}", where=report.image)
    require_verdict(report)


def _write_page(report: Report, target: Path) -> None:
    from envbuild.check.html_report import page
    from envbuild.store.atomic import write_bytes

    if not target.parent.is_dir():
        raise UsageError("there is no such folder", where=str(target.parent))
    write_bytes(target, page(report).encode())


def _check(
    context: Context, target: str | None, *, level: Level, require_gpu: bool, node: Target | None
) -> Report:
    from envbuild.base.digests import fresh_digest, known_digest
    from envbuild.build.image.verify import recorded_digest
    from envbuild.check.perform import check_image
    from envbuild.cli.enter import find_image
    from envbuild.lock.read import read_lock
    from envbuild.runtime import find_runtime

    image = find_image(target, context)
    source = _recipe(context, target)
    script = source.recipe.check.script if source else None
    recorded = recorded_digest(image, context.store)
    digest = known_digest if recorded is None else fresh_digest
    with context.report.stage(f"check {image.name}"):
        return check_image(
            image,
            recipe=source.recipe if source else None,
            script=source.path.parent / script if source and script else None,
            lock=read_lock(source.lock) if source and source.lock.is_file() else None,
            runtime=find_runtime(context.settings, context.runner),
            runner=context.runner,
            report=context.report,
            recorded=recorded,
            digest_of=lambda path: digest(path, context.store),
            level=level,
            require_gpu=require_gpu,
            environment=context.settings.environment,
            target=node,
            project=context.settings.cwd if source else None,
        )


def _recipe(context: Context, target: str | None) -> Source | None:
    """Return the recipe that a name stands for; an image on its own has none."""
    from envbuild.recipe.find import find_recipe, recipe_files

    if target is not None and ("/" in target or target.endswith(".sif")):
        return None
    if target is not None and target not in recipe_files(context.settings):
        context.report.say(f'there is no recipe called "{target}": the image is checked on its own')
        return None
    return find_recipe(target, context.settings)
