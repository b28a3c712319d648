"""The folder that conda packages are linked for, and what lies where in it."""

from __future__ import annotations

from envbuild.lock.model import Lock
from envbuild.records import frozen_record
from envbuild.store.units import minor_version


@frozen_record
class CondaPrefix:
    """Where packages are linked: a folder without its leading slash.

    ``python`` is the minor version of its Python, "" where it has none.
    """

    path: str
    python: str = ""

    @property
    def site(self) -> str:
        """The folder of the Python's packages, inside the prefix."""
        return f"lib/python{self.python}/site-packages"

    @property
    def interpreter(self) -> str:
        """The Python of the environment, as scripts name it."""
        return f"/{self.path}/bin/python{self.python}"


def prefix_of(lock: Lock) -> CondaPrefix:
    """Return where the conda packages of a lock are linked."""
    has_python = lock.conda_python is not None or lock.base.conda_prefix is not None
    python = lock.python_version if has_python else ""
    return CondaPrefix(path=lock.conda_prefix.lstrip("/"), python=minor_version(python))
