"""Find recipes: by path, in ./recipes, in configured folders, among shipped ones."""

from __future__ import annotations

import difflib
import os
import shlex
from pathlib import Path

from envbuild.errors import UsageError
from envbuild.names import BY_PLATFORM, Paths
from envbuild.recipe.model import Source
from envbuild.recipe.read import read_recipe
from envbuild.recipe.undo import settle_change
from envbuild.settings import Settings
from envbuild.store.layout import open_store

LOCKS = "lockfiles"
RECIPES = "recipes"


def recipe_folders(settings: Settings) -> Paths:
    """Return the folders searched for recipes, in order, without those that do not exist."""
    candidates = (settings.cwd / RECIPES, *settings.recipe_folders, settings.shipped / RECIPES)
    seen: dict[Path, None] = {}
    for folder in candidates:
        if folder.is_dir():
            seen.setdefault(folder.resolve(), None)
    return tuple(seen)


def recipe_files(settings: Settings) -> dict[str, Path]:
    """Return every recipe by name; an earlier folder hides a later one."""
    found: dict[str, Path] = {}
    for folder in recipe_folders(settings):
        for path in _files_of(folder):
            found.setdefault(path.stem, path)
    return found


def _files_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.toml")) if not path.is_dir()]


def find_recipe(name: str | None, settings: Settings) -> Source:
    """Find and read one recipe by name or path; without a name, the only one in ./recipes.

    Raises UsageError: none found (the nearest names are told), several where no name was given, or
    a broken file.
    """
    path = _only_recipe(settings) if name is None else _find_named(name, settings)
    if path.is_file():  # else reading it says what it is
        settle_change(path, open_store(settings))
    recipe, text = read_recipe(path)
    shipped = path.resolve().is_relative_to((settings.shipped / RECIPES).resolve())
    lock = lock_path(path, recipe.base.platform, settings)
    return Source(recipe=recipe, path=path, text=text, lock=lock, shipped=shipped)


def require_own_folder(path: Path, settings: Settings, hint: str | None = None) -> None:
    """Raise UsageError where a link of the project leads a new file into a hidden folder elsewhere.

    A copied project may bring such links: whatever is in ~/.bashrc.d is code of the user.
    """
    if not path.is_relative_to(settings.cwd):
        return  # a place that the user has named
    real = Path(os.path.realpath(path))
    is_inside = real.is_relative_to(settings.cwd.resolve())
    if not is_inside and any(part.startswith(".") for part in real.parts):
        what = "is a link that leads into a hidden folder outside of the project"
        where = path.parent.relative_to(settings.cwd)
        raise UsageError(what, where=where, hint=hint or "remove the link, and make a folder there")


def lock_path(path: Path, platform: str, settings: Settings) -> Path:
    """Return where a recipe's lock is: ./lockfiles first, else beside ``recipes``."""
    here = settings.cwd / LOCKS / f"{path.stem}{BY_PLATFORM[platform].lock_suffix}"
    beside = path.resolve().parent.parent / LOCKS / here.name
    if here.exists() or path.resolve().parent.name != RECIPES:
        return here
    return beside if beside.exists() else here


def _only_recipe(settings: Settings) -> Path:
    local = _files_of(settings.cwd / RECIPES)
    if len(local) == 1:
        return local[0]
    if local:
        names = ", ".join(path.stem for path in local)
        raise UsageError(f"which recipe? ./recipes holds several: {names}", hint="name one of them")
    names = ", ".join(recipe_files(settings))
    hint = f"name one of the shipped recipes: {names}\n" if names else ""
    hint += _folder_above(settings) or "for a project of your own, in its folder: envbuild init"
    raise UsageError("there is no recipe in ./recipes", hint=hint)


def _folder_above(settings: Settings) -> str:
    """Return how to go to the nearest folder above that has recipes; nothing where none has."""
    up = ""
    for folder in settings.cwd.parents:
        up += "../"
        names = ", ".join(path.stem for path in _files_of(folder / RECIPES))
        if names:
            return f"{up}{RECIPES} holds {names}. Go there first: cd {up}"
    return ""


def _find_named(name: str, settings: Settings) -> Path:
    if name.endswith(".toml") or "/" in name:
        path = settings.cwd / name
        if path.is_file():
            return path
        raise _not_at_path(name, settings)
    known = recipe_files(settings)
    if name in known:
        return known[name]
    path = settings.cwd / name
    hint = draft_hint(name) if name.endswith(".def") else _suggest_name(name, settings)
    if not os.path.exists(path):  # noqa: PTH110 - Path refuses long names
        raise UsageError(f'there is no recipe called "{name}"', hint=hint)
    kind = "folder" if path.is_dir() else "file"
    if not name.endswith((".def", ".sif")):
        hint = draft_hint(name)
    if not name.endswith(".def"):
        hint = _own_recipes(settings) or hint
    raise UsageError(f'"{name}" is a {kind}, not a recipe', hint=hint)


def _not_at_path(name: str, settings: Settings) -> UsageError:
    if (settings.cwd / name).is_dir():
        hint = _own_recipes(settings) or draft_hint(name)
        return UsageError("this is a folder, not a recipe", where=name, hint=hint)
    hint = f'an image is a base of a recipe: write image = "{name}" under its [base]'
    if "://" not in name:
        hint = _suggest_name(Path(name).stem, settings)
    return UsageError("there is no such recipe file", where=name, hint=hint)


def _own_recipes(settings: Settings) -> str:
    """Return the names of the project's own recipes; nothing where it has none."""
    names = ", ".join(path.stem for path in _files_of(settings.cwd / RECIPES))
    return f"the recipes of this project: {names}" if names else ""


def draft_hint(source: str) -> str:
    """Return how a recipe is made from a definition, another file or a folder."""
    return f"to draft a recipe from it: envbuild init {shlex.quote(source)}"


def _suggest_name(name: str, settings: Settings) -> str:
    known = sorted(recipe_files(settings))
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    searched = ", ".join(str(folder) for folder in recipe_folders(settings)) or "./recipes"
    hint = f"known: {', '.join(known) or 'none'} (searched {searched})"
    above = "" if _own_recipes(settings) else _folder_above(settings)
    return f"{hint}\n{above}" if above else hint
