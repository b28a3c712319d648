"""envbuild itself as wheels: the running code packed anew, and what it needs as published."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from envbuild import __version__
from envbuild.errors import NetworkError, UsageError
from envbuild.progress import Reporter
from envbuild.run import Runner
from envbuild.settings import Settings, shipped_folder
from envbuild.store.atomic import telling
from envbuild.store.fetch import Wanted, fetch, sizes
from envbuild.store.index import Link, index_url, make_client, read_links
from envbuild.store.layout import Store

if TYPE_CHECKING:
    import httpx

NAME = "envbuild"
PACKAGE = Path(__file__).resolve().parents[1]
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The first time that a zip archive can tell: the same code gives the same bytes."""


def own_wheels(folder: Path, settings: Settings, store: Store, runner: Runner, report: Reporter) -> tuple[Path, ...]:
    """Put envbuild's wheel and those of what it needs, for this Python and machine, into a folder; return them.

    Raises NetworkError (GoneError) where the index does not have a wheel of an installed version any more.
    """
    wanted = tuple(_wanted(needed(), settings, runner))
    fetch(wanted, settings=settings, store=store, runner=runner, report=report)
    paths = [write_wheel(folder)]
    for item in wanted:
        path = folder / item.file
        with telling(path):
            path.symlink_to(store.artifact(item.sha256))
        paths.append(path)
    return tuple(sorted(paths))


def needed() -> dict[str, str]:
    """Return the installed versions of everything that envbuild needs, by canonical name."""
    found: dict[str, str] = {}
    waiting = [(NAME, frozenset[str]())]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        distribution = metadata.distribution(name)
        found[name] = distribution.version
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if not _holds(requirement, extras):
                continue
            other = (str(canonicalize_name(requirement.name)), frozenset(requirement.extras))
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    del found[NAME]
    return found


def _holds(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    environment: dict[str, str] = {**default_environment()}  # type: ignore[dict-item]  # a TypedDict of strings
    return marker is None or any(marker.evaluate({**environment, "extra": extra}) for extra in (*extras, ""))


def _wanted(versions: dict[str, str], settings: Settings, runner: Runner) -> Iterator[Wanted]:
    index = index_url(settings, runner)
    with make_client(settings) as client:
        for name, version in sorted(versions.items()):
            link = _best(read_links(index, name, client), name, version)
            if link.sha256 is None:
                raise NetworkError(f"the index tells no hash of {link.file}", where=name)
            yield Wanted(file=link.file, size=_size(link, client), sha256=link.sha256, kind="python", project=name)


def _size(link: Link, client: httpx.Client) -> int:
    return link.size if link.size is not None else sizes([link.url], client)[link.url]


def _best(links: tuple[Link, ...], name: str, version: str) -> Link:
    """Return the wheel of a version that fits this Python best."""
    ranks = {tag: number for number, tag in enumerate(sys_tags())}
    fitting = []
    for link in links:
        try:
            _, found, _, tags = parse_wheel_filename(link.file)
        except InvalidWheelFilename:
            continue
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=None)
        if rank is not None and found == Version(version):
            fitting.append((rank, link.file, link))
    if not fitting:
        hint = "envbuild bundle --no-tool leaves envbuild itself out"
        raise NetworkError(f"the index has no wheel of {name} {version} for this Python", where=name, hint=hint)
    return min(fitting)[2]


def write_wheel(folder: Path) -> Path:
    """Pack the running envbuild as a wheel (its specification: PEP 427), with recipes and locks; return its path.

    The same code gives the same bytes.
    """
    distribution = metadata.distribution(NAME)
    about = f"{NAME}-{__version__}.dist-info"
    files = dict(_code())
    for name in ("METADATA", "entry_points.txt"):
        text = distribution.read_text(name)
        if text is None:
            raise UsageError(f"envbuild's own {name} is not here: it was not installed", hint="pip install envbuild")
        files[f"{about}/{name}"] = text.encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: envbuild\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = [f"{name},sha256={_hash(data)},{len(data)}\n" for name, data in sorted(files.items())]
    files[f"{about}/RECORD"] = "".join([*rows, f"{about}/RECORD,,\n"]).encode()
    path = folder / f"{NAME}-{__version__}-py3-none-any.whl"
    with telling(path), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            info = zipfile.ZipInfo(name, EARLIEST)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return path


def _code() -> Iterator[tuple[str, bytes]]:
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"{NAME}/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()
    shipped = shipped_folder()
    if shipped.parent == PACKAGE:
        return  # they lie in the package already
    for folder in ("recipes", "lockfiles"):
        for path in sorted((shipped / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{NAME}/shipped/{path.relative_to(shipped).as_posix()}", path.read_bytes()


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
