"""``envbuild show``: one recipe at a glance, or what its build runs as root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from envbuild.cli.complete import complete_recipe
from envbuild.cli.context import Context

if TYPE_CHECKING:
    from envbuild.lock.model import Lock
    from envbuild.recipe.model import Source


@click.command("show")
@click.argument("name", metavar="[NAME|SHELF/NAME]", required=False, shell_complete=complete_recipe)
@click.option("--script", is_flag=True, help="Print what would run as root in its build, and as you in its check.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_obj
def command(context: Context, *, name: str | None, script: bool, as_json: bool) -> None:
    """Show a recipe: its base, direct requirements, lock and image; with --script what its build runs as root.

    A name on a shelf is verified first, and nothing of it is run.
    """
    from envbuild.cli.lock import require_lock
    from envbuild.cli.shelved import source_named
    from envbuild.shelf.shown import shown

    source = source_named(name, context)
    if script:
        text = script_text(source, require_lock(source))
        click.echo("".join(f"{shown(line)}\n" for line in text.splitlines()), nl=False)
        return
    rows = _rows(source, context)
    if as_json:
        click.echo(json.dumps({key.replace(" ", "-"): value for key, value in rows}, indent=1))
        return
    for key, value in rows:
        text = "; ".join(value) if isinstance(value, list) else value
        click.echo(f"{key:<13}  {shown(text or '-')}")


def _rows(source: Source, context: Context) -> list[tuple[str, str | list[str]]]:
    from envbuild.cli.listing import recipe_row

    recipe = source.recipe
    about = recipe_row(source.path, context)
    return [
        ("recipe", recipe.name),
        ("summary", recipe.recipe.summary),
        ("file", str(source.path)),
        ("base", " + ".join(filter(None, (recipe.base.image or recipe.base.bootstrap, recipe.base.framework)))),
        ("requirements", list(recipe.python.dependencies)),
        ("system", list(recipe.system.packages)),
        ("root runs", list(recipe.system.post)),
        ("lock", f"{about['lock']} ({source.lock})" if source.lock.is_file() else "none"),
        ("image", about["image"]),
        ("last verdict", about["last verdict"]),
    ]


def script_text(source: Source, lock: Lock) -> str:
    """Return, as a shell script with remarks, what a build runs as root, and what its check runs as the user."""
    from envbuild.plan.definition import plan_definition

    recipe = source.recipe
    plan = plan_definition(recipe, lock)
    flat = f"runs none of it, but {_of_flat(lock, len(recipe.system.post))}"
    parts = [
        f"# What envbuild make {recipe.name} runs as root: root of a user namespace, which has your rights outside.",
        f"# --mode flat {flat}.",
        *_part("outside the image, in its root folder (%setup)", plan.setup),
        *_part("inside the image (%post)", plan.post),
    ]
    if recipe.check.script:
        text = (source.path.parent / recipe.check.script).read_text("utf-8").splitlines()
        parts += _part(f"its check runs {recipe.check.script} inside the sealed image, as you", tuple(text))
    return "\n".join(parts) + "\n"


def _part(title: str, lines: tuple[str, ...]) -> list[str]:
    return ["", f"# ---- {title} ----", *lines] if lines else []


def _of_flat(lock: Lock, post: int) -> str:
    debian = sum(package.group != "build" for package in lock.debian)
    sources = sum(package.is_sdist for package in lock.python)
    return (
        f"the maintainer scripts of {debian} Debian packages, the set-up programs of {sources} source packages and "
        f"{post} lines of [system] post"
    )
