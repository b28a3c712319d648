"""Read a lock file; what does not fit is an error, never a guess."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.utils import canonicalize_name, canonicalize_version

from envbuild.errors import IntegrityError, UsageError
from envbuild.lock.model import PACKED_BY, SCHEMA, Lock, PythonPackage
from envbuild.toml import convert, parse_toml, read_toml

PROSE = ("notes", "held-back", "moved")
"""Keys whose texts are for people; all others stand in lines of exports."""
CHANGED_BY_HAND = "the lock was changed by hand; make it again: envbuild lock NAME"


def read_lock(path: Path) -> Lock:
    """Read a lock.

    Raises UsageError for a file that is not a lock of a known schema, IntegrityError for one that
    contradicts itself (two packages of one name, one file name with two hashes).
    """
    data, text = read_toml(path)
    return _convert(data, text, str(path))


def parse_lock(text: str, where: str) -> Lock:
    """Read a lock from text; ``where`` names it in errors, which are those of read_lock."""
    return _convert(parse_toml(text, where), text, where)


def _convert(data: dict[str, Any], text: str, where: str) -> Lock:
    schema = data.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise UsageError(
            f"is a lock of schema {schema}; this envbuild reads up to {SCHEMA}",
            where=where,
            hint="update envbuild",
        )
    lock = convert(data, Lock, text=text, where=where)
    for key, value in data.items():
        if key not in PROSE and any("\n" in one for one in _texts_of(value)):
            raise IntegrityError(
                f"{key} has a line end, which no export could hold",
                where=where,
                hint=CHANGED_BY_HAND,
            )
    _check_consistent(lock, where)
    return lock


def _texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts_of(one)


def _check_consistent(lock: Lock, where: str) -> None:
    library, compressor = lock.packer.library, lock.packer.compressor
    if library is not None and library.split()[0] != PACKED_BY[compressor]:
        what = f"packs with {compressor}, but names the library {library}"
        raise IntegrityError(what, where=where, hint=CHANGED_BY_HAND)
    seen: dict[str, str] = {}
    files = [(item.file, item.sha256) for item in lock.debian]
    files += [(item.file, item.sha256) for item in lock.python]
    files += [(item.file, item.sha256) for item in lock.conda]
    for file, sha256 in files:
        if seen.setdefault(file, sha256) != sha256:
            raise IntegrityError(f"{file} is listed with two different hashes", where=where)
    # a name may stand there twice: once for the image, and once for building
    for group in (("framework", "project"), ("build",)):
        names: set[str] = set()
        for package in lock.python:
            if package.group not in group:
                continue
            name = canonicalize_name(package.name)
            if name in names:
                raise IntegrityError(f"{package.name} is locked twice", where=where)
            names.add(name)
    for package in lock.python:
        if not _is_named_by_file(package):
            what = f"{package.file} is no file of {package.name} {package.version}"
            raise IntegrityError(what, where=where, hint=CHANGED_BY_HAND)
    _check_conda(lock, where)


def _is_named_by_file(package: PythonPackage) -> bool:
    """Tell whether a wheel's file is of the package that the lock says (PEP 427)."""
    if package.is_sdist:
        return True
    name, _, rest = package.file.partition("-")
    version = unquote(rest.partition("-")[0])
    same_name = canonicalize_name(name) == canonicalize_name(package.name)
    return same_name and canonicalize_version(version) == canonicalize_version(package.version)


def _check_conda(lock: Lock, where: str) -> None:
    seen: set[str] = set()
    for package in lock.conda:
        if package.name in seen:
            raise IntegrityError(f"conda's {package.name} is locked twice", where=where)
        seen.add(package.name)
        if package.channel not in lock.channels:
            what = (
                f"{package.file} is of the channel {package.channel}, which the lock does not list"
            )
            raise IntegrityError(what, where=where)
        if not package.file.startswith(f"{package.stem}."):
            what = f"{package.file} is no file of {package.name} {package.version} {package.build}"
            raise IntegrityError(what, where=where)
