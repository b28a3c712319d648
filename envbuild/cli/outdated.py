"""``envbuild outdated``: what is newer on the index than in a lock."""

from __future__ import annotations

import click

from envbuild.app.query.outdated import (
    find_newest,
    find_newest_conda,
    outdated_conda_rows,
    outdated_rows,
)
from envbuild.app.ready_lock import require_lock
from envbuild.cli.context import host_builds
from envbuild.cli.options import flag, recipe_argument
from envbuild.cli.output import json_option, print_rows
from envbuild.context import Context
from envbuild.recipe.find import find_recipe


@click.command("outdated")
@recipe_argument
@flag("--all everything", "Also list packages that only other packages require.")
@json_option
@host_builds
@click.pass_obj
def command(context: Context, *, name: str | None, everything: bool, as_json: bool) -> None:
    """List packages of the lock that have a newer release for its Python, and why.

    Newer is not always better: a lock for an old base keeps to packages of the same time on
    purpose.
    """
    lock = require_lock(find_recipe(name, context.settings))
    rows = outdated_rows(lock, find_newest(lock, context), everything=everything)
    rows += outdated_conda_rows(lock, find_newest_conda(lock, context), everything=everything)
    columns = ("package", "locked", "newest", "why")
    print_rows(columns, rows, as_json=as_json, none="nothing is outdated")
