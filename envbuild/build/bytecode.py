"""Bytecode of wheels, compiled once per wheel and Python by the base's own Python, and kept as parts."""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from envbuild.build.container import INSIDE, Container, lay_file
from envbuild.build.pack import PartWriter
from envbuild.build.parts import Bench, KeptPart, kept_part, part_key, provide_part
from envbuild.build.scheme import Scheme
from envbuild.build.tree import Entry

ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
"""The order of a set's members in bytecode depends on the hash seed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelPart:
    """A wheel that has been unpacked into a part: its file in the store, its file name."""

    file: Path
    name: str
    kept: KeptPart


def bytecode_key(wheel: WheelPart, *, python: str, epoch: int) -> str:
    """Return the key of a wheel's bytecode; ``python`` is the base's version.  Python 3.6 writes times into it."""
    old = tuple(map(int, python.split(".")[:2])) < (3, 7)
    script = resources.files("envbuild.build.inside").joinpath("compile.py").read_bytes()
    return part_key(
        "bytecode",
        wheel=wheel.kept.part.key,
        python=python,
        script=hashlib.sha256(script).hexdigest(),
        epoch=epoch if old else 0,
    )


def sources(wheel: WheelPart, scheme: Scheme) -> list[tuple[str, str]]:
    """Return the modules of a wheel: their names in the archive and their absolute paths in the image."""
    there = {entry.path for entry in wheel.kept.part.entries}
    found = []
    with zipfile.ZipFile(wheel.file) as archive:
        for member in archive.namelist():
            inner = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", member)
            if not inner.endswith(".py") or "__pycache__" in inner:
                continue
            places = (f"{site}/{inner}" for site in (scheme.site, scheme.platform) if site)
            found += [(member, f"/{path}") for path in places if path in there][:1]
    return found


def compile_wheels(
    wheels: Sequence[tuple[WheelPart, str]], inside: Container, bench: Bench, scheme: Scheme, epoch: int
) -> None:
    """Compile wheels (each with the key of its bytecode) in one run, and keep what came out."""
    jobs = []
    for wheel, key in wheels:
        lay_file(wheel.file, inside.folder / key / "wheel")
        (inside.folder / key / "out").mkdir()
        folder = f"{INSIDE}/{key}"
        jobs.append({"wheel": f"{folder}/wheel", "out": f"{folder}/out", "members": sources(wheel, scheme)})
    workers = len(os.sched_getaffinity(0))
    order = {"jobs": jobs, "mtime": epoch, "workers": workers}
    (inside.folder / "compile.json").write_text(json.dumps(order), "utf-8")
    inside.run("compile.py", f"{INSIDE}/compile.json", env=ENVIRONMENT)
    for _, key in wheels:
        provide_part(key, bench, lambda writer, key=key: _fill(writer, inside.folder / key / "out"))  # type: ignore[misc]


def _fill(writer: PartWriter, folder: Path) -> None:
    for path, data in _compiled(folder):
        writer.add(Entry(path.lstrip("/"), "f", 0o644), data)


def _compiled(folder: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(folder.iterdir()):
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                yield name, archive.read(name)


def without_bytecode(
    wheels: Sequence[WheelPart], bench: Bench, *, python: str, epoch: int
) -> list[tuple[WheelPart, str]]:
    """Return the wheels whose bytecode the store lacks, with its keys."""
    keyed = ((wheel, bytecode_key(wheel, python=python, epoch=epoch)) for wheel in wheels)
    return [(wheel, key) for wheel, key in keyed if kept_part(key, bench.store) is None]
