"""``envbuild export``: a lock in the form that another tool reads."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.query.export import export_lock
from envbuild.app.ready_lock import require_fresh_lock
from envbuild.app.source import find_named_source
from envbuild.app.wrap.portal import PortalRequest, export_portal
from envbuild.cli.options import choice_option, path_option, recipe_argument, value_option
from envbuild.cli.output import print_text, write_document
from envbuild.context import Context
from envbuild.errors import UsageError

FORMATS = (
    *("pylock", "requirements", "dockerfile", "def", "sbom"),
    *("conda-lock", "conda-explicit", "pixi", "environment", "licenses"),
)
PORTALS = ("jupyterhub", "ondemand", "vscode")
"""Formats of an image, which are a folder."""


@click.command("export")
@recipe_argument
@choice_option("--format form", (*FORMATS, *PORTALS), "What to write.")
@path_option("-o --output", "Write to this file; the last three formats: into this folder.")
@value_option("--for site", "SITE", "The cluster of ondemand; its container runtime.")
@click.pass_obj
def command(
    context: Context, *, name: str | None, form: str, output: Path | None, site: str | None
) -> None:
    """Print a lock in the format of another tool, or files that start servers from an image.

    \b
    pylock        PEP 751: pip install -r pylock.toml, also with uv
    requirements  pip install --require-hashes --no-deps -r requirements.txt
    dockerfile    docker build --file Dockerfile .
    def           apptainer build --fakeroot NAME.sif NAME.def
    sbom          CycloneDX 1.5, JSON
    conda-lock, conda-explicit, pixi, environment
                  conda packages, for the tool of that name
    licenses      conda packages by channel and licence, with tabs

    \b
    jupyterhub    lines for JupyterHub's batchspawner, and their program
    ondemand      an interactive app of Open OnDemand, with its form
    vscode        lines for VS Code's Remote-SSH

    Addresses of files (pylock) and of extra indexes (requirements) are those of this machine's configuration, without
    credentials.
    """
    if form in PORTALS:
        request = PortalRequest(form=form, image=name, folder=output, site=site)
        print_text(export_portal(request, context), nl=False)
        return
    if site is not None:
        raise UsageError("--for goes with " + ", ".join(PORTALS), where=site)
    source = find_named_source(name, context)
    lock = require_fresh_lock(source)
    text = export_lock(form, source.recipe, lock, context)
    write_document(text, output, context)
