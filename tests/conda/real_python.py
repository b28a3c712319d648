"""This machine's Python as a conda package: it runs, finds its modules in its prefix, and imports packages from there."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from tests.conda.archives import Archive

MINOR = ".".join(platform.python_version_tuple()[:2])
PROGRAM = Path(f"/usr/bin/python{MINOR}")
LIBRARY = Path(f"/usr/lib/python{MINOR}")
LEFT_OUT = {
    "EXTERNALLY-MANAGED",
    "__pycache__",
    "test",
    "tests",
    "dist-packages",
    "idlelib",
    "pydoc_data",
    "lib2to3",
}
CUSTOMIZE = """
import site, sys
site.addsitedir(f"{sys.prefix}/lib/python%s/site-packages")
"""
"""Debian's Python looks into other folders than all others."""


def real_python() -> Archive:
    """Return the package; a test that needs it is skipped where PROGRAM is not Debian's."""
    files = {f"bin/python{MINOR}": PROGRAM.read_bytes()}
    for path in sorted(LIBRARY.rglob("*")):
        inner = path.relative_to(LIBRARY)
        is_wanted = path.is_file() and not LEFT_OUT & set(inner.parts)
        if is_wanted and not inner.name.startswith("sitecustomize"):
            files[f"lib/python{MINOR}/{inner}"] = path.read_bytes()
    files[f"lib/python{MINOR}/sitecustomize.py"] = (CUSTOMIZE % MINOR).encode()
    return Archive(
        name="python",
        version=platform.python_version(),
        build="h1_0_cpython",
        files=files,
        links={"bin/python": f"python{MINOR}", "bin/python3": f"python{MINOR}"},
        programs=(f"bin/python{MINOR}",),
    )


def has_real_python() -> bool:
    """Tell whether this machine has a Python of Debian's packages."""
    return PROGRAM.is_file() and LIBRARY.is_dir() and shutil.which("dpkg") is not None
