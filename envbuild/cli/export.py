"""``envbuild export``: a lock in the form that another tool reads."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.export import export_lock
from envbuild.app.lock import require_fresh_lock
from envbuild.app.source import find_named_source
from envbuild.cli.complete import complete_recipe
from envbuild.context import Context
from envbuild.store.atomic import write_text

FORMATS = (
    *("pylock", "requirements", "dockerfile", "def", "sbom"),
    *("conda-lock", "conda-explicit", "pixi", "environment"),
)


@click.command("export")
@click.argument("name", required=False, shell_complete=complete_recipe)
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write it to a file instead.")
@click.pass_obj
def command(context: Context, *, name: str | None, form: str, output: Path | None) -> None:
    """Print a lock as another tool reads it.

    \b
    pylock        PEP 751: uv pip install -r pylock.toml, pip install -r pylock.toml
    requirements  pip install --require-hashes --no-deps -r requirements.txt
    dockerfile    docker build --file Dockerfile .
    def           apptainer build --fakeroot NAME.sif NAME.def
    sbom          CycloneDX 1.5, JSON
    conda-lock, conda-explicit, pixi, environment   conda packages: conda-lock.yml, @EXPLICIT, pixi.lock, environment.yml

    Addresses of files (pylock) and of extra indexes (requirements) are those of this machine's configuration, without
    credentials.
    """
    source = find_named_source(name, context)
    lock = require_fresh_lock(source)
    text = export_lock(form, source.recipe, lock, context)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(context.settings.cwd / output, text)
