"""Refuse a base with another Python than the recipe demands; name bases that have it."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import Requirement

from envbuild.base.suggest import BaseQuery, framework_name, suggest_bases
from envbuild.data.tables import load_catalogue
from envbuild.errors import NoSolutionError, UsageError
from envbuild.recipe.model import Recipe
from envbuild.store.units import minor_version

MOST_IMAGES = 2


def require_python(recipe: Recipe, found: str | None = None) -> None:
    """Raise NoSolutionError where [python] version is not the base's.

    ``found`` is the base's Python; None while it is not looked at: of a Debian release it is known
    beforehand.
    """
    wanted = recipe.python.version
    # of a Debian release the Python is known without looking
    suites = {suite.bootstrap: suite.python for suite in load_catalogue().suite}
    held = found or suites.get(recipe.base.bootstrap or "")
    if wanted is None or held is None or minor_version(held) == wanted:
        return
    name = recipe.base.image or recipe.base.bootstrap
    raise NoSolutionError(
        f'[python] version is "{wanted}", and the base {name} has Python {held}',
        hint="\nor ".join(_python_hints(recipe, wanted, suites)),
    )


def refuse_no_python(recipe: Recipe, python: str) -> None:
    """Raise UsageError for a recipe that needs a Python where neither base nor conda has one."""
    if python:
        return
    name = recipe.base.image or recipe.base.bootstrap
    if not recipe.conda.dependencies:
        raise UsageError(
            "the image has no Python on its PATH",
            where=name or "",
            hint='take an image with Python 3.6 or newer; or conda\'s Python: "python 3.12.*" in '
            '[conda] dependencies; or start from Debian packages: bootstrap = "debian:bookworm"',
        )
    if recipe.python.dependencies or recipe.base.framework:
        raise UsageError(
            f"[python] needs a Python, and neither {name} nor [conda] has one",
            where=recipe.name,
            hint='add "python 3.12.*" to [conda] dependencies',
        )


def _images_with(python: str, framework: str | None) -> list[str]:
    """Name a few images of the catalogue that have a framework with that Python."""
    asked = Requirement(framework) if framework else None
    name = framework_name(asked.name) if asked else None
    if asked is None or name is None:
        return []
    query = BaseQuery(framework=f"{name}{asked.specifier}", python=python)
    choices, _ = suggest_bases(query)
    entries = [choice.entry for choice in choices]
    images = [entry for entry in entries if not entry.is_bootstrap and entry.defect is None]
    return [f'image = "{one.reference}" ({one.holds})' for one in images[:MOST_IMAGES]]


def _python_hints(recipe: Recipe, wanted: str, suites: dict[str, str]) -> Iterable[str]:
    """Yield the Debian releases with that Python, and images of the same framework."""
    having = [suite for suite, python in suites.items() if python == wanted]
    if recipe.base.bootstrap and having:
        yield f'take bootstrap = "{having[0]}", whose Python it is'
    images = _images_with(wanted, recipe.base.framework or recipe.check.framework)
    if images:
        yield f"take {' or '.join(images)}"
    has = ", ".join(f"{suite} {python}" for suite, python in suites.items())
    yield (
        f"leave out [python] version (Debian releases: {has}), or take an image with Python "
        f'{wanted}, or conda\'s: "python {wanted}.*" in [conda] dependencies'
    )
