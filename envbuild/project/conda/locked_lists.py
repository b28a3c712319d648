"""Locked conda environments of others: pixi.lock, conda-lock.yml, @EXPLICIT lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from envbuild.conda.model import GivenArchive
from envbuild.errors import UsageError
from envbuild.limits import read_whole
from envbuild.names import Texts
from envbuild.net.redact import without_token
from envbuild.project.tree import read_text
from envbuild.records import frozen_record, replace
from envbuild.yaml import parse_yaml

LARGEST = 64 * 1024 * 1024
"""Bytes of a lock; one of ten environments on five platforms has some 10 MB."""
ARCHIVE = re.compile(
    r"(?P<channel>.*)/(?P<subdir>[a-z0-9-]+)/(?P<file>(?P<name>[a-z0-9_][a-z0-9_.-]*)"
    r"-(?P<version>[^-/]+)-(?P<build>[^-/]+)\.(conda|tar\.bz2))(#(?P<hash>\S+))?"
)
PIP_LINE = re.compile(
    r"^# pip ([\w.-]+) @ \S*/[^\s#/]*?-(\d[\w.+!]*?)(-[\w.-]*\.whl|\.tar\.gz|\.zip)(#|$)",
    re.MULTILINE | re.ASCII,
)
"""What conda-lock writes for pip into a list with @EXPLICIT: its name and its version."""
EXPLICIT = re.compile(r"^[ \t]*@EXPLICIT[ \t\r]*$", re.MULTILINE)


@frozen_record
class Archive(GivenArchive):
    """One conda package of a list; ``channel`` is an address."""

    subdir: str
    channel: str
    requires: Texts = ()


@frozen_record
class CondaList:
    """A locked environment for one platform; ``wheels`` are requirements.

    ``channels`` are names, best first; empty where the list does not tell.
    """

    archives: tuple[Archive, ...]
    channels: Texts = ()
    wheels: Texts = ()

    @property
    def roots(self) -> tuple[Archive, ...]:
        """The packages that no other one of the list requires; all where it does not say so."""
        needed: set[str] = set()
        for archive in self.archives:
            needed |= set(archive.requires)
        return tuple(archive for archive in self.archives if archive.name not in needed)


def channel_name(address: str) -> str:
    """Return the short name of a channel: the last part of its address."""
    return address.rstrip("/").rpartition("/")[2]


def is_conda_list(path: Path) -> bool:
    """Tell whether a file is a locked environment, by its name or its first lines."""
    if path.name in ("pixi.lock", "conda-lock.yml", "conda-lock.yaml"):
        return True
    return bool(EXPLICIT.search(read_text(path) or ""))


def read_conda_list(path: Path, platform: str) -> CondaList:
    """Read a locked environment for a platform ("linux-64").

    Raises UsageError for a file that is none, or that has nothing for the platform.
    """
    text = _read_whole(path)
    if EXPLICIT.search(text):
        wheels = tuple(f"{pip[1]}=={pip[2]}" for pip in PIP_LINE.finditer(text))
        found = CondaList(archives=tuple(_explicit_archives(text, path)), wheels=wheels)
    elif re.search(r"^package:", text, re.MULTILINE):
        found = _read_conda_lock(text, platform, path)
    elif re.search(r"^environments:", text, re.MULTILINE):
        found = _read_pixi_lock(path, platform)
    else:
        raise UsageError(
            "is not a locked conda environment",
            where=path,
            hint="a pixi.lock, a conda-lock.yml or a list with @EXPLICIT is",
        )
    foreign = [item for item in found.archives if item.subdir not in (platform, "noarch")]
    if foreign or not found.archives:
        what = f"has packages for {foreign[0].subdir}" if foreign else "has no packages"
        raise UsageError(f"{what}, and the recipe is for {platform}", where=path)
    return found


def _read_whole(path: Path) -> str:
    try:
        return read_whole(path, LARGEST).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read as text: {error}", where=path) from error


def _archive_of(address: str, where: str) -> Archive:
    """Take the address of an archive apart, with the hash behind a "#"."""
    found = ARCHIVE.fullmatch(address.strip())
    if found is None:
        raise UsageError(f"{without_token(address)[:200]!r} is no conda package", where=where)
    digest = (found["hash"] or "").removeprefix("sha256:")
    return Archive(
        name=found["name"],
        version=found["version"],
        build=found["build"],
        subdir=found["subdir"],
        file=found["file"],
        channel=without_token(f"{found['channel']}/").rstrip("/"),
        sha256=digest if len(digest) == 64 else None,
        md5=digest if len(digest) == 32 else None,
    )


def _explicit_archives(text: str, path: Path) -> Iterator[Archive]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith(("#", "@EXPLICIT")):
            yield _archive_of(line, f"{path}, line {number}")


def _read_conda_lock(text: str, platform: str, path: Path) -> CondaList:
    data = parse_yaml(text, path)
    rows = data.get("package") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError("has no list of packages", where=path)
    ours = [row for row in rows if row.get("platform") == platform]
    conda = [row for row in ours if row.get("manager") == "conda"]
    wheels = [row for row in ours if row.get("manager") == "pip"]
    channels = _table(data.get("metadata")).get("channels")
    listed = channels if isinstance(channels, list) else []
    urls = [str(_table(row).get("url")) for row in listed]
    return CondaList(
        channels=tuple(map(channel_name, urls)),
        archives=tuple(_locked_row(row, path) for row in conda),
        wheels=tuple(f"{row.get('name')}=={row.get('version')}" for row in wheels),
    )


def _locked_row(row: dict[str, Any], path: Path) -> Archive:
    archive = _archive_of(str(row.get("url", "")).partition("#")[0], str(path))
    sums = _table(row.get("hash"))
    hashes = {kind: text for kind, text in sums.items() if isinstance(text, str)}
    return replace(
        archive,
        sha256=hashes.get("sha256") or archive.sha256,
        md5=hashes.get("md5") or archive.md5,
        requires=tuple(map(str, _table(row.get("dependencies")))),
    )


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _read_pixi_lock(path: Path, platform: str) -> CondaList:
    from rattler import LockFile, exceptions

    try:
        environment = LockFile.from_path(path).environment("default")
    except (exceptions.ParseCondaLockError, exceptions.IoError, OSError) as error:
        raise UsageError(f"is not a pixi.lock: {error}", where=path) from error
    if environment is None:
        raise UsageError("has no default environment", where=path)
    nodes = [node for node in environment.platforms() if str(node.subdir) == platform]
    if not nodes:
        return CondaList(archives=())
    records = environment.conda_repodata_records_for_platform(nodes[0]) or []
    archives = []
    for record in records:
        archive = _archive_of(str(record.url), str(path))
        requires = tuple(spec.strip().partition(" ")[0] for spec in record.depends)
        sha256 = record.sha256.hex() if record.sha256 else None
        md5 = record.md5.hex() if record.md5 else None
        archives.append(replace(archive, sha256=sha256, md5=md5, requires=requires))
    wheels = environment.pypi_packages_for_platform(nodes[0]) or []
    return CondaList(
        archives=tuple(archives),
        channels=tuple(map(channel_name, map(str, environment.channels()))),
        wheels=tuple(f"{p.name}=={p.version}" for p in wheels),
    )
