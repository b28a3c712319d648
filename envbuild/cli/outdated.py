"""``envbuild outdated``: what is newer on the index than in a lock."""

from __future__ import annotations

from collections.abc import Mapping

import click
from packaging.version import Version

from envbuild.app.lock import require_lock
from envbuild.base.model import BaseFacts
from envbuild.cli.complete import complete_recipe
from envbuild.cli.context import host_builds
from envbuild.cli.output import json_option, print_json, print_table
from envbuild.context import Context
from envbuild.lock.model import Lock
from envbuild.net.index import index_url
from envbuild.recipe.find import find_recipe
from envbuild.resolve.uv.newest import newest_releases
from envbuild.store.units import count_noun


@click.command("outdated")
@click.argument("name", required=False, shell_complete=complete_recipe)
@click.option("--all", "everything", is_flag=True, help="Also packages that only others require.")
@json_option
@host_builds
@click.pass_obj
def command(context: Context, *, name: str | None, everything: bool, as_json: bool) -> None:
    """List packages of the lock that have a newer release for its Python, and what holds them.

    Newer is not always better: a lock for an old base keeps to packages of the same time on
    purpose.
    """
    lock = require_lock(find_recipe(name, context.settings))
    rows = _outdated_rows(lock, _newest_releases(lock, context), everything=everything)
    if as_json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
        return
    if not rows:
        click.echo("nothing is outdated")
        return
    print_table(COLUMNS, rows)


COLUMNS = ("package", "locked", "newest", "why")


def _newest_releases(lock: Lock, context: Context) -> Mapping[str, str]:
    base = lock.base
    facts = BaseFacts(
        image=base.reference, python=base.python, machine=base.machine, glibc=base.glibc
    )
    packages = lock.installed
    named = dict.fromkeys(p.index for p in packages if p.index)
    with context.report.stage(
        f"ask for the newest releases of {count_noun(len(packages), 'package')}"
    ):
        return newest_releases(
            [p.name for p in packages],
            facts,
            indexes={
                **{name: index_url(context.settings, context.runner, name) for name in named},
                "default": index_url(context.settings, context.runner),
            },
            context=context,
        )


def _outdated_rows(
    lock: Lock, newest: Mapping[str, str], *, everything: bool
) -> list[tuple[str, str, str, str]]:
    reasons = {hold.name: hold.reason for hold in lock.held_back}
    default = (
        f"the lock is as of {lock.as_of}" if lock.as_of else "envbuild lock --upgrade may take it"
    )
    rows = []
    for package in lock.installed:
        release = newest.get(package.name)
        if release is None or Version(release) <= Version(package.version):
            continue
        if everything or "(direct)" in package.via:
            reason = reasons.get(package.name, _group_reason(package.group, default))
            rows.append((package.name, package.version, release, reason))
    return rows


def _group_reason(group: str, default: str) -> str:
    return "the recipe's framework decides" if group == "framework" else default
