"""envbuild itself as wheels: the running code packed anew, and what it needs as published."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Collection, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.tags import compatible_tags, cpython_tags, platform_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from envbuild import __version__
from envbuild.build.packages.wheel_writer import write_wheel
from envbuild.context import Context
from envbuild.errors import HostError, NetworkError, UsageError
from envbuild.names import Paths, Texts
from envbuild.net.fetch import Artifact, ask_sizes, fetch_artifacts
from envbuild.net.index import Link, index_url, make_client, read_links
from envbuild.records import frozen_record
from envbuild.resolve.conflict.explain import translate_failure
from envbuild.resolve.uv.query import uv_environment
from envbuild.run import Command
from envbuild.settings import shipped_folder
from envbuild.store.atomic import os_errors_as
from envbuild.store.units import join_numbers
from envbuild.tools import uv_program

NAME = "envbuild"
PACKAGE = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""What envbuild runs on."""
UV_SECONDS = 300.0
WITHOUT = "envbuild bundle --no-tool leaves envbuild itself out"


@frozen_record
class OwnWheels:
    """envbuild as wheels, and the Pythons ("3.11") that it can be installed for with them."""

    wheels: Paths
    pythons: Texts


def own_wheels(folder: Path, context: Context) -> OwnWheels:
    """Put envbuild's wheel and those of what it needs, for this machine, into a folder.

    They are for this Python, and for the other supported ones that the index has all wheels for.
    Raises NetworkError (GoneError) where it lacks one for this Python.
    """
    wanted, pythons = _wanted(context)
    fetch_artifacts(wanted, context)
    paths = [write_own_wheel(folder)]
    for item in wanted:
        path = folder / item.file
        with os_errors_as(path):
            path.symlink_to(context.store.artifact(item.sha256))
        paths.append(path)
    return OwnWheels(wheels=tuple(sorted(paths)), pythons=pythons)


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
            if not _holds(requirement.marker, extras=extras):
                continue
            other = (str(canonicalize_name(requirement.name)), frozenset(requirement.extras))
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    del found[NAME]
    return found


def _holds(
    marker: Marker | None, python: str | None = None, *, extras: Collection[str] = ()
) -> bool:
    """Tell whether a requirement with this marker counts: for this Python, or for a series."""
    environment: dict[str, str] = {**default_environment()}  # type: ignore[dict-item]  # a TypedDict of strings
    if python is not None:
        environment |= {"python_version": python, "python_full_version": f"{python}.0"}
    return marker is None or any(
        marker.evaluate({**environment, "extra": extra}) for extra in (*extras, "")
    )


def _wanted(context: Context) -> tuple[tuple[Artifact, ...], Texts]:
    """Return the wheels to put into a bundle, and the Pythons that they are for."""
    here = _this_python()
    index = index_url(context)
    resolved = _resolved(index, context)
    found: dict[str, Artifact] = {}
    pythons = []
    with make_client(context.settings) as client:
        pages = {
            name: read_links(index, name, client)
            for name in sorted({name for name, _, _ in resolved})
        }
        for python in sorted({*PYTHONS, here}, key=Version):
            try:
                links = [
                    (name, _best(pages[name], name, version, python))
                    for name, version, marker in resolved
                    if _holds(marker, python)
                ]
            except NetworkError as error:
                if python == here:
                    raise
                context.report.say(f"the bundle holds no envbuild for Python {python}: {error}")
                continue
            pythons.append(python)
            for name, link in links:
                if link.sha256 is None:
                    raise NetworkError(f"the index gives no hash of {link.file}", where=name)
                size = link.size
                if size is None:
                    size = ask_sizes([link.url], client)[link.url]
                found[link.file] = Artifact(
                    file=link.file, size=size, sha256=link.sha256, kind="python", project=name
                )
    return tuple(found.values()), tuple(pythons)


def _resolved(index: str, context: Context) -> list[tuple[str, str, Marker | None]]:
    """Return name, version and condition of what envbuild needs on all its Pythons: installed versions where it can."""
    with context.store.outside(context.settings.tmpdir) as place:
        _write_needs(place)
        argv = (
            uv_program(context.settings), "pip", "compile", "--quiet", "--universal", "--no-header", "--no-annotate",
            "--no-config", "--python", sys.executable, "--python-version", PYTHONS[0],
            "--constraints", "installed.txt", "--output-file", "needed.txt", "needed.in",
        )  # fmt: skip
        # the address goes by the environment: it may hold a password
        env = uv_environment(context.settings) | {"UV_DEFAULT_INDEX": index}
        command = Command(argv=argv, env=env, cwd=place, timeout=UV_SECONDS)
        result = context.runner(command, check=False)
        if result.code:
            failure = translate_failure(result.stderr)
            kind = NetworkError if isinstance(failure, NetworkError) else HostError
            raise kind(f"what envbuild needs could not be resolved: {failure}", hint=WITHOUT)
        lines = (place / "needed.txt").read_text("utf-8").splitlines()
    rows = []
    for line in lines:
        if line and not line.startswith("#"):
            pin = Requirement(line)
            version = str(pin.specifier).removeprefix("==")
            rows.append((str(canonicalize_name(pin.name)), version, pin.marker))
    return rows


def _write_needs(place: Path) -> None:
    """Write the question for uv: what envbuild requires, and the versions installed here."""
    listed = metadata.distribution(NAME).requires or ()
    own = [text for text in listed if _holds(Requirement(text).marker)]
    pins = [f"{name}=={version}" for name, version in needed().items()]
    here = f"python_version == '{_this_python()}'"
    held = "".join(f"{pin} ; {here}\n" for pin in pins)
    with os_errors_as(place):
        (place / "needed.in").write_text("\n".join(own), "utf-8")
        (place / "installed.txt").write_text(held, "utf-8")
        # what uv finds in its output file, it prefers
        (place / "needed.txt").write_text("".join(f"{pin}\n" for pin in pins), "utf-8")


def _this_python() -> str:
    return join_numbers(sys.version_info[:2])


def _best(links: Sequence[Link], name: str, version: str, python: str) -> Link:
    """Return the wheel of a version that fits a Python of this machine best."""
    major, minor = map(int, python.split("."))
    platforms = list(platform_tags())
    known = (
        *cpython_tags((major, minor), platforms=platforms),
        *compatible_tags((major, minor), platforms=platforms),
    )
    ranks = {tag: number for number, tag in enumerate(known)}
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
        raise NetworkError(
            f"the index has no wheel of {name} {version} for Python {python}",
            where=name,
            hint=WITHOUT,
        )
    return min(fitting)[2]


def write_own_wheel(folder: Path) -> Path:
    """Pack the running envbuild as a wheel (its specification: PEP 427), with recipes and locks; return its path.

    The same code gives the same bytes.
    """
    distribution = metadata.distribution(NAME)
    stem = f"{NAME}-{__version__}"
    files = dict(_code())
    for name in ("METADATA", "entry_points.txt"):
        text = distribution.read_text(name)
        if text is None:
            raise UsageError(
                f"envbuild's own {name} is not here: it was not installed",
                hint="pip install envbuild",
            )
        files[f"{stem}.dist-info/{name}"] = text.encode()
    in_order = dict(sorted(files.items()))
    return write_wheel(folder, stem, in_order, compression=zipfile.ZIP_DEFLATED)


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
