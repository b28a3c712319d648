"""``envbuild def``: the definition of a lock, as text that stands alone."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.query.export import export_lock
from envbuild.app.ready_lock import require_fresh_lock
from envbuild.app.source import find_named_source
from envbuild.cli.options import choice_option, path_option, recipe_argument
from envbuild.cli.output import write_document
from envbuild.context import Context


@click.command("def")
@recipe_argument
@choice_option("--format syntax", ("apptainer", "docker"), "The language of the text.", "apptainer")
@path_option("-o --output", "Write to this file.")
@click.pass_obj
def command(context: Context, *, name: str | None, syntax: str, output: Path | None) -> None:
    """Print the definition of a recipe's lock.

    It builds on another machine without envbuild: apptainer build --fakeroot NAME.sif NAME.def, or
    with --format docker: docker build --tag NAME --file Dockerfile .
    """
    source = find_named_source(name, context)
    lock = require_fresh_lock(source)
    form = "dockerfile" if syntax == "docker" else "def"
    text = export_lock(form, source.recipe, lock, context)
    write_document(text, output, context)
