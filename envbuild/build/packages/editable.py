"""A project that is imported from its own folder: a wheel of a path file and metadata alone.

The form is that of setuptools' editable wheels (PEP 660): a ``.pth`` file names the folder.
Nothing of the project is run, and machine code is not built.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from envbuild.build.packages.wheel_writer import write_wheel
from envbuild.errors import UsageError
from envbuild.names import Pairs, Texts
from envbuild.records import frozen_record
from envbuild.resolve.sources.declared import inner_table
from envbuild.resolve.sources.project_name import name_and_version
from envbuild.resolve.sources.sdists import declared
from envbuild.resolve.stubs import metadata_text
from envbuild.toml import parse_toml

TEXTS = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt")
"""Files of a project that say what it requires."""
NO_VERSION = "0+editable"
NO_MODULES = {"setup.py", "conftest.py", "noxfile.py", "tests", "test", "docs", "build", "dist"}
"""Files and folders beside a project's modules that nobody imports."""
MOST_TEXT = 1 << 20
"""Bytes of one of those files at most."""


@frozen_record
class EditableProject:
    """A project in its folder: ``root`` is where its modules lie, ``requires`` are PEP 508 strings.

    ``scripts`` maps the names of its commands to MODULE:FUNCTION.
    """

    name: str
    version: str
    folder: Path
    root: Path
    requires: Texts = ()
    scripts: Pairs = ()


def read_project(folder: Path) -> EditableProject:
    """Read a project for an editable installation; links to the folder are followed.

    Raises UsageError for a folder that holds no Python project, or one whose name is not told.
    """
    real = folder.resolve()
    if not real.is_dir():
        raise UsageError("-e takes the folder of a Python project", where=folder)
    if "\n" in str(real) or "\r" in str(real):
        raise UsageError("a path with a line end fits into no path file", where=repr(str(real)))
    named = name_and_version(real)
    if named is None or not named[0]:
        raise UsageError(
            "-e takes a Python project, and this folder has none that tells its name",
            where=folder,
            hint='write a pyproject.toml: [project] name = "…", version = "0.1"',
        )
    texts = {name: text for name in TEXTS if (text := _read_text(real / name)) is not None}
    data = parse_toml(texts.get("pyproject.toml", ""), str(real / "pyproject.toml"))
    metadata = declared(texts, str(real))
    return EditableProject(
        name=canonicalize_name(named[0]),
        version=_plain_version(named[1]),
        folder=real,
        root=_module_root(real, data),
        requires=metadata.requires,
        scripts=_named_scripts(data),
    )


def has_modules(project: EditableProject) -> bool:
    """Tell whether something lies where a project's modules are looked for."""
    for top in project.root.iterdir():
        if top.name in NO_MODULES or top.name.startswith("."):
            continue
        inside = itertools.chain(top.glob("*.py"), top.glob("*.so"), top.glob("*/*.py"))
        if top.suffix in (".py", ".so") or next(inside, None) is not None:
            return True
    return False


def write_editable_wheel(project: EditableProject, folder: Path) -> Path:
    """Write the wheel of a project and return its path; the same project gives the same bytes."""
    stem = f"{project.name.replace('-', '_')}-{project.version}"
    info = f"{stem}.dist-info"
    commands = [f"{name} = {target}" for name, target in project.scripts]
    members = {
        f"__editable__.{project.name}.pth": f"{project.root}\n",
        f"{info}/METADATA": metadata_text(project.name, project.version, project.requires),
        f"{info}/entry_points.txt": "\n".join(["[console_scripts]", *commands, ""]),
    }
    return write_wheel(folder, stem, {name: text.encode() for name, text in members.items()})


def _read_text(path: Path) -> str | None:
    try:
        if path.stat().st_size > MOST_TEXT:
            return None
        return path.read_text("utf-8", "replace")
    except OSError:
        return None


def _plain_version(version: str) -> str:
    try:
        return str(Version(version))
    except ValueError:
        return NO_VERSION


def _module_root(folder: Path, data: Mapping[str, Any]) -> Path:
    """Return the folder that modules are imported from: as its builder says, else ``src``."""
    setuptools = inner_table(data, "tool", "setuptools")
    hatch = inner_table(data, "tool", "hatch", "build", "targets", "wheel").get("packages")
    where = inner_table(setuptools, "packages", "find").get("where")
    named = [inner_table(setuptools, "package-dir").get("")]
    if isinstance(where, list):
        named += where[:1]
    if isinstance(hatch, list):
        named += [str(Path(str(package)).parent) for package in hatch[:1]]
    named.append("src")
    for name in named:
        if not isinstance(name, str):
            continue
        root = (folder / name).resolve()
        if root.is_dir() and root.is_relative_to(folder):
            return root
    return folder


def _named_scripts(data: Mapping[str, Any]) -> Pairs:
    """Return the commands of a project that have plain names and plain targets."""
    found = []
    for name, target in inner_table(data, "project", "scripts").items():
        plain = re.fullmatch(r"[A-Za-z0-9._-]+", name) and isinstance(target, str)
        if plain and re.fullmatch(r"[\w.]+:[\w.]+", target):
            found.append((name, target))
    return tuple(found)
