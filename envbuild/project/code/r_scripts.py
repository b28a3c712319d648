"""Read which packages a project's R code loads: Python's index has none of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from envbuild.project.tree import read_text

LOADS = re.compile(
    r"\b(?:library|require|requireNamespace|loadNamespace)\(\s*[\"']?([A-Za-z][\w.]*)"
    r"|(?<![\w.:])([A-Za-z][\w.]*):{2,3}(?=[\w.])"
)
WITH_R = {
    "base", "compiler", "datasets", "graphics", "grDevices", "grid", "methods", "parallel",
    "splines", "stats", "stats4", "tcltk", "tools", "utils",
}  # fmt: skip
"""Packages that are part of R itself (R's manual "R Installation and Administration")."""
MOST_SCRIPTS = 200
MOST_NAMED = 8
"""Packages that a note names."""


def r_note(root: Path, scripts: tuple[Path, ...]) -> str | None:
    """Return what to tell of a project's R code, paths below ``root``; None where there is none."""
    if not scripts:
        return None
    names = sorted(_loaded(root, scripts[:MOST_SCRIPTS]), key=str.casefold)
    shown = names[:MOST_NAMED]
    debian = " ".join(("r-base-core", *(f"r-cran-{name.lower()}" for name in shown)))
    conda = " ".join(("r-base", *(f"r-{name.lower()}" for name in shown)))
    loads = f" loads {', '.join(shown)}{' …' if len(names) > MOST_NAMED else ''}"
    return (
        f"R code ({scripts[0].as_posix()}){loads if names else ''}: Python's index has no R; "
        f"from Debian in [system] packages: {debian}; or in [conda] dependencies: {conda} "
        "(Bioconductor: r-bioc-…, bioconductor-…)"
    )


def _loaded(root: Path, scripts: Iterable[Path]) -> set[str]:
    found: set[str] = set()
    for path in scripts:
        text = re.sub(r"(?m)^[ \t]*#.*$", "", read_text(root / path) or "")
        found.update(filter(None, chain.from_iterable(LOADS.findall(text))))
    return found - WITH_R
