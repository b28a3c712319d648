"""``envbuild export``: a lock in the form that another tool reads."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.lock import require_fresh_lock
from envbuild.app.source import find_named_source
from envbuild.build.fetch import wanted_files
from envbuild.build.image.metadata import write_sbom
from envbuild.cli.complete import complete_recipe
from envbuild.cli.def_ import definition_text, dockerfile_text
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.lock.export import pylock_text, requirements_text
from envbuild.lock.model import Lock
from envbuild.net.fetch import locate_files
from envbuild.net.index import index_url
from envbuild.net.redact import without_user
from envbuild.recipe.model import Recipe
from envbuild.store.atomic import write_text
from envbuild.store.units import count_noun

FORMATS = ("pylock", "requirements", "dockerfile", "def", "sbom")


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

    Addresses of files (pylock) and of extra indexes (requirements) are those of this machine's configuration, without
    credentials.
    """
    source = find_named_source(name, context)
    lock = require_fresh_lock(source)
    text = _export_text(form, source.recipe, lock, context)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_text(context.settings.cwd / output, text)


def _export_text(form: str, recipe: Recipe, lock: Lock, context: Context) -> str:
    if form == "sbom":
        return write_sbom(recipe.name, lock).decode() + "\n"
    if form in ("def", "dockerfile"):
        return (dockerfile_text if form == "dockerfile" else definition_text)(recipe, lock)
    trees = [
        f"{package.name} ({package.source})"
        for package in lock.python
        if package.source is not None
    ]
    if trees:
        raise UsageError(
            f"{', '.join(trees)}: a source tree is on no index, so {form} cannot name it",
            where=recipe.name,
        )
    return _pylock_text(lock, context) if form == "pylock" else _requirements_text(lock, context)


def _pylock_text(lock: Lock, context: Context) -> str:
    kept = {package.sha256 for package in lock.installed}
    wanted = [item for item in wanted_files(lock) if item.sha256 in kept]
    with context.report.stage(f"look up where {count_noun(len(wanted), 'file is', 'files are')}"):
        located = locate_files(wanted, settings=context.settings, runner=context.runner)
    return pylock_text(lock, located)


def _requirements_text(lock: Lock, context: Context) -> str:
    names = sorted({package.index for package in lock.installed if package.index})
    return requirements_text(
        lock,
        {name: without_user(index_url(context.settings, context.runner, name)) for name in names},
    )
