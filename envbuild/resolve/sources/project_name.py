"""Read name and version of a Python project where they stand as text; nothing of it is run."""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from envbuild.limits import TEXT, read_whole
from envbuild.python_code import parse_code
from envbuild.resolve.setup_py.read import read_setup
from envbuild.resolve.sources.declared import inner_table
from envbuild.toml import parse_toml

FILES = ("pyproject.toml", "setup.cfg", "setup.py")
VERSION = re.compile(
    r"""^(?:__version__|VERSION|version)\s*(?::\s*str\s*)?=\s*['"]v?([^'"]+)['"]""", re.MULTILINE
)


def name_and_version(folder: Path) -> tuple[str, str] | None:
    """Return what a project's files say, "" for the rest; None where there is no project."""
    if not any((folder / name).is_file() for name in FILES):
        return None
    text = _read_inside(folder, "pyproject.toml")
    data = parse_toml(text, str(folder / "pyproject.toml")) if text is not None else {}
    project, poetry = inner_table(data, "project"), inner_table(data, "tool", "poetry")
    setup = _handed_texts(folder)
    cfg = _setup_cfg(_read_inside(folder, "setup.cfg") or "")
    # in the order in which builders take them
    names = [table.get("name") for table in (project, poetry, cfg, setup)]
    versions = [project.get("version")]
    if not project:
        versions.append(poetry.get("version"))
    versions.append(_dynamic_version(data, folder))
    if not project.get("version"):
        versions.append(_directed_version(cfg.get("version", ""), folder))
    versions.append(setup.get("version"))
    return _first_text(names), _first_text(versions)


def _first_text(values: Iterable[object]) -> str:
    return next((value for value in values if isinstance(value, str) and value), "")


def _dynamic_version(data: Mapping[str, Any], folder: Path) -> str | None:
    """Return the version that setuptools, hatch or flit would read from a file."""
    version = inner_table(data, "tool", "setuptools", "dynamic").get("version")
    if isinstance(version, dict):
        # the version that an attr names, or that a file (or the first of a list) holds
        attribute, file = version.get("attr"), version.get("file")
        if isinstance(attribute, str):
            return _module_attribute(attribute, folder)
        if isinstance(file, list) and file:
            file = file[0]
        return _whole_text(folder, file) if isinstance(file, str) else None
    hatch = inner_table(data, "tool", "hatch", "version")
    if isinstance(hatch.get("path"), str) and "pattern" not in hatch:
        return _assigned_version(_read_inside(folder, hatch["path"]))
    backend = inner_table(data, "build-system").get("build-backend", "")
    name = inner_table(data, "project").get("name")
    if str(backend).startswith("flit_core") and isinstance(name, str):
        return _module_attribute(f"{name.replace('-', '_')}.__version__", folder)
    return None


def _directed_version(version: str, folder: Path) -> str | None:
    """Return the version of a setup.cfg, which may point to a module or a file."""
    kind, colon, where = map(str.strip, version.partition(":"))
    if not colon:
        return version
    if kind == "attr":
        return _module_attribute(where, folder)
    return _whole_text(folder, where) if kind == "file" else None


def _module_attribute(dotted: str, folder: Path) -> str | None:
    """Return a string that a module assigns, as setuptools reads it without importing."""
    module, _, name = dotted.rpartition(".")
    path = module.replace(".", "/")
    inside = f"{path}/__init__.py".lstrip("/")
    for file in (f"{path}.py", inside, f"src/{path}.py", f"src/{inside}"):
        text = _read_inside(folder, file)
        found = _literal_text(text, name) if text is not None else None
        if found is not None:
            return found
    return None


def _literal_text(text: str, name: str) -> str | None:
    """Return the string that the first assignment of a plain value to a name gives it."""
    tree = parse_code(text)
    for node in tree.body if tree else ():
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if name in names and isinstance(node.value, ast.Constant):
            value = node.value.value
            return value if isinstance(value, str) else None
    return None


def _assigned_version(text: str | None) -> str | None:
    found = VERSION.search(text or "")
    return found[1] if found else None


def _handed_texts(folder: Path) -> dict[str, str]:
    text = _read_inside(folder, "setup.py")
    handed = read_setup(text, _FolderTexts(folder)) if text is not None else None
    keywords = handed.keywords if handed is not None else {}
    return {name: value.strip() for name, value in keywords.items() if isinstance(value, str)}


class _FolderTexts(dict[str, str]):
    """The texts of a folder, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        """Return the text of a file of the folder."""
        found = _read_inside(self.folder, name)
        return default if found is None else found


def _setup_cfg(text: str) -> Mapping[str, str]:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return {}
    return dict(parser["metadata"]) if parser.has_section("metadata") else {}


def _read_inside(folder: Path, name: str) -> str | None:
    """Return the text of a file inside the folder; None for a link that leaves it."""
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            return None
        return read_whole(path, TEXT).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def _whole_text(folder: Path, name: str) -> str | None:
    text = _read_inside(folder, name)
    return text.strip() if text is not None else None
