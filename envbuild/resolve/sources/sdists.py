"""Read what an sdist requires, to run and to be built, without running any of it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from msgspec import structs

from envbuild.data.package_tables import load_majors, load_names
from envbuild.errors import UsageError
from envbuild.limits import reading
from envbuild.names import Pairs, Texts
from envbuild.python_guards import blank_guarded
from envbuild.resolve.setup_py.handed import Handed
from envbuild.resolve.setup_py.read import read_setup
from envbuild.resolve.sources.declared import (
    cfg_requires,
    egg_requires,
    poetry_requires,
    project_requires,
)
from envbuild.resolve.sources.metadata import Headers, headers, require_same
from envbuild.resolve.stubs import parse_requirements
from envbuild.tarread import archive_members
from envbuild.toml import parse_toml

LEGACY_BUILD = ("setuptools", "wheel")
"""What is needed to build an sdist that has no build-system table (PEP 518)."""
LEGACY_BACKEND = "setuptools.build_meta:__legacy__"
"""What PEP 517 prescribes for a source archive that names none."""
BIGGEST_MEMBER = 8 * 1024 * 1024
MOST_MEMBERS = 500_000
MOST_READ = 400
"""Members that are read; only metadata and texts at the top are."""
WANTED = re.compile(
    r"(?:\./)?(?:[^/]+/)?(PKG-INFO|pyproject\.toml|setup\.(?:py|cfg)"
    r"|[^/]+\.(?:txt|in|rst|md|py)|VERSION|requirements/[^/]+\.(?:txt|in)"
    r"|(?:[^/]+/){0,2}[^/]+\.egg-info/(?:PKG-INFO|requires\.txt))\Z"
)
STATIC_SINCE = (2, 2)
"""From this metadata version on, a field of PKG-INFO that is not called dynamic holds for every
build (PEP 643)."""
CODE = re.compile(
    r".+\.(?:pyx?|pyi|pxd|c|cc|cpp|cxx|h|hpp|cu|cuh|f|f90|for|rs|go|so|jl|r|js|ipynb|java|swg|i)\Z",
    re.IGNORECASE,
)
NO_CODE = re.compile(
    r"(?:setup|package_info|conftest|versioneer|noxfile|(?=[^/]*test)[^/]*)\.py\Z|(?:tests?|docs?|examples?|\.[^/]+)/"
)
"""Files of code that no module of a package is made of."""
RAISES = re.compile(r"^[ \t]+raise\b", re.MULTILINE)
CALLS_PIP = re.compile(r"""["']--(?:extra-)?index-url["']""")
"""What a setup.py says that lets pip install the package's files from another index."""
STUB_BACKENDS = ("nvidia_stub", "wheel_stub")
"""Backends of archives that hold nothing: their build downloads from somewhere else, or fails with
an explanation."""


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What an sdist says: PEP 508 strings to run it and to build it.

    ``read_from`` says where the former stand: "pkg-info", "egg-info", "pyproject", "poetry",
    "setup.cfg" and "setup.py" hold for every build; "packed" is what a setup.py computed on its
    author's machine; "none" where nothing is said. ``backend`` is what builds it; ``stub`` is the
    reason why it is no release, where it is none; ``old`` are bounds of others that its code needs.
    """

    requires: Texts
    build: Texts
    read_from: str
    requires_python: str | None = None
    backend: str = LEGACY_BACKEND
    stub: str | None = None
    old: Texts = ()


def read_sdist(path: Path, name: str) -> Declared:
    """Read an sdist; ``name`` is its file name.  Raises IntegrityError for no archive."""
    names: set[str] = set()
    code = OldCode()
    with reading("is not a readable source archive", name):
        members = dict(_wanted_members(path, name, names, code))
    return structs.replace(declared(members, name, names), old=code.bounds)


def declared(members: Mapping[str, str], where: str, names: Collection[str] = ()) -> Declared:
    """Decide from an sdist's own files (path inside its top folder to text) what it declares.

    ``names`` are all of its members, where more of them are known than were read.
    """
    information = headers(members.get("PKG-INFO", ""))
    project = _read_pyproject(members.get("pyproject.toml"), where)
    handed = read_setup(members["setup.py"], members) if "setup.py" in members else None
    requires, read_from = _find_requires(members, information, project, handed)
    system = project.get("build-system")
    named = system.get("build-backend") if isinstance(system, dict) else None
    backend = named if isinstance(named, str) else LEGACY_BACKEND
    require_same(information, where)
    cleaned = _clean_requires(requires)
    return Declared(
        requires=cleaned,
        build=_build_requires(project, handed),
        read_from=read_from,
        requires_python=information.requires_python,
        backend=backend,
        stub=_stub_reason(backend, handed, cleaned, members, names or members),
    )


def _find_requires(
    members: Mapping[str, str],
    information: Headers,
    project: Mapping[str, Any],
    handed: Handed | None,
) -> tuple[Iterable[str], str]:
    """Return the requirements and their origin: what holds for every build comes first."""
    listed = project_requires(project)
    # PEP 643: since metadata 2.2 a field holds for every build unless it is listed as dynamic
    if information.version >= STATIC_SINCE and "requires-dist" not in information.dynamic:
        # setuptools marks no list as dynamic that was empty where the archive was made
        more = _of_setup(members, handed) if listed is None else None
        if more is None or _covers_all(information.requires, more[0]):
            return information.requires, "pkg-info"
        if _covers_all(more[0], information.requires):
            return more
    if listed is not None:
        return listed, "pyproject"
    # Poetry writes its own table into PKG-INFO, as it understood it
    poetry = poetry_requires(project)
    if poetry is not None:
        return (information.requires, "pkg-info") if information.requires else (poetry, "poetry")
    return _computed_requires(members, information, handed)


def _computed_requires(
    members: Mapping[str, str], information: Headers, handed: Handed | None
) -> tuple[Iterable[str], str]:
    """Return what setup.py says, else what came out of it on its author's machine."""
    packed = _packed_requires(members, information)
    plain = _of_setup(members, handed)
    # what was read has to hold all that the author's build gave: else something was not understood
    if plain is not None and _covers_all(plain[0], packed or ()):
        extras = [line for line in packed or () if "extra ==" in line]
        return [
            *(line for line in plain[0] if not extras or "extra ==" not in line),
            *extras,
        ], plain[1]
    if packed is None:
        return (), "none"
    setup = members.get("setup.py", "")
    if "install_requires" in setup or "**" in setup:
        return packed, "packed"
    return packed, "pkg-info" if information.requires else "egg-info"


def _packed_requires(members: Mapping[str, str], information: Headers) -> Texts | None:
    """Return what building gave on its author's machine, None where the archive does not say."""
    if information.requires:
        return information.requires
    egg = {
        path.rsplit("/", 1)[1]: text
        for path, text in sorted(members.items())
        if ".egg-info/" in path
    }
    return _clean_requires(egg_requires(egg.get("requires.txt", ""))) if egg else None


def _of_setup(members: Mapping[str, str], handed: Handed | None) -> tuple[Texts, str] | None:
    """Return what setup.py or setup.cfg say, None where running would be needed."""
    if handed is not None and not handed.ends and "install_requires" in handed.keywords:
        needs = handed.lines("install_requires")
        return None if needs is None else ((*needs, *(handed.extras() or ())), "setup.py")
    if handed is None and "setup.py" in members:
        return None
    from_cfg = cfg_requires(members.get("setup.cfg", ""), members)
    if from_cfg is not None:
        return tuple(from_cfg), "setup.cfg"
    has_egg_info = any(".egg-info/" in path for path in members)
    return ((), "setup.py") if handed is not None and not handed.ends and has_egg_info else None


def _covers_all(plain: Iterable[str], packed: Iterable[str]) -> bool:
    """Whether what was read holds all that the author's build gave."""
    read = {requirement.name.lower() for requirement in parse_requirements(tuple(plain))}
    return all(
        r.name.lower() in read
        for r in parse_requirements(tuple(packed))
        if "extra ==" not in str(r)
    )


def _stub_reason(
    backend: str,
    handed: Handed | None,
    requires: Collection[str],
    members: Mapping[str, str],
    names: Iterable[str],
) -> str | None:
    """Return why an archive is no release of anything."""
    if backend.partition(".")[0] in STUB_BACKENDS:
        return (
            "a placeholder without files of its own (built by "
            f"{backend.partition('.')[0].replace('_', '-')})"
        )
    if CALLS_PIP.search(members.get("setup.py", "")):
        return "a placeholder whose setup.py lets pip download the files from another index"
    if handed is not None and handed.ends:
        return "a placeholder whose setup.py only raises an error"
    holds_code = any(CODE.match(name) and not NO_CODE.match(name) for name in names)
    if not holds_code and not requires and RAISES.search(members.get("setup.py", "")):
        return "a placeholder: it holds no module, and its setup.py raises an error"
    return None


def _build_requires(project: Mapping[str, Any], handed: Handed | None) -> Texts:
    system = project.get("build-system")
    listed = system.get("requires") if isinstance(system, dict) else None
    first = _clean_requires(listed) if isinstance(listed, list) else LEGACY_BUILD
    more = handed.lines("setup_requires") if handed is not None else ()
    return tuple(dict.fromkeys((*first, *_clean_requires(more or ()))))


def _clean_requires(texts: Iterable[Any]) -> Texts:
    return tuple(
        str(requirement)
        for requirement in parse_requirements(
            tuple(text for text in texts if isinstance(text, str))
        )
    )


def _read_pyproject(text: str | None, where: str) -> dict[str, Any]:
    if text is None:
        return {}
    with contextlib.suppress(UsageError):
        return parse_toml(text, where)
    return {}


def _wanted_members(
    path: Path, name: str, names: set[str], code: OldCode
) -> Iterator[tuple[str, str]]:
    """Yield (inner path, text) of the files that are read; add all to ``names``, code to ``code``."""
    read = 0
    members = archive_members(path, as_zip=name.endswith(".zip"))
    for count, (member, read_member) in enumerate(members):
        if count > MOST_MEMBERS or read > MOST_READ:
            raise ValueError(
                f"more than {MOST_MEMBERS if count > MOST_MEMBERS else MOST_READ} members"
            )
        inner = _inside_top(member)
        names.add(inner)
        wanted, counts = WANTED.match(member), code.wants(inner)
        if not (wanted or counts):
            continue
        content = read_member(BIGGEST_MEMBER if wanted else LARGEST_CODE)
        text = "" if content is None else content.decode("utf-8", "replace")
        if counts:
            code.look(text[:LARGEST_CODE])
        if wanted and content is not None:
            read += 1
            yield inner, text


def _inside_top(name: str) -> str:
    """Return a member's path inside the top folder; a file beside it is as one inside."""
    path = name.removeprefix("./")
    return path.partition("/")[2] or path


# what code uses that newer releases of other packages have no more
LARGEST_CODE = 1024 * 1024
"""Bytes of one file that are looked at: what a generator wrote says at its start what it includes."""
MOST_CODE = 16 * 1024 * 1024
"""Characters of one archive that are looked at."""
PYTHON, COMPILED = (".py",), (".pyx", ".pxd", ".c", ".cc", ".cpp", ".h")
ASIDE = re.compile(
    r"(?:.*/)?(?:tests?|testing|docs?|examples?|benchmarks?)/|(?:.*/)?(?:setup|test_[^/]*)\.py\Z"
)
"""Code that no import of the package runs."""


@cache
def _patterns(*, compiled: bool) -> Pairs:
    """Return (what code says, the bound that it needs): of Python, or of what is compiled."""
    if compiled:
        majors = load_majors().major
        return tuple((one.includes, one.bound) for one in majors if one.includes)
    return tuple((row.says, row.bound) for row in load_names().old)


class OldCode:
    """The bounds that the code of one archive needs, as far as it was looked at."""

    def __init__(self) -> None:
        self._left = MOST_CODE
        self._found: dict[str, None] = {}
        self._kind = ""

    @property
    def bounds(self) -> Texts:
        """The bounds: "numpy<1.24"."""
        return tuple(sorted(self._found))

    def wants(self, inner: str) -> bool:
        """Whether a file is to be looked at next."""
        self._kind = PurePosixPath(inner).suffix
        is_code = self._kind in PYTHON or self._kind in COMPILED
        return is_code and self._left > 0 and not ASIDE.match(inner)

    def look(self, text: str) -> None:
        """Add what the text of that file needs."""
        self._left -= len(text)
        compiled = self._kind in COMPILED
        rows = [
            (says, bound) for says, bound in _patterns(compiled=compiled) if re.search(says, text)
        ]
        if rows and not compiled:
            unguarded = blank_guarded(text)
            rows = [(says, bound) for says, bound in rows if re.search(says, unguarded)]
        self._found.update((bound, None) for _, bound in rows)
