"""What a project's files say, file by file, and the draft that is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from envbuild.recipe.model import Recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """One requirement: ``text`` is PEP 508, ``name`` canonical, ``where`` the file and line that say so."""

    text: str
    name: str
    where: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Saying:
    """What one file says about the environment.

    ``needs`` are index packages; ``aside`` are requirements that a recipe cannot express (addresses, paths), as
    (text, reason); ``system`` and ``build`` Debian packages; ``post`` shell lines of a definition that are no package
    installation; ``image`` the container image it starts from; ``python`` a version specifier; ``frozen`` tells a dump
    of a whole environment; ``direct`` names those of a dump that the dump itself calls direct (pip-compile does);
    ``notes`` are told to the user; ``project`` is what the project itself is called (canonical).
    """

    file: str
    needs: tuple[Need, ...] = ()
    aside: tuple[tuple[str, str], ...] = ()
    system: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    post: tuple[str, ...] = ()
    image: str | None = None
    python: str | None = None
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    frozen: bool = False
    direct: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    project: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A module that ``files`` files import, ``where`` first; ``certain``: at the top of one that is no test."""

    module: str
    where: str
    certain: bool
    files: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """Something that is taken unless the user says no; ``reason`` is told.

    ``kind`` is "base", "system" or "import"; ``values`` are what goes into the recipe.
    """

    kind: str
    question: str
    values: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A recipe to be, and what people should know: ``beside`` are comments by (section, key, item).

    ``head`` are comment lines at the top, ``below`` comment lines under a section; ``proposals`` are in the recipe.
    """

    recipe: Recipe
    head: tuple[str, ...] = ()
    beside: dict[tuple[str, str, str], str] = field(default_factory=dict)
    below: dict[str, tuple[str, ...]] = field(default_factory=dict)
    proposals: tuple[Proposal, ...] = ()
    sources: tuple[str, ...] = ()
