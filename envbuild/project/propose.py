"""Propose a base and Debian packages for what a project needs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from envbuild.base.catalogue import entries
from envbuild.base.suggest import Choice, Wish, framework_name, suggest
from envbuild.errors import UsageError
from envbuild.project.clean import bounds_of
from envbuild.project.model import Need
from envbuild.project.names import load_names
from envbuild.recipe.model import Base

BARE = {"3.9": "debian:bullseye", "3.11": "debian:bookworm", "3.13": "debian:trixie"}
"""Bootstraps by their Python, for projects without a framework."""
NO_PYTHON = re.compile(r"docker://(docker\.io/|nvcr\.io/)?nvidia/(cuda|cudagl)\b")
"""Images that hold CUDA, and no Python."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposed:
    """A base, why, what to beware of, and whether it holds the very release that was asked for."""

    base: Base
    reason: str
    notes: tuple[str, ...] = ()
    exact: bool = True


def propose_base(framework: Need | None, python: str | None, image: str | None) -> Proposed:
    """Choose a base: the image that the project's own definition starts from, else the catalogue's best.

    Where no base has both the framework and the Python that were asked for, the framework counts.
    """
    if image and not NO_PYTHON.match(image):
        return Proposed(base=Base(image=image), reason="the project's own definition starts from it")
    if framework is None:
        return _bare(python)
    text = f"{framework_name(framework.name)}{bounds_of(framework)}"
    for wish, left_out in (
        (Wish(framework=text, python=python), ""),
        (Wish(framework=text), f"no base holds {text} with Python {python}; the Python was left out"),
        (Wish(framework=_line(text), python=python), f"no base holds {text}; taken is the same line"),
        (Wish(framework=_line(text)), f"no base holds {text} with Python {python}; the nearest line was taken"),
        (Wish(framework=framework_name(framework.name)), f"no base holds {text}; the newest one was taken"),
    ):
        choice = _first(wish)
        if choice is not None:
            return _proposed(choice, framework, left_out)
    return _bare(python)


def _first(wish: Wish) -> Choice | None:
    try:
        choices, _ = suggest(wish)
    except UsageError:
        return None
    return next((choice for choice in choices if not choice.entry.defect), None)


def _line(text: str) -> str:
    """Widen an exact release to its line: 2.1.3 to 2.1.*."""
    return re.sub(r"={2,3}\s*(\d+\.\d+)[\w.+]*.*$", r"==\1.*", text)


def _proposed(choice: Choice, framework: Need, left_out: str) -> Proposed:
    entry = choice.entry
    if entry.is_bootstrap:
        base = Base(bootstrap=entry.reference, framework=choice.framework)
    else:
        base = Base(image=entry.reference)
    cautions = tuple(f"base: {caution}" for caution in choice.cautions)
    held = entry.version or ""
    asked = re.search(r"==\s*([\d.]+)$", bounds_of(framework))
    exact = asked is None or held == asked[1] or (entry.is_bootstrap and asked[1].startswith(f"{held}."))
    notes = (f"base: {left_out}", *cautions) if left_out else cautions
    return Proposed(base=base, reason="; ".join(choice.reasons), notes=notes, exact=exact)


def _bare(python: str | None) -> Proposed:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        bounds = SpecifierSet(python or "")
    except InvalidSpecifier:
        bounds = SpecifierSet()
    fitting = [version for version in ("3.11", "3.13", "3.9") if bounds.contains(f"{version}.9", prereleases=True)]
    version = fitting[0] if fitting else "3.11"
    notes = () if fitting else (f"base: no bootstrap has Python {python}; Python 3.11 was taken",)
    return Proposed(
        base=Base(bootstrap=BARE[version]), reason=f"no GPU framework is asked for; Python {version}", notes=notes
    )


def propose_system(needs: Sequence[Need]) -> tuple[dict[str, str], dict[str, str]]:
    """Return Debian packages to run with and to build with, each with the distribution that wants it."""
    table = load_names().system
    run: dict[str, str] = {}
    build: dict[str, str] = {}
    for need in needs:
        wanted = table.get(need.name)
        if wanted is not None:
            run.update({name: need.name for name in wanted.packages if name not in run})
            build.update({name: need.name for name in wanted.build if name not in build})
    return run, build


def takes_debian_packages(image: str) -> bool:
    """Whether the catalogue knows what an image's system is, and its Debian packages can be locked."""
    from envbuild.base.distribution import release_of

    distro = next((entry.distro for entry in entries() if entry.reference == image), None)
    try:
        release_of(re.sub(r"^(debian|ubuntu)(?=\d)", r"\1 ", distro or ""))
    except UsageError:
        return False
    return True
