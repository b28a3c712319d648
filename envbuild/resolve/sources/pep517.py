"""What builds need beyond what archives declare (PEP 517, get_requires_for_build_wheel).

scikit-build-core wants cmake where there is none, old setuptools want wheel: no file of an archive
says so, only the build backend.  Which backend asks for what is data; one is run only where the
user lets archives run on this machine.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from packaging.requirements import Requirement

from envbuild.data.package_tables import BackendNeeds, load_backends
from envbuild.errors import EnvbuildError, IntegrityError, NetworkError, UsageError
from envbuild.limits import BACKEND_SECONDS, UNREADABLE, Room, decode_kept, most_content, reading
from envbuild.names import Pairs, Texts
from envbuild.resolve.platform import python_minor
from envbuild.resolve.pylock import Candidate, Chosen
from envbuild.resolve.sources.artifacts import About
from envbuild.resolve.sources.sdists import LEGACY_BACKEND
from envbuild.resolve.stubs import parse_requirements
from envbuild.resolve.uv.session import Session
from envbuild.resolve.uv.time_limit import WITHOUT_BUILDS
from envbuild.run import Command
from envbuild.script_files import read_script
from envbuild.store.atomic import os_errors_as, write_bytes
from envbuild.store.hashing import hash_text
from envbuild.store.layout import Store
from envbuild.tarread import opened_members
from envbuild.toml import read_toml

MARK = "build requirements: "


def backend_of(project: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """Return the backend of a pyproject.toml and where it lies; None for an improper one."""
    system = project.get("build-system", {})
    backend, path = system.get("build-backend", LEGACY_BACKEND), system.get("backend-path", [])
    if not isinstance(backend, str) or not isinstance(path, list):
        return None
    return backend, [str(item) for item in path]


def _known_asks(name: str, backend: str, tools: Mapping[str, Chosen]) -> Texts:
    """Return what the table says that a package's backend asks for, with these build tools."""
    rows = (row for row in load_backends().backend if row.name == backend)
    return tuple(chain.from_iterable(row.asks for row in rows if _row_applies(row, name, tools)))


def _row_applies(row: BackendNeeds, name: str, tools: Mapping[str, Chosen]) -> bool:
    if row.of not in (None, name):
        return False
    if row.where is None:
        return True
    bound = Requirement(row.where)
    chosen = tools.get(bound.name)
    return chosen is not None and bound.specifier.contains(
        chosen.version.partition("+")[0], prereleases=True
    )


def ask_backends(
    session: Session,
    archives: Mapping[str, Path],
    abouts: Mapping[str, About],
    tools: Mapping[str, Chosen],
) -> Pairs:
    """Return (sdist, build requirement) beyond what is declared, with the chosen ``tools``.

    ``archives`` and ``abouts`` are by package name.  An archive whose backend fails where it may
    run adds nothing: its own words come when it is built in the base.  Raises NetworkError for a
    backend that does not end.
    """
    known: list[tuple[str, str]] = []
    for name in sorted(archives):
        known += [(name, text) for text in _known_asks(name, abouts[name].backend, tools)]
    if not session.context.settings.host_builds or session.python_minor != python_minor(
        session.facts
    ):
        return tuple(known)
    return (*known, *_asked_here(session, archives, tools))


def _asked_here(
    session: Session, archives: Mapping[str, Path], tools: Mapping[str, Chosen]
) -> list[tuple[str, str]]:
    """Run the backends on this machine, which the user has allowed."""
    pins = [
        f"{name}=={chosen.version}"
        for name, chosen in sorted(tools.items())
        if not chosen.from_base
    ]
    memory = session.context.store.folder("metadata")
    found: list[tuple[str, str]] = []
    with session.context.store.outside(session.context.settings.tmpdir) as place:
        installed = False
        for package, archive in sorted(archives.items()):
            key = hash_text("\n".join([archive.name, session.python, *pins]))
            remembered = memory / f"asked-{key}.json"
            texts = decode_kept(remembered, list[str])
            if texts is None:
                session.context.report.say(
                    f"{package}: its build backend is asked on this machine (--allow-host-builds)"
                )
                if not installed:
                    installed = _install_tools(session, pins, place / "tools")
                texts = _ask_backend(session, package, archive, place) if installed else []
                with suppress(EnvbuildError):
                    write_bytes(remembered, msgspec.json.encode(texts))
            found += [
                (package, str(requirement)) for requirement in parse_requirements(tuple(texts))
            ]
    return found


def _install_tools(session: Session, pins: Sequence[str], folder: Path) -> bool:
    """Put the wheels of the build tools into a folder; tell whether that was possible."""
    if not pins:
        return True
    result = session.install(pins, folder)
    if result.code:
        session.context.report.detail(
            f"the build tools cannot be had on this host: {result.last_lines()}"
        )
    return result.code == 0


def _ask_backend(session: Session, package: str, archive: Path, place: Path) -> list[str]:
    """Return what a backend asks for.  Raises NetworkError for one that does not end."""
    try:
        top = unpack_archive(archive, place / archive.name)
    except IntegrityError as error:
        session.context.report.detail(str(error))
        return []
    backend = _backend_in(top)
    if backend is None:
        return []
    # a backend sees nothing of the user's environment
    env = {
        "PATH": f"{place / 'tools' / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": str(place / "tools"),
        "PYTHONNOUSERSITE": "1",
        "HOME": str(place),
        "TMPDIR": str(place),
        "LC_ALL": "C.UTF-8",
    }
    script = read_script("envbuild.resolve.sources", "scripts/ask_backend.py", mark=MARK)
    argv = (session.python, "-c", script, json.dumps(backend))
    result = session.context.runner(
        Command(argv=argv, cwd=top, env=env, timeout=BACKEND_SECONDS), check=False
    )
    if result.timed_out:
        raise NetworkError(
            f"{package}: its build backend did not answer within {BACKEND_SECONDS:.0f} s on this "
            "machine",
            hint=WITHOUT_BUILDS,
        )
    answers = [line for line in result.stdout.splitlines() if line.startswith(MARK)]
    if result.code or not answers:
        session.context.report.detail(
            f"the build backend gave no answer on this host: {result.last_lines()}"
        )
        return []
    with suppress(*UNREADABLE):
        return msgspec.json.decode(answers[-1].removeprefix(MARK), type=list[str])
    return []


def _backend_in(top: Path) -> tuple[str, list[str]] | None:
    path = top / "pyproject.toml"
    project: Mapping[str, Any] = {}
    with suppress(UsageError):
        project = read_toml(path)[0] if path.is_file() else {}
    named = backend_of(project)
    return None if named is None else (named[0], [str(top / item) for item in named[1]])


def archives_of(files: Mapping[str, Candidate], store: Store) -> dict[str, Path]:
    """Return where the sdists among the chosen files lie in the store, by package name."""
    return {
        name: store.artifact(file.sha256)
        for name, file in files.items()
        if not file.file.endswith(".whl")
    }


def unpack_archive(archive: Path, folder: Path) -> Path:
    """Unpack a tar or zip; return its one top folder, or ``folder`` where it has several.

    Python's own filters for tar archives came with 3.11.4 and are missing before, so nothing of a
    tar but its bytes and whether a file can be run is taken over.  Raises IntegrityError for an
    archive that is damaged or leads outside, SpaceError for a full disk.
    """
    with os_errors_as(folder), reading("this source archive cannot be unpacked", archive.name):
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                content = Room(most_content(archive.stat().st_size), "it unpacks to")
                content.take(sum(info.file_size for info in zipped.infolist()))
                zipped.extractall(folder)  # noqa: S202  (zipfile drops what leads out, and makes no links)
        else:
            with opened_members(archive) as (tar, found):
                for member in found:
                    _unpack_member(tar, member, folder)
    inner = list(folder.iterdir())
    return inner[0] if len(inner) == 1 and inner[0].is_dir() else folder


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a folder or file; a link to another member becomes a copy of it."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{member.name} leads out of it")
    target = folder / path
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    if not (member.isreg() or member.islnk() or member.issym()):
        raise ValueError(f"{member.name} is a device or a pipe")
    try:
        source = tar.extractfile(member)
    except KeyError:
        return  # a link to what the archive does not hold
    if source is None:
        return  # a link to a folder
    target.parent.mkdir(parents=True, exist_ok=True)
    with source, target.open("wb") as out:
        shutil.copyfileobj(source, out)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)
