"""Bytecode of packages, compiled once by the Python that they are for, and kept as parts."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path

from envbuild.build.in_base.container import BaseContainer
from envbuild.build.in_base.exchange import (
    GIVEN,
    INSIDE,
    Exchange,
    open_exchange,
    result_file,
    result_names,
)
from envbuild.build.in_base.install_scheme import Scheme
from envbuild.errors import IntegrityError
from envbuild.formats.file_tree import TreeEntry
from envbuild.host import count_processors
from envbuild.names import Pairs
from envbuild.parts.cache import CachedPart, PackContext, part_key, provide_part
from envbuild.parts.reader import read_files
from envbuild.parts.writer import PartWriter
from envbuild.progress import Stage
from envbuild.records import frozen_record
from envbuild.store.atomic import os_errors_as
from envbuild.store.hashing import hash_bytes

ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
"""The order of a set's members in bytecode depends on the hash seed."""
BYTECODE_LIMIT = 1 << 26
"""Bytes of one compiled module at most.

The largest of TensorFlow and PyTorch have some megabytes.
"""

DIGITS = 8
"""Of a number that is printed in a container, fewer than these count."""


@frozen_record
class WheelPart:
    """A wheel that has been unpacked into a part: its file in the store, its file name."""

    file: Path
    name: str
    kept: CachedPart


def bytecode_key(wheel: str, *, python: str, epoch: int) -> str:
    """Return the key of the bytecode of a wheel, whose part has the key ``wheel``.

    ``python`` is the base's version. Python 3.6 writes times into it.
    """
    # PEP 552 came with 3.7: before it, bytecode holds its source's time
    old = tuple(map(int, python.split(".")[:2])) < (3, 7)
    script = resources.files("envbuild.build.in_base.scripts").joinpath("compile.py").read_bytes()
    return part_key(
        "bytecode",
        wheel=wheel,
        python=python,
        script=hash_bytes(script),
        epoch=epoch if old else 0,
    )


@frozen_record
class ModuleSources:
    """The modules of one package that are to be compiled, and the key of their bytecode.

    ``members`` are their names in the archive and their absolute paths in the image; ``contents``
    yields each name with what the module holds.
    """

    key: str
    members: Pairs
    contents: Callable[[], Iterator[tuple[str, bytes]]]

    @property
    def folders(self) -> set[str]:
        """The folders that its bytecode may lie in."""
        return {f"{path.rpartition('/')[0]}/__pycache__" for _, path in self.members}


def wheel_modules(wheel: WheelPart, key: str, scheme: Scheme) -> ModuleSources:
    """Return the modules of a wheel, whose bytecode gets this key."""
    members = module_sources(wheel, scheme)

    def contents() -> Iterator[tuple[str, bytes]]:
        with zipfile.ZipFile(wheel.file) as archive:
            for member, _ in members:
                yield member, archive.read(member)

    return ModuleSources(key=key, members=tuple(members), contents=contents)


def linked_modules(kept: CachedPart, key: str, site: str, compressor: str) -> ModuleSources:
    """Return the modules of a linked conda package below the folder of its Python's packages."""
    files = [entry for entry in kept.part.entries if entry.kind == "f"]
    modules = [file for file in files if file.path.startswith(f"{site}/")]
    modules = [file for file in modules if file.path.endswith(".py")]
    members = tuple((file.path, f"/{file.path}") for file in modules)
    return ModuleSources(
        key=key, members=members, contents=lambda: read_files(kept, modules, compressor)
    )


def module_sources(wheel: WheelPart, scheme: Scheme) -> list[tuple[str, str]]:
    """Return the modules of a wheel.

    Their names in the archive and their absolute paths in the image.
    """
    there = {entry.path for entry in wheel.kept.part.entries}
    found = []
    with zipfile.ZipFile(wheel.file) as archive:
        for member in archive.namelist():
            # the two schemes of a wheel's data folder that may hold modules
            inner = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", member)
            if not inner.endswith(".py") or "__pycache__" in inner:
                continue
            places = (f"{site}/{inner}" for site in (scheme.site, scheme.platform) if site)
            found += [(member, f"/{path}") for path in places if path in there][:1]
    return found


def compile_modules(
    packages: Sequence[ModuleSources],
    inside: BaseContainer,
    packing: PackContext,
    epoch: int,
    stage: Stage,
) -> None:
    """Compile the modules of packages in one run, and keep what came out.

    Raises IntegrityError for results that are no bytecode of these packages.
    """
    with open_exchange(inside.folder) as between:
        jobs = []
        for package in packages:
            _give_sources(package, between)
            jobs.append(
                {
                    "wheel": f"{GIVEN}/{package.key}.zip",
                    "out": f"{INSIDE}/{package.key}",
                    "members": package.members,
                }
            )
        # paths in tracebacks are the image's: members are compiled under their final names
        order = {"jobs": jobs, "mtime": epoch, "workers": count_processors()}
        between.write("compile.json", json.dumps(order).encode())
        inside.run(
            "compile.py",
            f"{GIVEN}/compile.json",
            between=between,
            env=ENVIRONMENT,
            on_line=lambda line: _count_batch(line, stage),
        )
        for package in packages:
            fill = partial(
                _add_bytecode, folder=between.out, key=package.key, folders=package.folders
            )
            provide_part(package.key, packing, fill)


def _count_batch(line: str, stage: Stage) -> None:
    """Count what compile.py says: "of" how many batches, and "done" for each."""
    word, _, number = line.partition(" ")
    if word == "of" and number.isdecimal() and len(number) < DIGITS:
        stage.expect(int(number))
    elif word == "done":
        stage.advance()


def _give_sources(package: ModuleSources, between: Exchange) -> None:
    """Give only the modules of a package: its libraries may be gigabytes."""
    path = between.given / f"{package.key}.zip"
    with os_errors_as(path), zipfile.ZipFile(path, "x") as given:
        for member, source in package.contents():
            # ZipInfo has a fixed time, 1980: what is given is the same every time
            given.writestr(zipfile.ZipInfo(member), source)
        path.chmod(0o644)


def _add_bytecode(writer: PartWriter, *, folder: Path, key: str, folders: set[str]) -> None:
    for path, data in _read_results(folder, key):
        # what comes out of the run is checked as if a stranger wrote it: packages run in there
        if path.rpartition("/")[0] not in folders or not path.endswith(".pyc"):
            raise IntegrityError(
                "the base's Python left what is no bytecode of these packages", where=path
            )
        writer.add(TreeEntry(path.lstrip("/"), "f", 0o644), data)


def _read_results(folder: Path, key: str) -> Iterator[tuple[str, bytes]]:
    for name in result_names(folder, key):
        with (
            result_file(folder, f"{key}/{name}") as file,
            _zip_errors(name),
            zipfile.ZipFile(file) as archive,
        ):
            for entry in archive.infolist():
                if entry.file_size > BYTECODE_LIMIT:
                    raise IntegrityError(
                        f"is larger than {BYTECODE_LIMIT} bytes", where=entry.filename
                    )
                yield entry.filename, archive.read(entry)


@contextmanager
def _zip_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise IntegrityError(
            f"the base's Python left bytecode that cannot be read: {error}", where=name
        ) from error
