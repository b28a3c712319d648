"""Change what a recipe asks for: its text, its lock and its image in one go, all of them or none."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import structs
from packaging.utils import canonicalize_name

from envbuild.app.dev.layer import clear_layer, read_own_record, record_path
from envbuild.app.lock import LockRequest, update_lock
from envbuild.app.make import MakeRequest, MakeResult, make_locked, note_proof
from envbuild.app.ready_lock import write_own_lock
from envbuild.context import Context
from envbuild.errors import CheckFailedError, EnvbuildError, NoSolutionError, UsageError
from envbuild.lock.decide.conda import find_in_channels
from envbuild.lock.model import Lock
from envbuild.names import Pairs, Texts
from envbuild.project.names import likely_distribution
from envbuild.recipe.conda import spec_name
from envbuild.recipe.edit import ListSection, add_requirements, remove_requirements
from envbuild.recipe.find import (
    LOCKS,
    RECIPES,
    find_recipe,
    recipe_files,
    require_own_folder,
)
from envbuild.recipe.model import Recipe, Source
from envbuild.recipe.read import parse_recipe
from envbuild.recipe.trees import project_folder
from envbuild.recipe.undo import noting_before, rewrite_recipe
from envbuild.records import frozen_record, replace
from envbuild.store.atomic import write_bytes, write_text
from envbuild.store.hashing import hash_bytes
from envbuild.toml import quote


@frozen_record
class RecipeChange:
    """What is to be changed: requirements to add, names to remove.

    ``section`` is that of the recipe whose list changes; ``keep`` are names and versions to prefer;
    without ``make`` the image stays as it is.
    """

    section: ListSection = "python"
    add: Texts = ()
    remove: Texts = ()
    keep: Pairs = ()
    make: bool = True
    check: bool = True


@frozen_record
class ChangeResult:
    """What was changed: the recipe's file, the lock before and after, and what was made."""

    source: Source
    old: Lock | None
    lock: Lock
    made: MakeResult | None


def change_recipe(name: str | None, change: RecipeChange, context: Context) -> ChangeResult:
    """Change a recipe, lock it and make its image; each is written only when all have succeeded.

    Raises what resolving, building and checking raise; then recipe, lock and image are as before.
    """
    path = find_recipe(name, context.settings).path.resolve()
    of_file = hash_bytes(os.fsencode(path))
    with context.store.lock(f"recipe-{of_file}", context.report):
        source = find_recipe(name, context.settings)
        text = add_requirements(source.text, change.add, source.path, change.section)
        text = remove_requirements(text, change.remove, source.path, change.section)
        return _change_held(_own_source(source, context), text, change, context)


def _change_held(source: Source, text: str, change: RecipeChange, context: Context) -> ChangeResult:
    recipe = parse_recipe(text, source.path)
    after = structs.replace(source, recipe=recipe, text=text)
    try:
        old, lock = update_lock(after, LockRequest(keep=change.keep), context)
    except NoSolutionError as error:
        error.hint = _with_conda_hint(error.hint, recipe, change, context)
        raise
    _refuse_checked(after, lock, change.remove)
    with ExitStack() as stack:

        def write_both(last: Path) -> None:
            noted = noting_before(source.path, source.lock, last, context.store)
            stack.enter_context(noted)
            rewrite_recipe(source.path, text)
            write_own_lock(after, lock, context)

        try:
            made = _make_changed(after, lock, change, write_both, context)
        except CheckFailedError as error:
            error.hint = (
                "recipe, lock and image stay as they were; the findings above say what is wrong\n"
                f"to keep the change all the same: --no-make, then envbuild make {recipe.name} --no-check"
            )
            raise
    if made is not None:
        lock = note_proof(after, lock, made.report, context)
    return ChangeResult(source=after, old=old, lock=lock, made=made)


def _with_conda_hint(
    hint: str | None, recipe: Recipe, change: RecipeChange, context: Context
) -> str | None:
    """Return a hint, and beside it how to take from conda what the recipe's channels have."""
    if change.section == "conda" or not (change.add and recipe.conda.channels):
        return hint
    try:
        found = find_in_channels(recipe, [spec_name(line) for line in change.add], context)
    except EnvbuildError:
        return hint  # the first error is the one to tell
    if not found:
        return hint
    names = " ".join(found)
    way = f"take it from the recipe's conda channels: envbuild add --conda {recipe.name} {names}"
    return f"{hint}\nor {way}" if hint else way


def _refuse_checked(source: Source, lock: Lock, removed: Texts) -> None:
    """Raise UsageError for a removed package that [check] imports names and nothing else brings."""
    there = {package.name for package in lock.installed}
    there |= {package.name for package in lock.conda}
    gone = {canonicalize_name(name) for name in removed} - there
    for module in source.recipe.check.imports:
        name = likely_distribution(module)
        if name in gone:
            raise UsageError(
                f'[check] imports names "{module}", which would not be in the image any more',
                where=source.path.name,
                hint=f'take "{module}" out of [check] imports, then: envbuild remove NAME {name}',
            )


def _make_changed(
    source: Source,
    lock: Lock,
    change: RecipeChange,
    write_both: Callable[[Path], None],
    context: Context,
) -> MakeResult | None:
    """Make the image; recipe and lock are written just before it gets its name.

    ``write_both`` gets the file that changes last.
    """
    made = None
    if change.make:
        image = context.settings.cwd / f"{source.recipe.name}.sif"
        request = MakeRequest(check=change.check, before_naming=lambda: write_both(image))
        made = make_locked(source, lock, request, context)
    if made is None or not made.changed:
        write_both(source.lock)  # the image stays: it may be that of the new lock already
    return made


def _own_source(source: Source, context: Context) -> Source:
    """Return a recipe of the user's own: one that envbuild ships is copied into the project first."""
    if not source.shipped:
        return source
    folder = context.settings.cwd
    target = folder / RECIPES / source.path.name
    if source.path.resolve() == target.resolve():
        return source
    require_own_folder(target, context.settings)
    script = source.recipe.check.script
    if script is not None:
        _copy_file(source.path.parent / script, target.parent / script)
    if source.lock.is_file():
        _copy_file(source.lock, folder / LOCKS / source.lock.name)
    _copy_file(source.path, target)
    context.report.say(f"the recipe is yours now: {RECIPES}/{target.name}")
    return find_recipe(source.recipe.name, context.settings)


def _copy_file(source: Path, target: Path) -> None:
    if not target.exists():
        write_bytes(target, source.read_bytes())


def promote_layer(name: str, change: RecipeChange, context: Context) -> ChangeResult:
    """Write what a development layer holds into recipe and lock, make the image, drop the layer.

    The versions that were tried are taken. Raises UsageError where there is no layer, and where a
    project lies outside of the recipe's folder, which no lock can hold.
    """
    folder = context.settings.cwd
    record = read_own_record(record_path(folder, name), context.store)
    if record is None:
        hint = f"envbuild add --dev {name} PKG"
        raise UsageError("there is no development layer", where=name, hint=hint)
    new = None
    if record.over and name not in recipe_files(context.settings):
        new = folder / RECIPES / f"{name}.toml"
        write_text(new, _recipe_over(name, record.over))
    try:
        source = find_recipe(name, context.settings)
        lines = [_tree_line(Path(one.folder), source) for one in record.editable]
        versions = tuple((one.name, one.version) for one in record.lock.installed)
        wanted = replace(change, add=(*record.packages, *lines), keep=versions)
        result = change_recipe(name, wanted, context)
    except BaseException:
        if new is not None:
            new.unlink(missing_ok=True)
        raise
    if change.make:
        clear_layer(folder, name, context.store)
    return result


def _recipe_over(name: str, image: str) -> str:
    """Return the first text of a recipe whose base is an image elsewhere."""
    return f'[recipe]\nname = "{name}"\n\n[base]\nimage = {quote(image)}\n\n[python]\ndependencies = []\n'


def _tree_line(folder: Path, source: Source) -> str:
    """Return the requirement of a project in its folder."""
    project = project_folder(source.path)
    if not folder.is_relative_to(project):
        raise UsageError(
            f"only what lies in {project} can be locked, and this project does not",
            where=folder,
            hint="move it there, or name its repository: PKG @ git+https://HOST/PATH@COMMIT",
        )
    relative = folder.relative_to(project).as_posix()
    return "." if relative == "." else f"./{relative}"
