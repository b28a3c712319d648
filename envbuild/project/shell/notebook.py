"""Read what a notebook installs for itself: %pip, !pip, !apt, %conda, and cells of shell."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.project.code.imports import notebook_cells
from envbuild.project.model import FileFindings
from envbuild.project.shell.installs import read_lines
from envbuild.project.tree import read_text

LINE = re.compile(
    r"^[ \t]*(?:[!%]|%%)[ \t]*((?:sudo[ \t]+)?\S*(?:pip|apt|apt-get|conda|mamba|python)\d*\b.*)$",
    re.MULTILINE,
)
SHELL = re.compile(r"\s*%%(?:bash|sh|shell|script\s+\S*sh)\b[^\n]*\n")


def read_notebook(path: Path, root: Path) -> FileFindings | None:
    """Read the installing lines of a notebook; None where it has none, or is no notebook."""
    cells = notebook_cells(read_text(path) or "")
    lines: list[str] = []
    for cell in cells or ():
        shell = SHELL.match(cell)
        text = re.sub(r"\\\n", " ", cell)
        lines += cell[shell.end() :].splitlines() if shell else LINE.findall(text)
    file = path.relative_to(root).as_posix()
    found = read_lines(lines, file)
    if not found.requirements and not found.system:
        return None
    return FileFindings(
        file=file,
        requirements=tuple(found.requirements),
        aside=tuple(found.aside),
        system=tuple(dict.fromkeys(found.system)),
        python=found.python,
    )
