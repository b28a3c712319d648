"""Read a recipe file into a Recipe; every error names file, line and key."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from envbuild.errors import UsageError
from envbuild.names import BASE_KINDS
from envbuild.recipe.conda import check_conda
from envbuild.recipe.model import Recipe
from envbuild.recipe.requirement import NO_REQUIREMENT
from envbuild.recipe.trees import read_tree_line
from envbuild.toml import convert, line_of, parse_toml, place_of, read_toml


def read_recipe(path: Path) -> tuple[Recipe, str]:
    """Read a recipe and return it with its text.

    Raises UsageError: not readable, not TOML, unknown key, wrong type, or sections that contradict
    each other.
    """
    data, text = read_toml(path)
    return _convert_recipe(data, text, path), text


def parse_recipe(text: str, path: Path) -> Recipe:
    """Read a recipe from its text, as read_recipe reads it from the file at ``path``."""
    return _convert_recipe(parse_toml(text, str(path)), text, path)


def _convert_recipe(data: dict[str, Any], text: str, path: Path) -> Recipe:
    if not data:
        hint = "docs/recipe.md shows what it holds; envbuild init writes one from a project"
        raise UsageError("this recipe is empty", where=path, hint=hint)
    recipe = convert(data, Recipe, text=text, where=str(path))
    _check_name(recipe, path, text)
    _check_base(recipe, path, text)
    _check_requirements(recipe, path, text)
    _check_conda(recipe, path, text)
    _check_files(recipe, path, text)
    _check_check(recipe, path, text)
    return recipe


def _check_name(recipe: Recipe, path: Path, text: str) -> None:
    if recipe.name != path.stem:
        raise UsageError(
            f'[recipe] name is "{recipe.name}", but the file is called {path.name}',
            where=place_of(path, text, "recipe", "name"),
            hint=f'write name = "{path.stem}", or rename the file to {recipe.name}.toml',
        )


def _check_base(recipe: Recipe, path: Path, text: str) -> None:
    base = recipe.base
    where = place_of(path, text, "base")
    if (base.image is None) == (base.bootstrap is None):
        found = "both" if base.image else "neither"
        raise UsageError(
            f"[base] takes image or bootstrap, one of them; {found} is given", where=where
        )
    _check_base_kind(recipe, path, text)
    if base.image is not None and base.framework is not None:
        raise UsageError(
            "[base] framework goes with bootstrap; an image brings its own framework",
            where=place_of(path, text, "base", "framework"),
            hint="leave it out; to demand a framework of the image write it into [check] framework",
        )
    if base.framework is not None:
        _read_requirement(base.framework, place_of(path, text, "base", "framework"))


def _check_base_kind(recipe: Recipe, path: Path, text: str) -> None:
    """Raise UsageError for a distribution as image, and for an image as bootstrap."""
    image, bootstrap = recipe.base.image, recipe.base.bootstrap
    if image is not None and _is_distribution(image):
        other = f'image = "docker://{image}" for the image of a registry'
        raise UsageError(
            f'[base] image "{image}" is a distribution, not an image',
            where=place_of(path, text, "base", "image"),
            hint=f'write bootstrap = "{image}", or {other}',
        )
    if bootstrap is not None and not _is_distribution(bootstrap):
        raise UsageError(
            f'[base] bootstrap "{bootstrap}" is not a distribution',
            where=place_of(path, text, "base", "bootstrap"),
            hint=f'write bootstrap = "debian:bookworm", or image = "{bootstrap}" for an image',
        )


def _is_distribution(base: str) -> bool:
    kind = BASE_KINDS.get(base.strip().partition(":")[0])
    return kind is not None and kind.is_bootstrap


def _check_requirements(recipe: Recipe, path: Path, text: str) -> None:
    for line in recipe.python.dependencies:
        where = _place_of_item(path, text, "python", "dependencies", line)
        try:
            tree = read_tree_line(line)
        except UsageError as error:
            raise UsageError(str(error), where=where, hint=error.hint) from error
        if tree is None:
            _read_requirement(line, where)


def _check_conda(recipe: Recipe, path: Path, text: str) -> None:
    if not recipe.conda.dependencies:
        return
    try:
        check_conda(recipe.conda)
    except UsageError as error:
        line = str(error).partition("'")[2].partition("'")[0]
        where = _place_of_item(path, text, "conda", "dependencies", line)
        raise UsageError(str(error), where=where, hint=error.hint) from error


KEPT_OUT = (
    "/dev",
    "/proc",
    "/sys",
    "/tmp",  # noqa: S108  (in the image)
    "/var/tmp",  # noqa: S108  (in the image)
    "/run",
    "/mnt",
    "/.singularity.d",
    "/.envbuild",
)
"""Folders that [files] does not write to: mounted over, or the runtime's own."""


def _check_files(recipe: Recipe, path: Path, text: str) -> None:
    targets: dict[str, str] = {}
    for source, target in recipe.files.items():
        where = place_of(path, text, "files", source)
        if not source or Path(source).is_absolute() or ".." in Path(source).parts:
            hint = "the left side is a file or folder of the project, the right side its place in the image"
            raise UsageError(
                f"[files] {source!r} is not a path below the project's folder",
                where=where,
                hint=hint,
            )
        if not re.fullmatch(r"(/(?!\.{1,2}(/|$))[^/]+)+", target):
            hint = 'write an absolute path without "..", and without / at its end'
            raise UsageError(
                f"[files] {target!r} is not a place in the image", where=where, hint=hint
            )
        if any(target == folder or target.startswith(f"{folder}/") for folder in KEPT_OUT):
            raise UsageError(
                f"[files] {target} is not a place for files: what lies there is not seen",
                where=where,
            )
        if target in targets:
            raise UsageError(
                f"[files] {source!r} and {targets[target]!r} both go to {target}", where=where
            )
        targets[target] = source


def _check_check(recipe: Recipe, path: Path, text: str) -> None:
    script = recipe.check.script
    if script is None:
        return
    where = place_of(path, text, "check", "script")
    if Path(script).is_absolute() or ".." in Path(script).parts:
        raise UsageError(
            f"[check] script {script!r} leaves the recipe's folder",
            where=where,
            hint="put it beside the recipe",
        )
    # a link in a circle ends as a file that is not there
    resolved = Path(os.path.realpath(path.parent / script))
    if not resolved.is_relative_to(path.parent.resolve()):
        raise UsageError(
            f"[check] script {script!r} is a link that leaves the recipe's folder", where=where
        )
    if not resolved.is_file():
        raise UsageError(f"[check] script {script!r} does not exist beside the recipe", where=where)


def _read_requirement(line: str, where: str) -> Requirement:
    try:
        return Requirement(line)
    except NO_REQUIREMENT as error:
        reason = str(error).splitlines()[0]
        hint = 'write a name with version bounds, such as "numpy>=1.24,<2" (PEP 508)'
        if line.lstrip().startswith("-"):
            hint = "options of pip have no place here; indexes are named in [python] indexes"
        raise UsageError(
            f"{line!r} is not a requirement: {reason}", where=where, hint=hint
        ) from error


def _place_of_item(path: Path, text: str, section: str, key: str, item: str) -> str:
    """Name the line of a list's item, or that of its key."""
    start = line_of(text, (section, key))
    lines = text.splitlines()
    for number in range(start - 1, len(lines)):
        if f'"{item}"' in lines[number] or f"'{item}'" in lines[number]:
            return f"{path}, line {number + 1}"
    return f"{path}, line {start}"
