"""What to do about the build of a source archive that failed, by what its tools printed."""

from __future__ import annotations

import re

from envbuild.data.lookup import NVCC_BASE
from envbuild.data.tables import load_failures

UNKNOWN = "compilers and headers that it needs belong into [system] build-packages"


def build_hint(output: str) -> str:
    """Return what to do about a failed build."""
    for known in load_failures().build:
        found = re.search(known.pattern, output)
        if found is not None:
            return known.hint.format(nvcc_base=NVCC_BASE, **found.groupdict())
    return UNKNOWN
