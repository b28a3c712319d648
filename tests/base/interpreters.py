"""The Pythons of this machine that the probe is tried on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

VERSIONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def interpreter(version: str) -> Path | None:
    """Return a Python of this minor version: pyenv's, else the one on PATH."""
    own = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    if own:
        return own[-1]
    found = shutil.which(f"python{version}")
    return Path(found) if found else None


def parameters() -> list[ParameterSet]:
    """Return one test parameter a version; a version that is not here is skipped with that reason."""
    found = []
    for version in VERSIONS:
        path = interpreter(version)
        marks = [] if path else [pytest.mark.skip(reason=f"no Python {version} on this machine")]
        found.append(pytest.param(path, id=version, marks=marks))
    return found
