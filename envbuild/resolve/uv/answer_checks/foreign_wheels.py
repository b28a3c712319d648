"""Whether a release without a wheel for the base has wheels for others.

Such a project is made to be installed from wheels (OpenCV takes an hour of a compiler that a
runtime image does not have), and an older release mostly has one that fits.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from envbuild.context import Context
from envbuild.limits import read_kept
from envbuild.names import Texts
from envbuild.net.index import read_links
from envbuild.net.parallel import for_each_parallel
from envbuild.net.web import GoneError, make_client
from envbuild.resolve.pylock import Chosen
from envbuild.store.atomic import write_text

if TYPE_CHECKING:
    import httpx

COMPILED = re.compile(r"-cp3(\d+)-[a-z0-9]+-(?:many)?linux[A-Za-z0-9_.]*\.whl$")


@dataclass(frozen=True, slots=True)
class OtherWheels:
    """The Pythons ("3.8") of the compiled Linux wheels of a release, and of the one before it."""

    own: Texts
    before: Texts


def compiled_elsewhere(
    chosen: Iterable[Chosen], indexes: Mapping[str, str], context: Context
) -> dict[str, Texts]:
    """Map what comes as an sdist to the Pythons that its release has Linux wheels for.

    Raises NetworkError.
    """
    found = find_other_wheels(chosen, indexes, context)
    return {name: wheels.own for name, wheels in found.items() if wheels.own}


def find_other_wheels(
    chosen: Iterable[Chosen], indexes: Mapping[str, str], context: Context
) -> dict[str, OtherWheels]:
    """Return what wheels there are of what comes as an sdist.

    What was found out is kept by the sdist's sha256.  Raises NetworkError.
    """
    store = context.store
    store.folder("metadata")
    kept = {
        package: store.metadata(f"{package.sdist.sha256}.wheels")
        for package in chosen
        if package.sdist is not None
    }
    unknown = [package for package, path in kept.items() if not path.is_file()]
    if unknown:
        with make_client(context.settings) as client:

            def one(package: Chosen, stop: threading.Event) -> None:
                write_text(kept[package], _wheels_note(package, indexes, client, stop))

            for_each_parallel(unknown, one, workers=context.settings.downloads)
    return {package.name: _read_note(path) for package, path in kept.items()}


def source_note(chosen: Iterable[Chosen], pythons: Mapping[str, Texts], series: str) -> str:
    """Return what is said of releases that have wheels for other Pythons than the base's."""
    sources = sorted((one for one in chosen if one.name in pythons), key=lambda one: one.name)
    shared = set.intersection(*(set(pythons[one.name]) for one in sources))
    names = ", ".join(f"{one.name} {one.version}" for one in sources)
    has = "has" if len(sources) == 1 else "have"
    other = next((one for one in reversed(pythons[sources[0].name]) if one in shared), None)
    advice = f"with Python {other}" if other else "with another Python"
    return (
        f"{names} {has} no wheel for Python {series} of this base, only for others: the source is "
        "compiled when the image is built. What is older than a Python often cannot be compiled "
        f"for it: take a base {advice}, or other releases"
    )


def _read_note(path: Path) -> OtherWheels:
    try:
        lines = read_kept(path).decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        lines = []
    own, before, *_ = (*lines, "", "")
    return OtherWheels(tuple(own.split()), tuple(before.split()))


def _wheels_note(
    package: Chosen, indexes: Mapping[str, str], client: httpx.Client, stop: threading.Event
) -> str:
    """Return two lines: the Pythons of the release's compiled wheels, and of the release before."""
    for url in indexes.values():
        try:
            links = read_links(url, package.name, client, stop=stop)
        except GoneError:
            continue
        minors = _compiled_minors(link.file for link in links if not link.yanked)
        release = Version(package.version)
        older = [one for one in minors if one < release and not one.is_prerelease]
        before = minors[max(older)] if older else set()
        return "\n".join(
            " ".join(f"3.{minor}" for minor in sorted(one))
            for one in (minors.get(release, set()), before)
        )
    return ""


def _compiled_minors(files: Iterable[str]) -> dict[Version, set[int]]:
    """Map releases to the minors of Python 3 that their compiled Linux wheels are for.

    A release that is source only has none.
    """
    found: dict[Version, set[int]] = {}
    for file in files:
        match = COMPILED.search(file)
        try:
            if file.endswith(".whl"):
                version = parse_wheel_filename(file)[1]
            else:
                version = parse_sdist_filename(file)[1]
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
        # a pure wheel would have fitted the base: compiled ones tell of a compiler at work
        minors = found.setdefault(version, set())
        if match:
            minors.add(int(match[1]))
    return found
