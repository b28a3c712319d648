"""The ways to build an image: one row a mode, with what differs as fields.

A new mode is a row here and, where it builds from the written definition, a module with its
``Builder``. This module imports nothing that builds: a ``make`` that has nothing to do reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from envbuild.names import Texts
from envbuild.records import frozen_record

if TYPE_CHECKING:
    from envbuild.build.modes.builders import Builder


def _fakeroot() -> Builder:
    from envbuild.build.modes.fakeroot import Fakeroot  # late: only where it builds

    return Fakeroot()


def _sandbox() -> Builder:
    from envbuild.build.modes.fakeroot import Fakeroot  # late: only where it builds

    return Fakeroot(sandbox=True)


def _docker() -> Builder:
    from envbuild.build.modes.docker import Docker  # late: only where it builds

    return Docker()


@frozen_record
class Mode:
    """A way to build.

    ``builder`` makes what builds from the written definition; without it the image is put together
    from the store. ``is_layered`` gives each layer a partition of its own; ``is_tree`` makes a
    writable folder and no file; ``by_engine`` lets a container engine build, which fetches the base
    itself. ``needs_ids`` says that a root of the user's own unpacks the Debian root,
    ``needs_mksquashfs`` that this program packs. ``auto_reason`` is why "auto" takes it, "" where
    it never does.
    """

    name: str
    builder: Callable[[], Builder] | None = None
    is_layered: bool = False
    is_tree: bool = False
    by_engine: bool = False
    needs_ids: bool = False
    needs_mksquashfs: bool = False
    auto_reason: str = ""

    @property
    def is_assembled(self) -> bool:
        """Whether the image is put together from the store."""
        return self.builder is None

    @property
    def root_groups(self) -> Texts:
        """The groups of Debian packages that its bootstrapped root begins with."""
        return ("base", "system") if self.is_assembled else ("base",)


ROWS = (
    Mode(name="flat", auto_reason="put together from the store, without root"),
    Mode(name="layered", is_layered=True),
    Mode(
        name="fakeroot",
        builder=_fakeroot,
        needs_ids=True,
        needs_mksquashfs=True,
        auto_reason="built from its definition",
    ),
    Mode(
        name="sandbox",
        builder=_sandbox,
        is_tree=True,
        needs_ids=True,
        auto_reason="a writable tree, for nothing here packs an image",
    ),
    Mode(name="docker", builder=_docker, by_engine=True, needs_mksquashfs=True),
)
"""In the order in which "auto" tries them."""
MODES = {mode.name: mode for mode in ROWS}
