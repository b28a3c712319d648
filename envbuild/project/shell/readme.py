"""Read what a README tells its reader to install: pip and conda lines of its code blocks."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from envbuild.project.lists.readme import BLOCK, NAMES
from envbuild.project.model import FileFindings
from envbuild.project.shell.installs import read_lines
from envbuild.project.tree import read_text, shown_path

LINE = re.compile(
    r"^[ \t]*[$%>]?[ \t]*((?:sudo[ \t]+)?(?:\S*python[\d.]*[ \t]+-m[ \t]+)?(?:pip|conda|mamba)\d*[ \t]+"
    r"(?:install|create)\b[^\n]*)$",
    re.MULTILINE,
)


def read_readme(root: Path) -> FileFindings | None:
    """Read the installing lines of a project's README; None where it has none."""
    for path in (root / name for name in NAMES):
        text = re.sub(r"\\\n", " ", read_text(path) or "")
        blocks = (block[2] for block in BLOCK.finditer(text))
        lines = list(chain.from_iterable(map(LINE.findall, blocks)))
        file = shown_path(path, root)
        found = read_lines(lines, file)
        if found.requirements:
            return FileFindings(
                file=file,
                requirements=tuple(found.requirements),
                aside=tuple(found.aside),
                python=found.python,
                cuda=found.cuda,
                from_readme=True,
            )
    return None
