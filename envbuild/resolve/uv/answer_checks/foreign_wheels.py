"""Whether a release without a wheel for the base has wheels for others.

Such a project is made to be installed from wheels (OpenCV takes an hour of a compiler that a
runtime image does not have), and an older release mostly has one that fits.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from envbuild.context import Context
from envbuild.names import Texts
from envbuild.net.index import read_links
from envbuild.net.parallel import for_each_parallel
from envbuild.net.web import GoneError, make_client
from envbuild.resolve.pylock import Chosen
from envbuild.store.atomic import write_text

if TYPE_CHECKING:
    import httpx

COMPILED = re.compile(r"-cp3(\d+)-[a-z0-9]+-(?:many)?linux[A-Za-z0-9_.]*\.whl$")


def compiled_elsewhere(
    chosen: Iterable[Chosen], indexes: Mapping[str, str], context: Context
) -> dict[str, Texts]:
    """Map what comes as an sdist to the Pythons ("3.8") that its release has Linux wheels for.

    What was found out is kept by the sdist's sha256.  Raises NetworkError.
    """
    store = context.store
    store.folder("metadata")
    kept = {
        package: store.metadata(f"{package.sdist.sha256}.pythons")
        for package in chosen
        if package.sdist is not None
    }
    unknown = [package for package, path in kept.items() if not path.is_file()]
    if unknown:
        with make_client(context.settings) as client:

            def one(package: Chosen, stop: threading.Event) -> None:
                write_text(kept[package], " ".join(_wheel_pythons(package, indexes, client, stop)))

            for_each_parallel(unknown, one, workers=context.settings.downloads)
    found = {package.name: _read_note(path) for package, path in kept.items()}
    return {name: pythons for name, pythons in found.items() if pythons}


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


def _read_note(path: Path) -> Texts:
    try:
        return tuple(path.read_text("utf-8").split())
    except OSError:
        return ()


def _wheel_pythons(
    package: Chosen, indexes: Mapping[str, str], client: httpx.Client, stop: threading.Event
) -> list[str]:
    for url in indexes.values():
        try:
            links = read_links(url, package.name, client, stop=stop)
        except GoneError:
            continue
        minors: set[int] = set()
        for link in links:
            # a pure wheel would have fitted the base: compiled ones tell of a compiler at work
            if match := COMPILED.search(link.file):
                try:
                    version = parse_wheel_filename(link.file)[1]
                except InvalidWheelFilename:
                    continue
                if version == Version(package.version):
                    minors.add(int(match[1]))
        return [f"3.{minor}" for minor in sorted(minors)]
    return []
