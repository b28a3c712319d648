"""A build of a source archive that failed: what to do, by the lines of the tools."""

from __future__ import annotations

import pytest

from envbuild.build.in_base.sdists import UNKNOWN, build_hint
from envbuild.data.lookup import NVCC_BASE

TOOL = 'add "{}" to [system] build-packages'
PYTHON = TOOL.format("python3-dev")
COMPILERS = 'add "gcc", "g++" and "python3-dev" to [system] build-packages'


NVCC = f"it compiles GPU code, and the base has no nvcc: take {NVCC_BASE}"
HEADER = (
    "the Debian package that has gsl/gsl_rng.h belongs into [system] build-packages "
    "(apt-file search gsl/gsl_rng.h names it)"
)
ROWS = (
    # PyTorch 2.10, torch/utils/cpp_extension.py
    ("OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA …", NVCC),
    # setuptools, as printed for msgspec 0.18.6 on a base without a compiler
    ("error: command 'gcc' failed: No such file or directory", COMPILERS),
    ("error: command 'x86_64-linux-gnu-g++' failed: No such file or directory", COMPILERS),
    ("CMake Error: No CMAKE_CXX_COMPILER could be found.", COMPILERS),
    ("a.c:1:10: fatal error: Python.h: No such file or directory", PYTHON),
    ("a.c:2:10: fatal error: gsl/gsl_rng.h: No such file or directory", HEADER),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'cmake'", TOOL.format("cmake")),
    ("/bin/sh: 1: make: not found", TOOL.format("make")),
    ("SyntaxError: invalid syntax", UNKNOWN),
    ("{0} {x}", UNKNOWN),
)


@pytest.mark.parametrize(("line", "hint"), ROWS)
def test_what_to_do_is_told_by_what_the_build_printed(line: str, hint: str) -> None:
    assert build_hint(f"building\n{line}\nsubprocess.CalledProcessError\n") == hint
