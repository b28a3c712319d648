"""``envbuild init``: from a project's own files to a recipe."""

from __future__ import annotations

import os
import re
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from envbuild.app.job.remote import target_of_site
from envbuild.cli.options import flag, site_option
from envbuild.cli.output import json_option, print_json, print_text
from envbuild.cli.terminal import short_path
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.limits import TEXT
from envbuild.names import NAME
from envbuild.project.conda.locked_lists import is_conda_list
from envbuild.project.conda.recipe import draft_conda_recipe, find_conda_file, find_conda_only
from envbuild.project.draft.draft import draft_recipe, without_proposals
from envbuild.project.draft.package_index import Offline, Online
from envbuild.project.gather import gather_findings
from envbuild.project.model import PackageIndex, Proposal, RecipeDraft
from envbuild.recipe.find import require_own_folder
from envbuild.recipe.model import JobSection, TargetSection
from envbuild.recipe.write import write_recipe
from envbuild.records import replace
from envbuild.settings import Settings
from envbuild.store.atomic import write_text
from envbuild.store.units import as_printable, count_noun

IGNORED = ("*.sif", "*.dev.json", "*.dev-*.sqfs", "*.sandbox/", "/logs/")
"""What envbuild leaves in a project's folder that no repository should hold."""


@click.command("init")
@click.argument("place", required=False, default=".", metavar="[DIR|FILE]")
@click.option("--name", help="The name of the recipe (default: the folder's name).")
@flag("--yes -y", "Accept all proposals without asking.")
@flag("--force", "Replace the recipe if there is one already.")
@flag("--offline", "Do not ask the package index.")
@site_option(
    "--for --site site", "Choose a base that runs with the driver and on the GPUs of a cluster."
)
@click.option(
    "--conda/--no-conda", default=None, help="Use conda's packages, or never (default: as needed)."
)
@flag("--dry-run", "Print the recipe and write nothing.")
@json_option
@click.pass_obj
def command(
    context: Context,
    *,
    place: str,
    name: str | None,
    yes: bool,
    force: bool,
    offline: bool,
    site: str | None,
    conda: bool | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write a recipe from a project's own files.

    It reads pyproject.toml, requirements*.txt, setup.cfg, setup.py (it is not run), Pipfile,
    environment.yml, a Dockerfile or Apptainer definition, and the imports of code and notebooks.
    It writes ./recipes/NAME.toml.
    """
    _check_name(name)
    folder = context.settings.cwd / place
    _refuse_home(folder, context.settings)
    asks = _is_terminal() and not (yes or dry_run or as_json)
    kept = _draft_as_conda(folder, site, conda=conda)
    if kept is not None:
        made = kept
        target = context.settings.cwd / "recipes" / f"{name or made.recipe.name}.toml"
        if not dry_run:
            _may_write(target, force=force, asks=asks)
        _write_draft(made, target, context, dry_run=dry_run, as_json=as_json)
        return
    gathered = gather_findings(folder)
    target = context.settings.cwd / "recipes" / f"{name or gathered.name}.toml"
    if not dry_run:
        _may_write(target, force=force, asks=asks)
    driver, gpu = _site_node(site, context)
    made = draft_recipe(gathered, choose_index(context, offline=offline), driver=driver, gpu=gpu)
    refused = [proposal for proposal in made.proposals if asks and not _ask_about(proposal)]
    made = without_proposals(made, refused)
    if any(proposal.kind == "base" for proposal in refused):
        made = _ask_for_cpu(made)
    if site is not None:
        nodes = TargetSection(sites=(site,))
        made = replace(made, recipe=structs.replace(made.recipe, target=nodes))
    _write_draft(made, target, context, dry_run=dry_run, as_json=as_json)


def _draft_as_conda(place: Path, site: str | None, *, conda: bool | None) -> RecipeDraft | None:
    """Return the draft that keeps an environment as conda; None where others serve it."""
    if conda or (place.is_file() and is_conda_list(place)):
        return draft_conda_recipe(find_conda_file(place), site)
    if conda is False:
        return None
    findings = gather_findings(place)
    found = find_conda_only(findings.all_findings)
    if found is None:
        return None
    root = place if place.is_dir() else place.parent
    return draft_conda_recipe(root / found.file, site, found.conda_only)


def _write_draft(
    made: RecipeDraft, target: Path, context: Context, *, dry_run: bool, as_json: bool
) -> None:
    about = structs.replace(made.recipe.recipe, name=target.stem)
    recipe = structs.replace(made.recipe, recipe=about)
    head = tuple(
        line.replace(f"envbuild lock {made.recipe.name}", f"envbuild lock {target.stem}")
        for line in made.head
    )
    text = write_recipe(recipe, head=head, beside=made.beside, below=made.below)
    if as_json:
        print_json({**_draft_facts(made, target), "text": text})
    if dry_run:
        print_text("" if as_json else text, nl=False)
        return
    require_own_folder(target, context.settings)
    target.parent.mkdir(exist_ok=True)
    write_text(target, text)
    _print_summary(made, target)
    _ignore_images(context.settings.cwd)


def _draft_facts(made: RecipeDraft, target: Path) -> dict[str, Any]:
    """Return what a draft holds, for programs."""
    recipe = made.recipe
    return {
        "recipe": target.stem,
        "file": str(target),
        "base": recipe.base.image or recipe.base.bootstrap,
        "framework": recipe.base.framework,
        "requirements": recipe.python.dependencies,
        "conda": recipe.conda.dependencies,
        "system": recipe.system.packages,
        "sources": made.sources,
        "notes": [*made.head[2:], *chain.from_iterable(made.below.values())],
    }


def _site_node(site: str | None, context: Context) -> tuple[str | None, str | None]:
    """Return driver and compute capability of a site's nodes, as far as its file knows them."""
    if site is None:
        return None, None
    target = target_of_site(site, context)
    capability = target.capability
    return target.driver, f"{capability // 10}.{capability % 10}" if capability else None


def _ignore_images(project: Path) -> None:
    """Let git leave out images and logs, where the project is in a repository: images are large."""
    if not any((folder / ".git").exists() for folder in (project, *project.parents)):
        return
    path = project / ".gitignore"
    if path.is_symlink() or (path.exists() and (not path.is_file() or path.stat().st_size > TEXT)):
        print_text("  .gitignore is no plain file, or too large: nothing is added to it", err=True)
        return
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    missing = [line for line in IGNORED if line not in text.splitlines()]
    if missing:
        missing_end = "\n" if text and not text.endswith("\n") else ""
        with path.open("a", encoding="utf-8") as file:
            file.write(missing_end + "".join(f"{line}\n" for line in missing))
        print_text(f"  .gitignore: added {', '.join(missing)}", err=True)


def _is_terminal() -> bool:
    """Whether somebody is there to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _check_name(name: str | None) -> None:
    if name is not None and not re.fullmatch(NAME, name):
        raise UsageError(
            f"--name {name!r}: letters, digits, dot, underscore and hyphen; at most 64 characters"
        )


def _refuse_home(folder: Path, settings: Settings) -> None:
    """Raise UsageError for a home folder or /, whose folders are many projects."""
    names = {
        settings.home.resolve(): "your home folder",
        Path("/"): "the root of all folders",
    }
    name = names.get(Path(os.path.realpath(folder)))
    if name and not any(map(_is_own_file, folder.iterdir())):
        what = f"this is {name}, not the folder of one project"
        raise UsageError(what, where=folder, hint="cd to the project first, or: envbuild init DIR")


def _is_own_file(path: Path) -> bool:
    """Whether a file makes a home a project, as in some containers."""
    return path.suffix in (".py", ".toml", ".txt", ".yml")


def _may_write(target: Path, *, force: bool, asks: bool) -> None:
    """Ask before a recipe is replaced; where nobody can be asked, refuse."""
    if not target.exists():
        return
    if force:
        print_text(short_path(f"{target} is replaced"), err=True)
    elif not (
        asks and click.confirm(short_path(f"{target} is there already. Replace it?"), err=True)
    ):
        raise UsageError(
            "already exists, and was not changed",
            where=target,
            hint="envbuild init --force replaces it; --name writes another; --dry-run only shows the draft",
        )


def _ask_about(proposal: Proposal) -> bool:
    print_text(f"  {proposal.reason}", err=True)
    return click.confirm(proposal.question, default=True, err=True)


def _ask_for_cpu(made: RecipeDraft) -> RecipeDraft:
    """Ask whether an image without a GPU is meant, where the base with one was refused."""
    if made.recipe.job.gpus is None or not click.confirm(
        "Is this image for the CPU?", default=False, err=True
    ):
        return made
    recipe = structs.replace(
        made.recipe, base=structs.replace(made.recipe.base, cpu=True), job=JobSection()
    )
    return replace(made, recipe=recipe)


def choose_index(context: Context, *, offline: bool) -> PackageIndex:
    """Return what a draft asks the package index by, or what knows nothing of it."""
    return Offline() if offline else Online(context=context)


def _print_summary(made: RecipeDraft, target: Path) -> None:
    """Say what was taken, what is not certain, and what to do next."""
    recipe = made.recipe
    framework = f" with {recipe.base.framework}" if recipe.base.framework else ""
    base = recipe.base.image or f"{recipe.base.bootstrap}{framework}"
    count = len(recipe.python.dependencies) + len(recipe.conda.dependencies)
    direct = count_noun(count, "direct dependency", "direct dependencies")
    print_text(short_path(f"{target}: {direct} on {base}"), err=True)
    notes = list(chain.from_iterable(made.below.values()))
    for line in (*made.head[2:], *notes):
        print_text(f"  {as_printable(line)}", err=True)
    if any("nothing is known of outside of conda" in line for line in notes):
        print_text("  envbuild init --conda keeps all of them as conda packages", err=True)
    print_text(f"next: look it over, then: envbuild lock {target.stem}", err=True)
