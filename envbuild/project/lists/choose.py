"""Choose which of a project's lists count, by their names and places."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.names import Paths

PLAIN_LISTS = (
    "requirements.in",
    "requirements.txt",
    "requirement.txt",
    "pip_requirements.txt",
    "pip-requirements.txt",
)
"""Lists that are taken alone, without their variants (requirements-gpu.txt)."""


def choose_lists(lists: Paths) -> tuple[Paths, Paths]:
    """Return the lists to read and those to leave: the nearest to the root, no variants."""
    chosen: list[Path] = []
    at_root = any(len(path.parts) == 1 for path in lists)
    near = [path for path in lists if not at_root or is_near(path)]
    for kind in (_is_table, is_requirements, is_conda, is_container):
        of_kind = [path for path in near if kind(path)]
        level = min((len(path.parts) for path in of_kind), default=0)
        nearest = [path for path in of_kind if len(path.parts) == level]
        if kind is _is_table:
            chosen += [path for path in nearest if level == 1 or not at_root]
        elif kind is is_requirements:
            chosen += _plain_lists(nearest)
        elif nearest:
            chosen.append(
                min(
                    nearest,
                    key=lambda path: (
                        _is_variant(path),
                        _is_docker(path),
                        not _is_for_gpu(path),
                        path.stem != "environment",
                        len(path.name),
                        path.name,
                    ),
                )
            )
    others = (path for path in lists if path not in chosen)
    left = [path for path in others if len(path.parts) == 1 or not is_near(path)]
    return tuple(chosen), tuple(left)


NEAR = re.compile(
    r"$|req|env|conda|docker|container|singularity|apptainer|install|setup|config|build|deploy"
)
"""Folders that are there for lists."""


def is_near(path: Path) -> bool:
    """Whether a list is at the root, or in a folder that is there for lists."""
    folder = path.parts[0].lower() if len(path.parts) > 1 else ""
    return NEAR.match(folder) is not None


def _is_docker(path: Path) -> bool:
    """Whether a definition is Docker's: one of Apptainer beside it comes first."""
    return "ockerfile" in path.name or path.name == "Containerfile"


def _plain_lists(lists: list[Path]) -> list[Path]:
    by_name = {path.name: path for path in lists}
    found = [by_name[name] for name in PLAIN_LISTS if name in by_name]
    in_folder = [
        path
        for path in lists
        if path.stem in ("base", "main", "common", "runtime", "prod", "default", "core")
    ]
    return found or in_folder or [path for path in lists if not _is_variant(path)] or lists[:1]


def _is_variant(path: Path) -> bool:
    return bool(
        re.search(
            r"cpu|mac|osx|apple|darwin|metal|mps|win|arm|rocm|amd|[tinhx]pu|colab"
            r"|optional|extra|full|dev|test|lock|frozen",
            path.name.lower(),
        )
    )


def _is_for_gpu(path: Path) -> bool:
    """Whether a list is the one for a GPU: environment_gpu.yml beside environment.yml."""
    return re.search(r"gpu|cuda", path.name.lower()) is not None


def _is_table(path: Path) -> bool:
    return path.name in ("pyproject.toml", "setup.cfg", "setup.py", "Pipfile")


def is_conda(path: Path) -> bool:
    """Whether a file is an environment of conda or pixi."""
    return path.suffix in (".yml", ".yaml") or path.name == "pixi.toml"


def is_container(path: Path) -> bool:
    """Whether a file is a Dockerfile or a definition."""
    return not _is_table(path) and not is_conda(path) and path.suffix not in (".txt", ".in", ".pip")


def is_requirements(path: Path) -> bool:
    """Whether a file is a list for pip."""
    return path.suffix in (".txt", ".in", ".pip")
