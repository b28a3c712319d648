"""Source trees as archives: the same files of a folder or commit give the same bytes."""

from __future__ import annotations

import functools
import os
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.context import Context
from envbuild.errors import HostError, StaleLockError, UsageError
from envbuild.limits import QUESTION_SECONDS, WHOLE, reading
from envbuild.net.index import index_url
from envbuild.recipe.trees import PASSED_OVER, TreeLine, read_source
from envbuild.records import frozen_record
from envbuild.resolve.sources.git import checkout, is_repository, listed_files
from envbuild.resolve.sources.metadata import headers
from envbuild.resolve.sources.project_name import name_and_version
from envbuild.resolve.uv.query import building_environment
from envbuild.run import Command
from envbuild.store.atomic import commit_file, os_errors_as
from envbuild.store.hashing import hash_rest
from envbuild.store.units import human_bytes
from envbuild.tarread import opened_members
from envbuild.tools import uv_program

TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can say; every member has it."""
LARGEST = 256 * 1024 * 1024
"""Bytes of a tree: more is data that somebody left beside the code."""
OURS = frozenset({"recipes", "lockfiles"})
"""Folders at the top of a project that envbuild reads and writes: in the archive, a lock would
change itself."""
IMAGES = (".sif", ".sandbox")
LAYERS = re.compile(r".*\.dev(\.json|-[0-9a-f]{12}\.(sqfs|sif))", re.DOTALL)
"""Development layers, which lie beside images."""
SANDBOX_NOTE = ".envbuild-sandbox.json"
"""At the top of every sandbox: what it was when it was built."""


@frozen_record
class SourceTree:
    """A tree for a lock: ``source`` as TreeLine.source, ``path`` its archive in the store."""

    name: str
    version: str
    source: str
    file: str
    size: int
    sha256: str
    path: Path


@frozen_record
class SourceTreeContext:
    """Where trees come from and go to: project, store, and the Python that builds."""

    project: Path
    context: Context
    python: str


def take_tree(
    line: TreeLine, places: SourceTreeContext, *, locked: str | None = None
) -> SourceTree:
    """Pack a tree into the store and return it.

    ``locked`` is the ``source`` of an old lock: its commit is kept.  Raises UsageError for what is
    no Python project, NetworkError for a repository or commit that is not there.
    """
    if line.folder is not None:
        folder = places.project / line.folder
        if not folder.resolve().is_relative_to(places.project.resolve()):
            raise UsageError("is a link that leaves the project's folder", where=folder)
        return _pack_tree(line, folder, line.folder, places)
    # the commit of the old lock stays until the package is to be upgraded
    kept = re.search(r"@([0-9a-f]{40})(?:#|$)", locked or "")
    revision = kept[1] if kept else line.revision
    with _work_folder(places.context) as work:
        found = checkout(line.url, revision, work / "tree", places.context, below=line.subfolder)
        return _pack_tree(line, work / "tree" / line.subfolder, line.source(found), places)


def repack_tree(source: str, file: str, sha256: str, places: SourceTreeContext) -> None:
    """Pack a locked tree again where the store has lost it.

    Raises StaleLockError where the project's own files are others than when it was locked.
    """
    line = read_source(source)
    top = file.removesuffix(".zip")
    with _work_folder(places.context) as work:
        if line.folder is not None:
            folder = places.project / line.folder
        else:
            tree = work / "tree"
            checkout(line.url, line.revision, tree, places.context, below=line.subfolder)
            folder = tree / line.subfolder
        found = _write_archive(folder, top, work / "archive.zip", places)
        if found != sha256:
            raise StaleLockError(
                f"the files of {line.folder or source} are not those that were locked",
                where=file,
                hint="run: envbuild lock",
            )
        commit_file(work / "archive.zip", places.context.store.artifact(sha256))


def tree_digest(line: TreeLine, file: str, places: SourceTreeContext) -> str:
    """Return the sha256 that a folder's archive would have now."""
    with _work_folder(places.context) as work:
        return _write_archive(
            places.project / (line.folder or "."), file.removesuffix(".zip"), work / "a.zip", places
        )


def tree_requirement(tree: SourceTree, line: TreeLine) -> str:
    """Return the requirement that stands for a tree: its name and exact version."""
    extras = f"[{','.join(line.extras)}]" if line.extras else ""
    return f"{tree.name}{extras}=={tree.version}"


def _work_folder(context: Context) -> AbstractContextManager[Path]:
    return context.store.outside(context.settings.tmpdir)


def _pack_tree(line: TreeLine, folder: Path, source: str, places: SourceTreeContext) -> SourceTree:
    name, version = _name_and_version(folder, line, places)
    if line.name is not None and canonicalize_name(line.name) != canonicalize_name(name):
        raise UsageError(f"holds the package {name}, not {line.name}", where=repr(line.written))
    try:
        plain = str(Version(version))
    except ValueError as error:
        raise UsageError(
            f"{name} has the version {version!r}, which is not a version (PEP 440)", where=folder
        ) from error
    top = f"{canonicalize_name(name).replace('-', '_')}-{plain}"
    with _work_folder(places.context) as work:
        archive = work / "archive.zip"
        sha256 = _write_archive(folder, top, archive, places)
        size, final = archive.stat().st_size, places.context.store.artifact(sha256)
        commit_file(archive, final)
    return SourceTree(
        name=canonicalize_name(name),
        version=plain,
        source=source,
        file=f"{top}.zip",
        size=size,
        sha256=sha256,
        path=final,
    )


def _write_archive(folder: Path, top: str, target: Path, places: SourceTreeContext) -> str:
    """Write a folder's archive: in order, stored, without times.  Returns its sha256."""
    files = _require_inside(folder, sorted(_tree_files(folder, places)))
    if sum(found.st_size for found in files.values()) > LARGEST:
        raise _too_large(folder, files)
    with os_errors_as(target), zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as out:
        for name, found in files.items():
            # no times, no owners, two modes: the same files give the same bytes
            member = zipfile.ZipInfo(f"{top}/{name}", TIME)
            member.create_system = 3
            member.external_attr = (0o100755 if found.st_mode & 0o100 else 0o100644) << 16
            out.writestr(member, (folder / name).read_bytes())
    with target.open("rb") as file:
        return hash_rest(file)


def _tree_files(folder: Path, places: SourceTreeContext) -> Iterable[str]:
    # git knows which files belong to a project; without it all do but caches and builds
    if is_repository(folder, places.context):
        names: Sequence[str] = listed_files(folder, places.context)
    else:
        names = tuple(_walk_files(folder))
    sandboxes = tuple(
        name.removesuffix(SANDBOX_NOTE) for name in names if name.endswith(f"/{SANDBOX_NOTE}")
    )
    for name in names:
        parts = name.split("/")
        image = name.endswith(IMAGES) or name.startswith(sandboxes) or LAYERS.fullmatch(name)
        if parts[0] not in OURS and not image and (folder / name).is_file():
            yield name


def _walk_files(folder: Path) -> Iterable[str]:
    for top, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in PASSED_OVER and not name.endswith((".egg-info", *IMAGES))
        ]
        for name in names:
            if not name.endswith((".pyc", ".pyo")):
                yield (Path(top) / name).relative_to(folder).as_posix()


def _require_inside(folder: Path, names: Iterable[str]) -> dict[str, os.stat_result]:
    """Return what each name stands for; a link may lead to another file of the tree."""
    top = Path(os.path.realpath(folder))
    real_folder = functools.cache(os.path.realpath)
    files = {}
    for name in names:
        path = folder / name
        place = os.path.realpath(path) if path.is_symlink() else real_folder(path.parent)
        # git's index, which may have come with the folder, can name "../x" and files behind links
        if ".." in name.split("/") or not Path(place).is_relative_to(top):
            raise UsageError(
                "is outside of the tree, or a link leads there",
                where=path,
                hint="copy the file into the tree",
            )
        files[name] = path.stat()
    return files


def _too_large(folder: Path, files: Mapping[str, os.stat_result]) -> UsageError:
    size, name = max((found.st_size, name) for name, found in files.items())
    return UsageError(
        f"holds more than {human_bytes(LARGEST)}; the largest file is {name} ({human_bytes(size)})",
        where=folder,
        hint="keep data out of the project's tree, or let git ignore it",
    )


def _name_and_version(folder: Path, line: TreeLine, places: SourceTreeContext) -> tuple[str, str]:
    """Read name and version as text; else build the metadata, where the user allows it."""
    known = name_and_version(folder)
    if known is None:
        raise UsageError(
            "is not a Python project: it has no pyproject.toml and no setup.py",
            where=repr(line.written),
            hint="name the folder that has it, or bring files by [files]",
        )
    name, version = known
    return (name, version) if name and version else _built_name_and_version(folder, line, places)


def _built_name_and_version(
    folder: Path, line: TreeLine, places: SourceTreeContext
) -> tuple[str, str]:

    settings = places.context.settings
    if not settings.host_builds:
        raise UsageError(
            "its name or version is not written down, and nothing of it is run on this machine to "
            "know them",
            where=repr(line.written),
            hint="write name and version into [project] of its pyproject.toml\n"
            "or let its build run here, with what it needs from the index: --allow-host-builds",
        )
    uv = uv_program(settings)
    with _work_folder(places.context) as out, _work_folder(places.context) as home:
        environment = building_environment(settings, home)
        environment["UV_DEFAULT_INDEX"] = index_url(places.context)
        options = ("--sdist", "--no-config", "--python", places.python, "--out-dir", str(out))
        argv = (uv, "build", *options, str(folder))
        result = places.context.runner(
            Command(argv=argv, env=environment, timeout=QUESTION_SECONDS), check=False
        )
        archives = sorted(out.glob("*.tar.gz"))
        if result.code != 0 or len(archives) != 1:
            raise HostError(
                "its version is not written down, and its metadata cannot be built here: "
                f"{result.last_lines(3)}",
                where=repr(line.written),
                hint="write name and version into [project] of its pyproject.toml",
            )
        found = headers(_package_information(archives[0]))
    if not found.name or not found.release:
        raise UsageError("its metadata names no version", where=repr(line.written))
    return found.name, found.release


def _package_information(archive: Path) -> str:
    """Return the text of a source archive's PKG-INFO, or "".  Raises IntegrityError for damage."""
    unreadable = reading("this source archive cannot be read", archive.name)
    with unreadable, opened_members(archive) as (tar, members):
        for member in members:
            if member.name.count("/") == 1 and member.name.endswith("/PKG-INFO"):
                stream = tar.extractfile(member)
                text = stream.read(WHOLE["METADATA"]) if stream else b""
                return text.decode("utf-8", "replace")
    return ""
