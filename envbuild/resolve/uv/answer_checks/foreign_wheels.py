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
from envbuild.net.index import read_links
from envbuild.net.parallel import for_each_parallel
from envbuild.net.web import GoneError, make_client
from envbuild.resolve.pylock import Chosen
from envbuild.store.atomic import write_text

if TYPE_CHECKING:
    import httpx

COMPILED = re.compile(r"-cp3\d+-[a-z0-9]+-(?:many)?linux[A-Za-z0-9_.]*\.whl$")
YES, NO = "wheels\n", "none\n"


def compiled_elsewhere(
    chosen: Iterable[Chosen], indexes: Mapping[str, str], context: Context
) -> frozenset[str]:
    """Return the names that come as sdists though the release has compiled Linux wheels.

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
                found = _has_wheels(package, indexes, client, stop)
                write_text(kept[package], YES if found else NO)

            for_each_parallel(unknown, one, workers=context.settings.downloads)
    return frozenset(package.name for package, path in kept.items() if _read_note(path) == YES)


def _read_note(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError:
        return NO


def _has_wheels(
    package: Chosen, indexes: Mapping[str, str], client: httpx.Client, stop: threading.Event
) -> bool:
    for url in indexes.values():
        try:
            links = read_links(url, package.name, client, stop=stop)
        except GoneError:
            continue
        for link in links:
            # a pure wheel would have fitted the base: compiled ones tell of a compiler at work
            if COMPILED.search(link.file):
                try:
                    version = parse_wheel_filename(link.file)[1]
                except InvalidWheelFilename:
                    continue
                if version == Version(package.version):
                    return True
        return False
    return False
