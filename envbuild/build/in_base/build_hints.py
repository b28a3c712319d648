"""What to do about the build of a source archive that failed, by what its tools printed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envbuild.data.lookup import NVCC_BASE


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildHint:
    """What a failed build prints, and what to do then; groups of the pattern may fill the hint."""

    pattern: str
    hint: str


HINTS = (
    BuildHint(
        pattern=r"CUDA_HOME (?:environment variable is not set|does not exist)"
        r"|nvcc[^\n]{0,80}: not found|No such file or directory: [^\n]{0,80}nvcc",
        hint=f"it compiles GPU code, and the base has no nvcc: take {NVCC_BASE}",
    ),
    BuildHint(
        pattern=r"Python\.h: No such file",
        hint='add "python3-dev" to [system] build-packages',
    ),
    BuildHint(
        pattern=r"command '[^'\n]{0,80}(?:gcc|g\+\+|cc|c\+\+)' failed: No such file"
        r"|No CMAKE_CXX?_COMPILER could be found|Unknown compiler\(s\)"
        r"|Broken toolchain: cannot link",
        hint='add "gcc", "g++" and "python3-dev" to [system] build-packages',
    ),
    BuildHint(
        pattern=r"fatal error: (?P<name>[\w./+-]{1,80}\.h(?:pp)?): No such file",
        hint="the Debian package that has {name} belongs into [system] build-packages "
        "(apt-file search {name} names it)",
    ),
    BuildHint(
        pattern=r"No such file or directory: '(?P<name>cmake|make|git|pkg-config|swig|cargo)'",
        hint='add "{name}" to [system] build-packages',
    ),
    BuildHint(
        pattern=r"\b(?P<name>cmake|make|git|pkg-config|swig|cargo): (?:command )?not found",
        hint='add "{name}" to [system] build-packages',
    ),
)
"""Words of PyTorch's cpp_extension, gcc, setuptools, CMake, Meson, Python and sh; the first one counts."""
UNKNOWN = "compilers and headers that it needs belong into [system] build-packages"


def build_hint(output: str) -> str:
    """Return what to do about a failed build."""
    for known in HINTS:
        found = re.search(known.pattern, output)
        if found is not None:
            return known.hint.format(**found.groupdict())
    return UNKNOWN
