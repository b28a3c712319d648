"""Read pixi's manifests: pixi.toml, and [tool.pixi] of a pyproject.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from envbuild.project.conda.environment import CondaReader
from envbuild.project.lists.declared import read_pyproject
from envbuild.project.lists.requirements import NO_ADDRESS
from envbuild.project.model import FileFindings
from envbuild.project.tree import read_text, shown_path
from envbuild.records import replace
from envbuild.resolve.sources.declared import dependency_table, inner_table, write_extras
from envbuild.toml import parse_toml

PLATFORMS = ("unix", "linux", "linux-64")
"""Targets whose packages an image of x86_64 takes."""
FOR_GPU = re.compile(r"gpu|cuda|cu1\d")
"""Features that are taken beside those of the default environment."""


def read_pixi(path: Path, root: Path) -> FileFindings:
    """Read a pixi.toml.  Raises UsageError for one that is no TOML."""
    file = shown_path(path, root)
    data = parse_toml(read_text(path) or "", file)
    return replace(_read_manifest(data, path, root), file=file)


def read_project_table(path: Path, root: Path) -> FileFindings | None:
    """Read a pyproject.toml with its [tool.pixi].  Raises UsageError for one that is no TOML."""
    found = read_pyproject(path, root)
    file = shown_path(path, root)
    manifest = inner_table(parse_toml(read_text(path) or "", file), "tool", "pixi")
    if not manifest:
        return found
    pixi = _read_manifest(manifest, path, root)
    if found is None:
        return pixi
    return replace(
        found,
        requirements=(*found.requirements, *pixi.requirements),
        aside=(*found.aside, *pixi.aside),
        system=(*found.system, *pixi.system),
        python=found.python or pixi.python,
        cuda=found.cuda or pixi.cuda,
        notes=(*found.notes, *pixi.notes),
    )


def _read_manifest(manifest: Mapping[str, Any], path: Path, root: Path) -> FileFindings:
    reader = CondaReader(shown_path(path, root), root, path)
    for table in _tables(manifest):
        for name, wish in inner_table(table, "dependencies").items():
            version = wish.get("version", "*") if isinstance(wish, dict) else wish
            reader.entry(f"{name} {version}")
        reader.entry({"pip": list(_index_lines(inner_table(table, "pypi-dependencies"), reader))})
    found = reader.findings()
    cuda = inner_table(manifest, "system-requirements").get("cuda")
    # what only conda has stays a comment: the manifest is none of the files that conda reads
    return replace(
        found, cuda=found.cuda or (str(cuda) if cuda else None), frozen=False, conda_only=()
    )


def _tables(manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the tables of the default environment and of features for the GPU, with targets."""
    features = inner_table(manifest, "feature")
    default = inner_table(manifest, "environments").get("default", ())
    named = default.get("features", ()) if isinstance(default, dict) else default
    chosen = [name for name in features if name in named or FOR_GPU.search(name)]
    for table in (manifest, *(inner_table(features, name) for name in chosen)):
        yield table
        targets = inner_table(table, "target")
        yield from (inner_table(targets, name) for name in PLATFORMS)


def _index_lines(wishes: Mapping[str, Any], reader: CondaReader) -> Iterator[str]:
    """Yield the requirements of the index; the project itself and addresses are none."""
    for name, wish in wishes.items():
        table = dependency_table(wish)
        if table.get("path") == ".":
            continue
        if {"git", "path", "url"} & set(table):
            reader.aside.append((name, f"{reader.file}: {NO_ADDRESS}"))
            continue
        version = str(table.get("version", "*"))
        bounds = "" if version == "*" else version
        yield f"{name}{write_extras(table)}{bounds}"
