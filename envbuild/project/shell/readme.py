"""Read what a README or a script for it installs: lines with pip and conda."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from envbuild.project.lists.readme import BLOCK, NAMES
from envbuild.project.model import FileFindings
from envbuild.project.shell.installs import read_lines
from envbuild.project.tree import is_inside, read_text, shown_path

LINE = re.compile(
    r"^[ \t]*(?:[$%>][ \t]*)?((?:sudo[ \t]+)?(?:\S*python[\d.]*[ \t]+-m[ \t]+)?(?:pip|conda|mamba)\d*[ \t]+"
    r"(?:install|create)\b[^\n]*)$",
    re.MULTILINE,
)
SCRIPT = re.compile(
    r"(?!.*(cpu|windows|win|mac|rocm))(.*[-_.])?(init|install|set[-_]?up|env|environment"
    r"|requirements?|deps|dependencies|bootstrap|prepare)([-_.].*)?\.sh|[Mm]akefile"
)
"""Scripts of the shell that install what a project needs."""


def read_readme(root: Path) -> FileFindings | None:
    """Read the installing lines of a project's README; None where it has none."""
    for path in (root / name for name in NAMES):
        blocks = [block[2] for block in BLOCK.finditer(_joined_lines(path))]
        findings = _read_installs(blocks, shown_path(path, root))
        if findings is not None:
            return findings
    return None


def read_script(root: Path) -> FileFindings | None:
    """Read the first script that installs packages; None where there is none."""
    for path in install_scripts(root):
        findings = _read_installs([_joined_lines(path)], shown_path(path, root))
        if findings is not None:
            return findings
    return None


def install_scripts(root: Path) -> list[Path]:
    """Return the scripts and makefiles that may install what a project needs."""
    found = (
        *sorted(root.glob("*.sh")),
        *sorted(root.glob("[Mm]akefile")),
        *sorted(root.glob("*/*.sh")),
    )
    return [path for path in found if SCRIPT.fullmatch(path.name) and is_inside(path, root)]


def _joined_lines(path: Path) -> str:
    return re.sub(r"\\\n", " ", read_text(path) or "")


def _read_installs(texts: list[str], file: str) -> FileFindings | None:
    lines = list(chain.from_iterable(map(LINE.findall, texts)))
    found = read_lines(lines, file)
    if not found.requirements:
        return None
    return FileFindings(
        file=file,
        requirements=tuple(found.requirements),
        aside=tuple(found.aside),
        python=found.python,
        cuda=found.cuda,
        from_readme=True,
    )
