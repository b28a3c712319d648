"""``envbuild add``: one package more, in the recipe or in a layer over the image."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from envbuild.app.dev.add import ChangeResult, RecipeChange, change_recipe
from envbuild.app.dev.make import LayerContent, LayerResult, add_to_layer, find_place
from envbuild.app.lock import describe_lock
from envbuild.cli.complete import complete_image
from envbuild.cli.make import example_script
from envbuild.cli.options import flag, path_option
from envbuild.cli.output import print_json, print_text
from envbuild.cli.terminal import human_seconds, short_path
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.lock.digest import lock_digest
from envbuild.names import Texts
from envbuild.recipe.edit import ListSection, requirement_name
from envbuild.recipe.find import find_recipe, recipe_files
from envbuild.store.layout import DEV_RECORD
from envbuild.store.units import human_bytes


@click.command("add")
@click.argument("name", metavar="NAME|PKG", required=False, shell_complete=complete_image)
@click.argument("packages", metavar="[PKG]…", nargs=-1)
@flag("--dev", "Add to a small layer over the image, to try it; the recipe stays the same.")
@flag("--conda", "The packages come from the recipe's conda channels.")
@flag("--no-make", "Change recipe and lock only.")
@click.option(
    "-e",
    "editable",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --dev: import your own package from its folder.",
)
@path_option(
    "--over",
    "With --dev: an image of another folder; NAME is a new name for it here.",
    metavar="IMAGE",
)
@flag("--json as_json", "Print what was changed as JSON.")
@click.pass_obj
def command(context: Context, /, *, name: str | None, packages: Texts, **options: Any) -> None:
    """Add packages to a recipe, its lock and its image; with --dev to a layer over the image.

    \b
    envbuild add keras-bert polars            into recipe, lock and image
    envbuild add --dev keras-bert polars      to try it, in seconds
    envbuild add --conda cell "samtools >=1.20"   into [conda] dependencies
    envbuild add --dev keras-bert -e ../lib   your own package, from its folder
    """
    editable, over, as_json = options["editable"], options["over"], options["as_json"]
    section: ListSection = "conda" if options["conda"] else "python"
    if name is None and (over or not options["dev"]):
        click_context = click.get_current_context()
        raise click.MissingParameter(ctx=click_context, param=click_context.command.params[0])
    verb = "add --dev" if options["dev"] else "add"
    if name is None or not over:  # an image elsewhere gets a name that nothing here has yet
        name, packages = recipe_and_packages(name, packages, verb, context)
    if options["dev"]:
        if options["conda"]:
            what = "a layer over the image contains packages of Python's index, none of conda"
            raise UsageError(what, where="--dev", hint=f"envbuild add --conda {name} PKG")
        content = LayerContent(packages=packages, editable=editable)
        place = find_place(name, over, context)
        layer = add_to_layer(place, content, context)
        if as_json:
            print_json(layer.record)
        else:
            _print_layer(name, layer)
        return
    if editable or over:
        hint = f"a project in the recipe's folder is a package too: envbuild add {name} ./lib"
        raise UsageError("-e and --over need --dev", where="add", hint=hint)
    require_packages(name, packages)
    change = RecipeChange(section=section, add=packages, make=not options["no_make"])
    print_change(change_recipe(name, change, context), as_json=as_json)


def recipe_and_packages(
    name: str | None, packages: Texts, verb: str, context: Context
) -> tuple[str, Texts]:
    """Return a recipe and packages: without a word, or with one that is no recipe, the only recipe's.

    Of several words the first is always the recipe: a wrong one must not become a package.
    Raises UsageError where no recipe is there, or several are, or the first word is none.
    """
    folder, known = context.settings.cwd, recipe_files(context.settings)
    if name is None:
        return find_recipe(None, context.settings).path.stem, ()
    # of an image elsewhere only its layer is here
    is_path = "/" in name or name.endswith((".toml", ".sif"))
    here = (folder / f"{name}{ending}" for ending in (".sif", DEV_RECORD))
    if is_path or name in known or any(path.exists() for path in here):
        return name, packages
    if not packages:
        return find_recipe(None, context.settings).path.stem, (name,)
    try:
        return find_recipe(name, context.settings).path.stem, packages
    except UsageError as error:
        words = shlex.join((name, *packages))
        error.hint = f"{error.hint}\nthe recipe comes first: envbuild {verb} NAME {words}"
        raise


def require_packages(name: str, packages: Texts, *, more: str = "") -> None:
    """Raise UsageError where no package is named; ``more`` follows in its hint."""
    if not packages:
        raise UsageError("which package?", where=name, hint=f"name it behind {name}{more}")


def print_change(result: ChangeResult, *, as_json: bool) -> None:
    """Print what became of recipe, lock and image."""
    source, name = result.source, result.source.recipe.name
    if as_json:
        image = result.made.spec.target if result.made else None
        lock = {"lock": lock_digest(result.lock), "direct": result.lock.direct}
        print_json({"recipe": str(source.path), **lock, "image": image and str(image)})
        return
    print_text(short_path(str(source.path)))
    for line in describe_lock(result.old, result.lock, source.lock):
        print_text(short_path(line))
    if result.made is None:
        print_text(f"the image is as it was: envbuild make {name}")
        return
    target = result.made.spec.target
    size, seconds = human_bytes(target.stat().st_size), human_seconds(result.made.seconds)
    print_text(f"{target.name}: {size} in {seconds}")
    script = example_script(target.parent)
    print_text(f"  run      envbuild exec {name} -- python {script}")


def _print_layer(name: str, result: LayerResult) -> None:
    record, lock = result.record, result.record.lock
    size, seconds = human_bytes(record.size), human_seconds(result.seconds)
    print_text(f"\n{record.layer}: {size} in {seconds}")
    brought = [f"{package.name} {package.version}" for package in lock.installed]
    print_text(f"  holds    {', '.join(brought) or 'no package'}")
    asked = {requirement_name(line) for line in record.packages}
    provided = [package for package in lock.provided if package.name in asked]
    if provided:
        there = ", ".join(f"{package.name} {package.version}" for package in provided)
        print_text(f"  there    {there}: in the image already")
    for project in record.editable:
        print_text(f"  from     {project.folder}: {project.name}")
    for move in lock.moved:
        print_text(f"  instead  {move.name} {move.after} of {move.before}: {move.reason}")
    script = example_script(result.path.parent)
    print_text(f"  run      envbuild exec {name} -- python {script}")
    print_text(f"  keep     envbuild promote {name}")
    print_text(f"  drop     envbuild dev {name} --clear")
