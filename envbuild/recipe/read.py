"""Read a recipe file into a Recipe; every error names file, line and key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

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
    checks = _Checks(recipe, path, text)
    checks.check_name()
    checks.check_base()
    checks.check_requirements()
    checks.check_conda()
    checks.check_files()
    checks.check_script()
    return recipe


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


@dataclass(frozen=True, slots=True)
class _Checks:
    """What the types of a recipe's keys do not say; each raises UsageError with the key's line."""

    recipe: Recipe
    path: Path
    text: str

    def place_of(self, *keys: str) -> str:
        """Name the line of a key."""
        return place_of(self.path, self.text, *keys)

    def refuse(self, what: str, *keys: str, hint: str | None = None) -> NoReturn:
        """Raise UsageError for the value of a key."""
        raise UsageError(what, where=self.place_of(*keys), hint=hint)

    def check_name(self) -> None:
        """Compare the recipe's name with that of its file."""
        name, stem = self.recipe.name, self.path.stem
        if name != stem:
            what = f'[recipe] name is "{name}", but the file is called {self.path.name}'
            hint = f'write name = "{stem}", or rename the file to {name}.toml'
            self.refuse(what, "recipe", "name", hint=hint)

    def check_base(self) -> None:
        """Look for one base, of a kind that its key takes."""
        base = self.recipe.base
        if (base.image is None) == (base.bootstrap is None):
            found = "both" if base.image else "neither"
            what = f"[base] takes image or bootstrap, one of them; {found} is given"
            self.refuse(what, "base")
        self._check_base_kind()
        if base.image is not None and base.framework is not None:
            what = "[base] framework goes with bootstrap; an image brings its own framework"
            hint = (
                "leave it out; to demand a framework of the image write it into [check] framework"
            )
            self.refuse(what, "base", "framework", hint=hint)
        if base.framework is not None:
            _read_requirement(base.framework, self.place_of("base", "framework"))

    def _check_base_kind(self) -> None:
        """Refuse a distribution as image, and an image as bootstrap."""
        image, bootstrap = self.recipe.base.image, self.recipe.base.bootstrap
        if image is not None and _is_distribution(image):
            what = f'[base] image "{image}" is a distribution, not an image'
            other = f'image = "docker://{image}" for the image of a registry'
            self.refuse(what, "base", "image", hint=f'write bootstrap = "{image}", or {other}')
        if bootstrap is not None and not _is_distribution(bootstrap):
            what = f'[base] bootstrap "{bootstrap}" is not a distribution'
            hint = f'write bootstrap = "debian:bookworm", or image = "{bootstrap}" for an image'
            self.refuse(what, "base", "bootstrap", hint=hint)

    def check_requirements(self) -> None:
        """Read every line of [python] dependencies."""
        for line in self.recipe.python.dependencies:
            self._check_requirement(line)

    def _check_requirement(self, line: str) -> None:
        try:
            if read_tree_line(line) is None:
                _read_requirement(line)
        except UsageError as error:
            # looked for here alone: all lines are read for it
            where = self._place_of_item("python", line)
            raise UsageError(str(error), where=where, hint=error.hint) from error

    def check_conda(self) -> None:
        """Look at the channels and the lines of [conda] dependencies."""
        if not self.recipe.conda.dependencies:
            return
        try:
            check_conda(self.recipe.conda)
        except UsageError as error:
            line = str(error).partition("'")[2].partition("'")[0]
            where = self._place_of_item("conda", line)
            raise UsageError(str(error), where=where, hint=error.hint) from error

    def check_files(self) -> None:
        """Look at both sides of [files]."""
        targets: dict[str, str] = {}
        for source, target in self.recipe.files.items():
            what, hint = "", None
            if not source or Path(source).is_absolute() or ".." in Path(source).parts:
                what = f"[files] {source!r} is not a path below the project's folder"
                hint = "the left side is a file or folder of the project, the right side its place in the image"
            elif not re.fullmatch(r"(/(?!\.{1,2}(/|$))[^/]+)+", target):
                what = f"[files] {target!r} is not a place in the image"
                hint = 'write an absolute path without "..", and without / at its end'
            elif any(target == folder or target.startswith(f"{folder}/") for folder in KEPT_OUT):
                what = f"[files] {target} is not a place for files: what lies there is not seen"
            elif target in targets:
                what = f"[files] {source!r} and {targets[target]!r} both go to {target}"
            if what:
                self.refuse(what, "files", source, hint=hint)
            targets[target] = source

    def check_script(self) -> None:
        """Look for the script of [check], below the recipe's folder."""
        script, folder = self.recipe.check.script, self.path.parent
        if script is None:
            return
        keys = ("check", "script")
        if Path(script).is_absolute() or ".." in Path(script).parts:
            what = f"[check] script {script!r} leaves the recipe's folder"
            self.refuse(what, *keys, hint="put it beside the recipe")
        # a link in a circle ends as a file that is not there
        resolved = Path(os.path.realpath(folder / script))
        if not resolved.is_relative_to(folder.resolve()):
            self.refuse(
                f"[check] script {script!r} is a link that leaves the recipe's folder", *keys
            )
        if not resolved.is_file():
            self.refuse(f"[check] script {script!r} does not exist beside the recipe", *keys)

    def _place_of_item(self, section: str, item: str) -> str:
        """Name the line of an item of a section's dependencies, or that of their key."""
        start = line_of(self.text, (section, "dependencies"))
        lines = self.text.splitlines()
        for number in range(start - 1, len(lines)):
            if f'"{item}"' in lines[number] or f"'{item}'" in lines[number]:
                return f"{self.path}, line {number + 1}"
        return f"{self.path}, line {start}"


def _is_distribution(base: str) -> bool:
    kind = BASE_KINDS.get(base.strip().partition(":")[0])
    return kind is not None and kind.is_bootstrap


def _read_requirement(line: str, where: str | None = None) -> Requirement:
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
