"""What the package index knows of the packages that a project asks for: days, Pythons, modules.

Pages and the ends of wheels are read; nothing is downloaded whole, built or run.
"""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement as Pep508
from packaging.specifiers import Specifier
from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.limits import read_kept
from envbuild.net.index import Link, index_url, make_client, read_links
from envbuild.net.parallel import for_each_parallel
from envbuild.net.web import GoneError
from envbuild.progress import Stage
from envbuild.project.draft.propose import allows_python
from envbuild.project.lists.freeze import NAME_ALONE
from envbuild.project.model import Release, Requirement
from envbuild.resolve.pylock import Candidate
from envbuild.resolve.sources.artifacts import describe_files, wheel_members
from envbuild.resolve.stubs import parse_requirements
from envbuild.store.atomic import write_text
from envbuild.store.units import count_noun

if TYPE_CHECKING:
    import httpx

DEEPEST_CLOSURE = 3
"""Packages below one another in which modules are looked for that no table knows."""
MOST_LOOKED_UP = 250
MINORS = tuple(f"3.{minor}" for minor in range(6, 15))
FILE = re.compile(
    r"^[A-Za-z0-9._]+?-(\d[A-Za-z0-9.!+_]*?)(?:-.*\.whl|\.tar\.gz|\.zip|\.tar\.bz2|\.tgz)$"
)
WHEEL = re.compile(r"-([A-Za-z0-9_.]+)-([A-Za-z0-9_.]+)-([A-Za-z0-9_.]+)\.whl$")
LINUX = re.compile(r"any|linux_x86_64|manylinux\w*_x86_64")
OWN = re.compile(r"[^/]+\.(dist-info|data|libs)$")
NOT_THERE = Release(day=None, pythons=(), exact=False, there=False)


@dataclass(slots=True)
class _Pages:
    """What the pages of an index say."""

    releases: dict[str, Release] = field(default_factory=dict)
    files: dict[str, Candidate] = field(default_factory=dict)


def look_up(
    requirements: Iterable[Requirement], wanted: frozenset[str], context: Context, stage: Stage
) -> tuple[dict[str, Release], dict[str, str]]:
    """Return the releases that requirements name, and distributions by module.

    Modules of ``wanted`` are also looked for in what the requirements require, directly or not.
    A package that the index does not tell of is missing in both.  Raises NetworkError.
    """
    names = {requirement.name: requirement for requirement in requirements}
    pages, modules = _read_pages(names.values(), context, stage)
    releases = pages.releases
    for _ in range(DEEPEST_CLOSURE):
        if wanted <= modules.keys():
            break
        further = _required_by(filter(_is_wheel, pages.files.values()), context)
        new = {name: one for name, one in further.items() if name not in names}
        names |= new
        if not new or len(names) > MOST_LOOKED_UP:
            break
        pages, found = _read_pages(new.values(), context, stage)
        modules = {**{one: found[one] for one in wanted & found.keys()}, **modules}
    return releases, modules


def _required_by(wheels: Iterable[Candidate], context: Context) -> dict[str, Requirement]:
    """Return what wheels require on Linux without any extra, by name."""
    found: dict[str, Requirement] = {}
    for about in describe_files(wheels, context).values():
        for one in parse_requirements(about.requires):
            name = canonicalize_name(one.name)
            if one.marker is None or one.marker.evaluate({"sys_platform": "linux", "extra": ""}):
                found[name] = Requirement(text=f"{name}{one.specifier}", name=name, where="")
    return found


def pinned_files(
    requirements: Iterable[Requirement], context: Context, stage: Stage
) -> dict[str, Candidate]:
    """Return one file of each pinned release by name, a wheel if there is one.  NetworkError.

    Of what a dump names without a release the newest one counts.
    """
    told = [one for one in requirements if "==" in one.text or NAME_ALONE.fullmatch(one.text)]
    return _read_pages(told, context, stage, with_modules=False)[0].files


def _is_wheel(file: Candidate) -> bool:
    return file.file.endswith(".whl")


def _read_pages(
    requirements: Collection[Requirement],
    context: Context,
    stage: Stage,
    *,
    with_modules: bool = True,
) -> tuple[_Pages, dict[str, str]]:
    index = index_url(context)
    pages = _Pages()
    modules: dict[str, str] = {}
    unread: list[str] = []
    folder = context.store.folder("metadata")
    stage.expect(len(requirements))
    with make_client(context.settings) as client:

        def one(requirement: Requirement, stop: threading.Event) -> None:
            try:
                links = read_links(index, requirement.name, client, stop=stop)
                _read_page(requirement, links, pages)
                wheel = pages.files.get(requirement.name) if with_modules else None
                if wheel is not None and _is_wheel(wheel):
                    for module in _wheel_modules(wheel, client, folder):
                        modules.setdefault(module, requirement.name)
            except GoneError:
                pages.releases[requirement.name] = NOT_THERE
            except EnvbuildError as error:
                unread.append(str(error))
            finally:
                stage.advance()

        for_each_parallel(list(requirements), one, workers=context.settings.downloads + 4)
    if unread:
        count = count_noun(len(unread), "package")
        context.report.say(f"the index did not tell of {count}: {min(unread)}")
    return pages, modules


def _read_page(requirement: Requirement, links: Iterable[Link], pages: _Pages) -> None:

    asked = Pep508(requirement.text)
    files: dict[Version, list[Link]] = {}
    for link in links:
        version = _file_version(link.file)
        if version is not None and not link.yanked:
            files.setdefault(version, []).append(link)
    pinned = _asked_version(asked, files)
    exact = any(map(_names_patches, asked.specifier))
    latest = _upload_day(chain.from_iterable(files.values()))
    release = _pinned_release(files[pinned] if pinned else [], exact=exact, latest=latest)
    days = (release.day, _last_admitted(asked, files))
    release = replace(release, day=max(filter(None, days), default=None))
    pages.releases[requirement.name] = release
    chosen = pinned or max(filter(asked.specifier.contains, files), default=None)
    links = files[chosen] if chosen else []
    hashed = [link for link in links if link.sha256]
    if hashed:
        smallest = min(hashed, key=lambda link: (not link.file.endswith(".whl"), link.size or 0))
        pages.files[requirement.name] = Candidate(
            file=smallest.file, url=smallest.url, sha256=smallest.sha256 or "", size=smallest.size
        )


def _names_patches(bound: Specifier) -> bool:
    """Whether a bound admits one release, or patches of one: ==1.2.3, ==1.2.*, ~=1.2.3."""
    parts = bound.version.count(".")
    series = bound.operator == "==" and bound.version.endswith(".*")
    if series or bound.operator == "~=":
        return parts >= 2
    return bound.operator in ("==", "===")


def _last_admitted(asked: Pep508, files: Mapping[Version, list[Link]]) -> dt.date | None:
    """Return the day of the release that "<=" names: whoever wrote it knew that one."""
    for bound in asked.specifier:
        if bound.operator == "<=" and Version(bound.version) in files:
            return _upload_day(files[Version(bound.version)], first=True)
    return None


def _file_version(file: str) -> Version | None:

    match = FILE.match(file)
    try:
        return Version(match[1]) if match else None
    except ValueError:
        return None


def _asked_version(asked: Pep508, files: Mapping[Version, object]) -> Version | None:
    """Return the release that a requirement pins or starts from, None if it is not there."""
    for operators in (("==", "==="), ("~=", ">=", ">")):
        for bound in asked.specifier:
            if bound.operator not in operators:
                continue
            try:
                version = Version(re.sub(r"(\.\*|\+.*)$", "", bound.version))
            except ValueError:
                continue
            later = sorted(
                one
                for one in files
                if one >= version and asked.specifier.contains(one, prereleases=True)
            )
            return version if version in files else next(iter(later), None)
    return None


def _upload_day(links: Iterable[Link], *, first: bool = False) -> dt.date | None:
    """Return the day of the last upload, or of the first."""
    days = sorted(link.uploaded[:10] for link in links if link.uploaded)
    if not days:
        return None
    return dt.date.fromisoformat(days[0] if first else days[-1])


def _pinned_release(links: list[Link], *, exact: bool, latest: dt.date | None) -> Release:
    found = [WHEEL.search(link.file) for link in links]
    wheels = [tags for tags in found if tags and LINUX.search(tags[3])]
    allowed = next((link.requires_python for link in links if link.requires_python), None)
    pythons = [minor for minor in MINORS if allows_python(allowed or "", minor)]
    if wheels:
        pythons = [
            minor for minor in pythons if any(_runs_on(tags[1], tags[2], minor) for tags in wheels)
        ]
    return Release(
        day=_upload_day(links, first=True),
        pythons=tuple(pythons),
        exact=exact and bool(links),
        latest=latest,
    )


def _runs_on(python: str, abi: str, minor: str) -> bool:
    """Whether a wheel with these tags runs on a Python series; abi3 on later ones too."""
    wanted = int(minor.partition(".")[2])
    for tag in python.split("."):
        exact = re.fullmatch(r"cp3(\d+)", tag)
        if re.fullmatch(r"py3\d*", tag) or (exact and int(exact[1]) == wanted):
            return True
        if exact and "abi3" in abi and int(exact[1]) <= wanted:
            return True
    return False


def _wheel_modules(wheel: Candidate, client: httpx.Client, folder: Path) -> list[str]:
    """Return the names that a wheel's files can be imported by; kept by the wheel's sha256."""
    kept = folder / f"{wheel.sha256}.modules"
    try:
        return read_kept(kept).decode("utf-8").split()
    except (OSError, UnicodeDecodeError):
        names = top_modules(wheel_members(wheel, client))
        write_text(kept, "\n".join(names))
        return names


def top_modules(members: Iterable[str]) -> list[str]:
    """Return the modules at the top of a wheel: packages, single files, compiled ones."""
    found: set[str] = set()
    for member in members:
        first, slash, rest = re.sub(r"^[^/]+\.data/(pure|plat)lib/", "", member).partition("/")
        if OWN.match(first):
            continue
        single = re.fullmatch(r"(\w+)(\.[\w-]+)?\.(py|so|pyd)", first)
        if slash and rest.endswith((".py", ".so", ".pyi")):
            found.add(first)
        elif not slash and single:
            found.add(single[1])
    return sorted(found)
