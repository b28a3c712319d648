"""Propose a base and Debian packages for what a project needs."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence

from msgspec import structs
from packaging.specifiers import SpecifierSet

from envbuild.base.catalogue import CatalogueEntry, catalogue_entries
from envbuild.base.debian.distribution import release_of
from envbuild.base.suggest import BaseMatch, BaseQuery, framework_name, holds_python, suggest_bases
from envbuild.data.lookup import numbers
from envbuild.data.package_tables import load_names
from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.project.draft.clean import bounds_of
from envbuild.project.model import Requirement
from envbuild.project.names import debian_name
from envbuild.recipe.model import BaseSection
from envbuild.records import frozen_record, replace

BARE = {"3.9": "debian:bullseye", "3.11": "debian:bookworm", "3.13": "debian:trixie"}
"""Bootstraps by their Python, for projects without a framework."""
NO_PYTHON = re.compile(r"docker://(docker\.io/|nvcr\.io/)?nvidia/(cuda|cudagl|opengl)\b")
"""Images that hold CUDA, and no Python."""
WITHOUT_CUDA = re.compile(
    r"(docker://(?:(?:index\.)?docker\.io/)?tensorflow/tensorflow"
    r":(?:latest|nightly|\d[\d.]*(?:rc\d+)?)(?:-devel)?)(?![\w.]|-devel|-gpu|-custom|\S*@)"
)
"""Images of TensorFlow for the CPU: each release has a second one whose tag says -gpu.

What a digest names is one image, whatever its tag says.
"""


@frozen_record
class BaseNeeds:
    """What a project says of its base; None or empty: nothing.

    ``python`` is what it declares, ``pythons`` the series that its pinned packages can be had
    for; ``until`` is the day of its newest pin, ``cuda`` the CUDA version that it names;
    ``driver`` and ``gpu`` are those of the nodes to run on.
    """

    framework: Requirement | None = None
    python: str | None = None
    image: str | None = None
    cuda: str | None = None
    pythons: Texts = ()
    until: dt.date | None = None
    driver: str | None = None
    gpu: str | None = None


@frozen_record
class ProposedBase:
    """A base with the reason and warnings; ``exact``: it holds the release asked for."""

    base: BaseSection
    reason: str
    notes: Texts = ()
    exact: bool = True
    python: str | None = None


def propose_base(wanted: BaseNeeds) -> ProposedBase:
    """Choose a base: the project's own image, else the best of the catalogue.

    An image that is known to hold another release than the project's lists ask for is not
    taken.  Where no base has all that was asked for, the framework counts, then the Pythons of
    the pinned packages, then the CUDA version.
    """
    notes: list[str] = []
    # an image without a tag is the latest one
    tagged = re.sub(r"(/tensorflow/tensorflow)$", r"\1:latest", wanted.image or "")
    twin = WITHOUT_CUDA.sub(r"\1-gpu", tagged)
    if wanted.image and twin != wanted.image:
        notes.append(f"base: {wanted.image} has no CUDA; its twin with CUDA is taken")
        wanted = replace(wanted, image=twin)
    if wanted.image and not NO_PYTHON.match(wanted.image):
        other = _other_release(wanted.image, wanted.framework)
        if other is None:
            entry = _entry_of(wanted.image)
            reason = "the project's own definition starts from it"
            return ProposedBase(
                base=BaseSection(image=wanted.image),
                reason=reason,
                notes=tuple(notes),
                python=_python_series(entry),
            )
        notes.append(f"base: the definition starts from {wanted.image}, {other}")
    if wanted.framework is None:
        return _bare_base(wanted)
    for node in dict.fromkeys(((wanted.driver, wanted.gpu), (None, None))):
        for wish in _base_queries(wanted, wanted.framework):
            choice = _first_match(
                structs.replace(wish, driver=node[0], gpu=node[1]), wanted.framework
            )
            if choice is not None:
                return _proposed_base(choice, wanted, wanted.framework, notes)
        notes.append(
            f"base: no base with {wanted.framework.text} runs on driver {node[0]} and GPU {node[1]}"
        )
    return _bare_base(wanted)


def is_held(framework: Requirement) -> bool:
    """Whether a base holds the release line that is pinned; true for a framework without a pin."""
    text = f"{framework_name(framework.name)}{bounds_of(framework)}"
    return (
        _release_line(text) == text
        or _first_match(BaseQuery(framework=_release_line(text))) is not None
    )


def is_known_image(image: str) -> bool:
    """Whether the catalogue has an image."""
    return _entry_of(image) is not None


def _other_release(image: str, framework: Requirement | None) -> str | None:
    """Return why an image does not hold what the lists ask for, None if it may."""
    text = bounds_of(framework) if framework is not None else ""
    if framework is None or not text:
        return None
    try:
        bounds = SpecifierSet(text)
    except ValueError:
        return None
    asked = f"but {framework.where} asks for {framework.text}"
    name, version = _held_by(image)
    if version is None:
        return f"of which the release is not known, {asked}" if re.match(r"==\s*\d", text) else None
    fits = bounds.contains(version, prereleases=True) or _same_line(version, text)
    return (
        None
        if fits or name != framework_name(framework.name)
        else f"which holds {version}, {asked}"
    )


def _entry_of(image: str) -> CatalogueEntry | None:
    return next((entry for entry in catalogue_entries() if entry.reference == image), None)


def _held_by(image: str) -> tuple[str | None, str | None]:
    """Return the framework of an image and its release, by catalogue or tag."""
    entry = _entry_of(image)
    if entry is not None and entry.version is not None:
        return entry.framework, entry.version
    tag = re.match(
        r"docker://(?:docker\.io/)?(?:pytorch|tensorflow)/(pytorch|tensorflow):(\d+\.\d+\.\d+)",
        image,
    )
    return (framework_name(tag[1]), tag[2]) if tag else (None, None)


def _same_line(version: str, bounds: str) -> bool:
    """Whether a release is of the line that is pinned: 2.1.0 where ==2.1.2 is asked for."""
    pinned = re.fullmatch(r"={2,3}\s*(\d+\.\d+)(?:[^\s\d]\S*)?", bounds)
    return bool(pinned) and numbers(version)[:2] == numbers(pinned[1])  # type: ignore[index]


def _base_queries(wanted: BaseNeeds, framework: Requirement) -> Iterator[BaseQuery]:
    """Yield wishes from all that is asked for to the framework's name alone."""
    plain = framework_name(framework.name)
    text = f"{plain}{bounds_of(framework)}"
    major = wanted.cuda.split(".")[0] if wanted.cuda else None
    all_cudas = tuple(dict.fromkeys((wanted.cuda, major, None)))
    exact = re.search(r"={2,3}\s*\d", text) is not None
    days = (None,) if exact or wanted.until is None else (wanted.until, None)
    near = _next_pythons(wanted.python)
    # the Python that is named, or a near one that is newer: older ones do not run all of its code
    newer: list[tuple[str | None, Texts]] = [
        (python, wanted.pythons) for python in (wanted.python, *near) if python
    ]
    strict: list[tuple[str | None, Texts]] = [(None, wanted.pythons)]
    anyone: list[tuple[str | None, Texts]] = [(wanted.python, ()), (None, ())]
    line = _release_line(text)
    # another patch of the framework costs less than a Python that the pinned packages are not for,
    # and so does the next line of the same major release
    tries: tuple[tuple[str | None, list[tuple[str | None, Texts]]], ...] = (
        (text, newer),
        (line, newer),
        (text, strict),
        (line, strict),
        *((later, [*newer, *strict]) for later in _later_lines(line) if wanted.pythons),
        (text, anyone),
        (line, anyone),
        (plain, [*newer, *strict]),
        (plain, anyone),
    )
    for name, pythons in dict.fromkeys((name, tuple(dict.fromkeys(some))) for name, some in tries):
        for until in days:
            for python, series in pythons:
                # a nearer Python is not worth another CUDA
                cudas = all_cudas[:-1] if wanted.cuda and python in near else all_cudas
                for cuda in cudas:
                    yield BaseQuery(
                        framework=name, python=python, pythons=series, cuda=cuda, until=until
                    )


def _later_lines(line: str) -> Texts:
    """Return the next release lines of the same major release: 2.4 and 2.5 after 2.3."""
    found = re.fullmatch(r"(.*)==(\d{1,4})\.(\d{1,4})\.\*", line)
    if found is None:
        return ()
    return tuple(f"{found[1]}=={found[2]}.{int(found[3]) + step}.*" for step in range(1, 3))


def _next_pythons(python: str | None) -> Texts:
    """Return the series after the one that a project names: the nearest run most of its code."""
    named = re.fullmatch(r"==\s*3\.(\d{1,4})(\.\S+)?", python or "")
    if named is None:
        return ()
    return tuple(f"==3.{int(named[1]) + step}.*" for step in range(1, 4))


def _first_match(wish: BaseQuery, framework: Requirement | None = None) -> BaseMatch | None:
    """Return the best base for a query; if several fit, the one nearest to the pin."""
    try:
        choices, _ = suggest_bases(wish)
    except UsageError:
        return None
    sound = [choice for choice in choices if not choice.entry.defect]
    bounds = bounds_of(framework) if framework is not None else ""
    pinned = re.match(r"={2,3}\s*(\d\w*(?:\.\w+)*)", bounds)
    if pinned is None or wish.framework != framework_name(framework.name if framework else ""):
        return sound[0] if sound else None
    line = numbers(pinned[1])[:2]
    lines = {id(one): numbers(one.entry.version or "")[:2] for one in sound}
    later = [one for one in sound if lines[id(one)] >= line]
    if later:
        return min(later, key=lambda one: lines[id(one)])
    return max(sound, key=lambda one: lines[id(one)], default=None)


def _release_line(text: str) -> str:
    """Widen an exact release to its line: 2.1.3 to 2.1.*."""
    return re.sub(r"(?:={2,3}|~=)\s*(\d+\.\d+)\.?[\w.+]*.*$", r"==\1.*", text)


def _python_series(entry: CatalogueEntry | None) -> str | None:
    """Return the Python series of an entry ("3.9"), None where it is not certain."""
    python = entry.python if entry is not None else None
    match = re.fullmatch(r"(\d+\.\d+)(\.\d+)?(rc\d+)?", python or "")
    return match[1] if match else None


def _proposed_base(
    choice: BaseMatch, wanted: BaseNeeds, framework: Requirement, before: list[str]
) -> ProposedBase:
    entry = choice.entry
    if entry.is_bootstrap:
        base = BaseSection(bootstrap=entry.reference, framework=choice.framework)
    else:
        base = BaseSection(image=entry.reference)
    exact = _holds_pin(entry, bounds_of(framework))
    notes = [*before, *_left_out(entry, wanted, framework, exact=exact)]
    notes += [f"base: {caution}" for caution in choice.cautions]
    reason = "; ".join(choice.reasons)
    return ProposedBase(
        base=base, reason=reason, notes=tuple(notes), exact=exact, python=_python_series(entry)
    )


def _holds_pin(entry: CatalogueEntry, bounds: str) -> bool:
    """Whether a base holds what is pinned (==2.1.2, ==2.1.*); true where nothing is."""
    held = entry.version or ""
    asked = re.search(r"==\s*(\d+(?:\.\d+)*)(\.\*)?$", bounds)
    if asked is None or held == asked[1]:
        return True
    if asked[2]:
        return f"{held}.".startswith(f"{asked[1]}.")
    return entry.is_bootstrap and asked[1].startswith(f"{held}.")


def _left_out(
    entry: CatalogueEntry, wanted: BaseNeeds, framework: Requirement, *, exact: bool
) -> Iterator[str]:
    """Return what a base does not fulfil, and what decided instead."""
    series = _python_series(entry)
    if not exact:
        yield f"base: no base holds {framework.text}; {entry.version} is the nearest"
    if wanted.python and series and not allows_python(wanted.python, series):
        has = f"the project asks for Python {wanted.python}; this base has {series}"
        yield f"base: {has}. Another one comes from [conda], or with an image as base"
    if wanted.pythons and series and series not in wanted.pythons:
        names = ", ".join(wanted.pythons)
        yield f"base: the pinned packages are there for Python {names}; this base has {series}"
    if wanted.cuda and entry.cuda and numbers(entry.cuda)[:1] != numbers(wanted.cuda)[:1]:
        yield f"base: the project names CUDA {wanted.cuda}; this base has CUDA {entry.cuda}"
    if wanted.until and not re.search(r"={2,3}\s*\d", bounds_of(framework)):
        yield f"base: of the time of the project's pins (the newest came out on {wanted.until})"


def allows_python(python: str, series: str) -> bool:
    """Whether some release of a Python series ("3.8") is inside bounds; true for bad ones."""
    try:
        return holds_python(SpecifierSet(python), series)
    except ValueError:
        return True


def _bare_base(wanted: BaseNeeds) -> ProposedBase:
    series = [one for one in BARE if not wanted.pythons or one in wanted.pythons]
    order = [one for one in ("3.11", "3.13", "3.9") if one in series] or ["3.11", "3.13", "3.9"]
    fitting = [one for one in order if allows_python(wanted.python or "", one)]
    version = fitting[0] if fitting else order[0]
    said = f"base: no bootstrap has Python {wanted.python}; Python {version} was taken"
    return ProposedBase(
        base=BaseSection(bootstrap=BARE[version]),
        reason=f"no GPU framework is asked for; Python {version}",
        notes=() if fitting else (said,),
        python=version,
    )


def propose_system(requirements: Sequence[Requirement]) -> tuple[dict[str, str], dict[str, str]]:
    """Return Debian packages to run and to build with, and the distribution for each."""
    table = load_names().system
    run: dict[str, str] = {}
    build: dict[str, str] = {}
    for requirement in requirements:
        wanted = table.get(requirement.name)
        if wanted is not None:
            run.update({name: requirement.name for name in wanted.packages if name not in run})
            build.update({name: requirement.name for name in wanted.build if name not in build})
    return run, build


def for_debian(names: Sequence[str], notes: list[str]) -> Texts:
    """Return Debian's names of Ubuntu's packages; changes are noted."""
    found: list[str] = []
    for name in names:
        other = debian_name(name)
        if other is None:
            found.append(name)
        elif other:
            notes.append(f"{name} is called {other} in Debian")
            found.append(other)
        else:
            notes.append(
                f"not taken: Debian has no package {name}; it is one of Ubuntu or of its maker"
            )
    return tuple(dict.fromkeys(found))


def takes_debian_packages(image: str) -> bool:
    """Whether an image is of a known system whose Debian packages can be locked."""
    entry = _entry_of(image)
    distro = entry.distro if entry is not None else None
    try:
        release_of(re.sub(r"^(debian|ubuntu)(?=\d)", r"\1 ", distro or ""))
    except UsageError:
        return False
    return True
