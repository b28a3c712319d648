"""What the code of a source archive uses that newer releases of other packages have no more."""

from __future__ import annotations

import re
from functools import cache
from pathlib import PurePosixPath

from envbuild.data.package_tables import load_majors, load_names
from envbuild.names import Pairs, Texts

LARGEST_CODE = 1024 * 1024
"""Bytes of one file that are looked at: what a generator wrote says at its start what it includes."""
MOST_CODE = 16 * 1024 * 1024
"""Characters of one archive that are looked at."""
PYTHON, COMPILED = (".py",), (".pyx", ".pxd", ".c", ".cc", ".cpp", ".h")
ASIDE = re.compile(
    r"(?:.*/)?(?:tests?|testing|docs?|examples?|benchmarks?)/|(?:.*/)?(?:setup|test_[^/]*)\.py\Z"
)
"""Code that no import of the package runs."""


@cache
def _patterns(*, compiled: bool) -> Pairs:
    """Return (what code says, the bound that it needs): of Python, or of what is compiled."""
    if compiled:
        majors = load_majors().major
        return tuple((one.includes, one.bound) for one in majors if one.includes)
    return tuple((row.says, row.bound) for row in load_names().old)


class OldCode:
    """The bounds that the code of one archive needs, as far as it was looked at."""

    def __init__(self) -> None:
        self._left = MOST_CODE
        self._found: dict[str, None] = {}
        self._kind = ""

    @property
    def bounds(self) -> Texts:
        """The bounds: "numpy<1.24"."""
        return tuple(sorted(self._found))

    def wants(self, inner: str) -> bool:
        """Whether a file is to be looked at next."""
        self._kind = PurePosixPath(inner).suffix
        is_code = self._kind in PYTHON or self._kind in COMPILED
        return is_code and self._left > 0 and not ASIDE.match(inner)

    def look(self, text: str) -> None:
        """Add what the text of that file needs."""
        self._left -= len(text)
        for says, bound in _patterns(compiled=self._kind in COMPILED):
            if bound not in self._found and re.search(says, text):
                self._found[bound] = None
