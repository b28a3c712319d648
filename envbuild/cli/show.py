"""``envbuild show``: one recipe at a glance, or what its build runs as root."""

from __future__ import annotations

import click
import msgspec

from envbuild.app.query.root_script import script_text
from envbuild.app.ready_lock import require_lock
from envbuild.app.source import find_named_source
from envbuild.cli.complete import complete_recipe
from envbuild.cli.list_ import recipe_row
from envbuild.cli.options import flag
from envbuild.cli.output import json_option, print_json, print_text
from envbuild.cli.terminal import short_path
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.recipe.model import Source
from envbuild.shelf.sanitize import sanitize_text


@click.command("show")
@click.argument("name", metavar="[NAME|SHELF/NAME]", required=False, shell_complete=complete_recipe)
@flag("--script", "Print what runs as root in its build, and as you in its check.")
@json_option
@click.pass_obj
def command(context: Context, *, name: str | None, script: bool, as_json: bool) -> None:
    """Show a recipe: its base, direct requirements, lock and image; with --script what its build runs as root.

    A name on a shelf is verified first, and nothing of it is run.
    """
    source = find_named_source(name, context)
    if script and as_json:
        raise UsageError("--script prints text", where="--json", hint="leave one of them out")
    if script:
        text = script_text(source, require_lock(source), context.store)
        print_text("".join(f"{sanitize_text(line)}\n" for line in text.splitlines()), nl=False)
        return
    about = recipe_row(source.path, context)
    if as_json:
        print_json({**_recipe_facts(source), **msgspec.to_builtins(about)})
        return
    rows = _recipe_facts(source)
    rows["lock"] = f"{about.lock} ({source.lock})" if source.lock.is_file() else "none"
    rows |= {"image": about.image_text, "last-verdict": about.verdict_text}
    for key, value in rows.items():
        text = "; ".join(value) if isinstance(value, list) else value
        title = key.replace("-", " ")
        print_text(f"{title:<13}  {sanitize_text(short_path(text) or '-')}")


def _recipe_facts(source: Source) -> dict[str, str | list[str]]:
    """Return what the recipe itself says, by key."""
    recipe = source.recipe
    base = filter(None, (recipe.base.image or recipe.base.bootstrap, recipe.base.framework))
    return {
        "recipe": recipe.name,
        "summary": recipe.recipe.summary,
        "file": str(source.path),
        "base": " + ".join(base),
        "requirements": list(recipe.python.dependencies),
        "conda": list(recipe.conda.dependencies),
        "system": list(recipe.system.packages),
        "root-runs": list(recipe.system.post),
    }
