"""A Python that the base has not is refused, with the Debian releases and images that have it."""

from __future__ import annotations

import pytest

from envbuild.errors import NoSolutionError
from envbuild.lock.decide.python import require_python
from envbuild.recipe.model import AboutSection, BaseSection, PythonSection, Recipe


def recipe(version: str | None, **base: str) -> Recipe:
    return Recipe(
        recipe=AboutSection(name="x"),
        base=BaseSection(**base),  # type: ignore[arg-type]
        python=PythonSection(version=version),
    )


def test_another_python_than_the_releases_names_the_release_that_has_it() -> None:
    with pytest.raises(NoSolutionError) as caught:
        require_python(recipe("3.13", bootstrap="debian:bookworm"))
    assert (
        caught.value.what
        == '[python] version is "3.13", and the base debian:bookworm has Python 3.11'
    )
    assert (caught.value.hint or "").startswith(
        'take bootstrap = "debian:trixie", whose Python it is'
    )


def test_a_python_that_no_release_has_names_images_of_the_framework() -> None:
    with pytest.raises(NoSolutionError) as caught:
        require_python(recipe("3.10", bootstrap="debian:bookworm", framework="torch==2.4.*"))
    hint = caught.value.hint or ""
    assert 'take image = "docker://' in hint
    assert "debian:bullseye 3.9, debian:bookworm 3.11, debian:trixie 3.13" in hint


@pytest.mark.parametrize("version", [None, "3.11"])
def test_the_releases_own_python_is_taken(version: str | None) -> None:
    require_python(recipe(version, bootstrap="debian:bookworm"))


def test_of_an_image_it_is_known_once_it_was_looked_at() -> None:
    image = recipe("3.12", image="docker://lab.invalid/x:1")
    require_python(image)
    require_python(image, "3.12.3")
    with pytest.raises(NoSolutionError, match=r"has Python 3\.10\.12"):
        require_python(image, "3.10.12")
