"""This machine's Python for an image that has none: its files alone, started by its own loader.

Nothing of the image's libraries is used, so an image of any age or size will do.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from envbuild.context import Context
from envbuild.errors import HostError
from envbuild.limits import UNREADABLE
from envbuild.names import Texts
from envbuild.records import frozen_record
from envbuild.run import Command, Runner
from envbuild.runtime import Bind
from envbuild.script_files import read_script
from envbuild.store.atomic import os_errors_as

PLACE = "/mnt/python"
"""Where an image sees it."""
PACKAGES = "site-packages"
"""The user's own packages: in the standard library's folder where a Python is not a distribution's.

They are not the image's, and it does not see them.
"""
"""Starts it again from inside: sys.executable of the first start."""


class _PythonFiles(msgspec.Struct, frozen=True):
    """What this machine's Python is made of, by paths."""

    program: str
    stdlib: str
    libraries: Texts

    @property
    def loader(self) -> str | None:
        """The dynamic loader; None for a Python that is linked in another way."""
        return next((path for path in self.libraries if "/ld-" in path), None)


@frozen_record
class HostPython:
    """How an image starts this machine's Python.

    ``argv`` comes before the Python's own words; ``binds`` have to be given.
    """

    argv: Texts
    binds: tuple[Bind, ...]


@contextmanager
def open_host_python(context: Context) -> Iterator[HostPython]:
    """Yield this machine's Python for runs inside of images.

    Raises HostError where it is of a kind that cannot be bound.
    """
    found = _find_parts(context.runner)
    with context.store.work("python") as work:
        folder = work / "bound"
        _lay_out(found, folder)
        stdlib = Path(found.stdlib)
        seen_at = f"{PLACE}/lib/{stdlib.name}"
        binds: list[Bind] = [(folder, PLACE, False), (stdlib, seen_at, False)]
        if (stdlib / PACKAGES).is_dir():
            nothing = work / "nothing"
            with os_errors_as(nothing):
                nothing.mkdir(0o755)
            binds.append((nothing, f"{seen_at}/{PACKAGES}", False))
        yield HostPython(
            # it finds its standard library by its own name, and needs no variable for that
            argv=(
                f"{PLACE}/lib/loader",
                "--argv0",
                f"{PLACE}/bin/python3",
                "--library-path",
                f"{PLACE}/lib",
                f"{PLACE}/bin/python",
            ),
            binds=tuple(binds),
        )


def _find_parts(runner: Runner) -> _PythonFiles:
    script = read_script("envbuild", "host_scripts/find_python_files.py")
    result = runner(Command(argv=(sys.executable, "-I", "-S", "-c", script)), check=False)
    try:
        found = msgspec.json.decode(result.stdout, type=_PythonFiles)
    except UNREADABLE:
        found = None
    if found is None or found.loader is None:
        raise HostError(
            f"the Python that runs envbuild ({sys.executable}) cannot be bound into an image",
            hint="the image has no Python of its own: run envbuild with Debian's Python",
        )
    return found


def _names_of(library: Path) -> Iterator[str]:
    """Yield all names of a library: libc-2.31.so of older systems is asked for as libc.so.6."""
    stem = library.name.split(".so")[0].split("-")[0]
    for path in library.parent.glob(f"{stem}*"):
        if path.resolve() == library.resolve():
            yield path.name


def _lay_out(found: _PythonFiles, folder: Path) -> None:
    """Copy program, loader and libraries; of the standard library only the place is made."""
    with os_errors_as(folder):
        (folder / "bin").mkdir(parents=True)
        (folder / "lib" / Path(found.stdlib).name).mkdir(parents=True)
        for library in map(Path, found.libraries):
            for name in _names_of(library):
                shutil.copyfile(library, folder / "lib" / name)
        assert found.loader is not None  # noqa: S101  (asked for before)
        shutil.copyfile(found.loader, folder / "lib/loader")
        shutil.copyfile(found.program, folder / "bin/python")
        # sys.executable of the first start: what starts it again from inside
        launcher = read_script("envbuild", "host_scripts/start_python.sh")
        (folder / "bin/python3").write_text(launcher)
        # root runs an image as another user
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
