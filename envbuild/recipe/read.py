"""Read a recipe file into a Recipe; every error names file, line and key."""

from __future__ import annotations

from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from envbuild.errors import UsageError
from envbuild.recipe.model import Recipe
from envbuild.toml import convert, line_of, read_toml


def read_recipe(path: Path) -> tuple[Recipe, str]:
    """Read a recipe and return it with its text.

    Raises UsageError: not readable, not TOML, unknown key, wrong type, or sections that contradict each other.
    """
    data, text = read_toml(path)
    recipe = convert(data, Recipe, text=text, where=str(path))
    _check_name(recipe, path, text)
    _check_base(recipe, path, text)
    _check_requirements(recipe, path, text)
    _check_check(recipe, path, text)
    return recipe, text


def _place(path: Path, text: str, *keys: str) -> str:
    return f"{path}, line {line_of(text, keys)}"


def _check_name(recipe: Recipe, path: Path, text: str) -> None:
    if recipe.name != path.stem:
        raise UsageError(
            f'[recipe] name is "{recipe.name}", but the file is called {path.name}',
            where=_place(path, text, "recipe", "name"),
            hint=f'write name = "{path.stem}", or rename the file to {recipe.name}.toml',
        )


def _check_base(recipe: Recipe, path: Path, text: str) -> None:
    base = recipe.base
    where = _place(path, text, "base")
    if (base.image is None) == (base.bootstrap is None):
        found = "both" if base.image else "neither"
        raise UsageError(f"[base] takes image or bootstrap, one of them; {found} is given", where=where)
    if base.image is not None and base.framework is not None:
        raise UsageError(
            "[base] framework goes with bootstrap; an image brings its own framework",
            where=_place(path, text, "base", "framework"),
            hint="leave it out; to demand a framework of the image write it into [check] framework",
        )
    if base.framework is not None:
        _requirement(base.framework, _place(path, text, "base", "framework"))


def _check_requirements(recipe: Recipe, path: Path, text: str) -> None:
    for line in recipe.python.dependencies:
        _requirement(line, _place_of_item(path, text, "python", "dependencies", line))


def _check_check(recipe: Recipe, path: Path, text: str) -> None:
    script = recipe.check.script
    if script is None:
        return
    where = _place(path, text, "check", "script")
    if Path(script).is_absolute() or ".." in Path(script).parts:
        raise UsageError(
            f"[check] script {script!r} leaves the recipe's folder", where=where, hint="put it beside the recipe"
        )
    resolved = (path.parent / script).resolve()
    if not resolved.is_relative_to(path.parent.resolve()):
        raise UsageError(f"[check] script {script!r} is a link that leaves the recipe's folder", where=where)
    if not resolved.is_file():
        raise UsageError(f"[check] script {script!r} does not exist beside the recipe", where=where)


def _requirement(line: str, where: str) -> Requirement:
    try:
        return Requirement(line)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        hint = 'write a name with version bounds, such as "numpy>=1.24,<2" (PEP 508)'
        if line.lstrip().startswith("-"):
            hint = "options of pip have no place here; indexes are named in [python] indexes"
        raise UsageError(f"{line!r} is not a requirement: {reason}", where=where, hint=hint) from error


def _place_of_item(path: Path, text: str, section: str, key: str, item: str) -> str:
    """Name the line on which an item of a list stands; the key's own line where it cannot be found."""
    start = line_of(text, (section, key))
    lines = text.splitlines()
    for number in range(start - 1, len(lines)):
        if f'"{item}"' in lines[number] or f"'{item}'" in lines[number]:
            return f"{path}, line {number + 1}"
    return f"{path}, line {start}"
