"""What a project's files say, file by file, and the draft that is made of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Protocol

from envbuild.names import Pairs, Texts
from envbuild.recipe.model import Recipe
from envbuild.records import field, frozen_record


@frozen_record
class Requirement:
    """One requirement: PEP 508 ``text``, canonical ``name``, ``where`` with file and line."""

    text: str
    name: str
    where: str


@frozen_record
class FileFindings:
    """What one file says about the environment.

    ``needs`` are index packages; ``aside`` are requirements that a recipe cannot express
    (addresses, paths), as (text, reason); ``system`` and ``build`` Debian packages; ``post``
    shell lines of a definition that are no package installation; ``image`` the container image
    it starts from; ``python`` a version specifier; ``frozen`` tells a dump of a whole
    environment; ``direct`` names those of a dump that the dump itself calls direct (pip-compile
    does); ``notes`` are told to the user; ``project`` is what the project itself is called
    (canonical); ``cuda`` the CUDA version that it names; ``refused`` shell lines and variables
    that are not taken, as (text, reason); ``complete`` says that a list is kept with care,
    because others install by it; ``title`` is what an environment is called; ``conda_only`` are
    conda packages that nothing is known of outside of conda;
    ``installation`` says that a dump is of conda's own environment, with conda in it;
    ``members`` says that the projects inside this one belong to it;
    ``only_imported`` marks what a README or the other way to install names: it counts only
    where the code imports it.
    """

    file: str
    requirements: tuple[Requirement, ...] = ()
    aside: Pairs = ()
    system: Texts = ()
    build: Texts = ()
    post: Texts = ()
    image: str | None = None
    python: str | None = None
    command: Texts = ()
    environment: Pairs = ()
    frozen: bool = False
    direct: frozenset[str] = frozenset()
    notes: Texts = ()
    project: str | None = None
    cuda: str | None = None
    refused: Pairs = ()
    complete: bool = False
    title: str | None = None
    only_imported: bool = False
    conda_only: Texts = ()
    members: bool = False
    installation: bool = False


@frozen_record
class Release:
    """The release of a package that a requirement pins (``exact``) or starts from.

    ``day`` is when it came out, ``pythons`` the Python series that can have it without
    compiling ("3.9"); ``latest`` is the day of the package's newest release.  Of a name that is not
    ``there`` the index has no file.
    """

    day: dt.date | None
    pythons: Texts
    exact: bool
    latest: dt.date | None = None
    there: bool = True


class PackageIndex(Protocol):
    """What a draft asks of the package index; one that is not asked knows nothing."""

    def reduce(
        self, requirements: tuple[Requirement, ...], imported: frozenset[str]
    ) -> tuple[tuple[Requirement, ...], str]:
        """Reduce a dump to its roots, given what the code imports; also say how."""

    def look_up(
        self, requirements: tuple[Requirement, ...], wanted: frozenset[str] = frozenset()
    ) -> tuple[Mapping[str, Release], Mapping[str, str]]:
        """Return releases by the requirements' names, and distributions by module.

        Modules of ``wanted`` are looked for in what the requirements require, too.
        """


@frozen_record
class ImportedModule:
    """A module, how many ``files`` import it, ``where`` first, and whether at every start.

    ``always`` says that every program of the project imports it.
    """

    module: str
    where: str
    certain: bool
    files: int = 1
    always: bool = False


@frozen_record
class Proposal:
    """Something that is taken unless the user says no; ``reason`` is shown.

    ``kind`` is "base", "system" or "import"; ``values`` are what goes into the recipe.
    """

    kind: str
    question: str
    values: Texts
    reason: str


@frozen_record
class RecipeDraft:
    """A recipe to be, and what people should know: ``beside`` are comments by (section, key, item).

    ``head`` are comment lines at the top, ``below`` comment lines under a section;
    ``proposals`` are in the recipe.
    """

    recipe: Recipe
    head: Texts = ()
    beside: dict[tuple[str, str, str], str] = field(default_factory=dict)
    below: dict[str, Texts] = field(default_factory=dict)
    proposals: tuple[Proposal, ...] = ()
    sources: Texts = ()
