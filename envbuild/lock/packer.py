"""What packs an image's blocks: this program's layout, and one exact compressor.

Another version of zstd gives other bytes of the same files, so the lock lists wheels of the
library, and a machine that has another version packs with the locked one.
"""

from __future__ import annotations

import msgspec

from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.errors import EnvbuildError
from envbuild.formats.block_library import LAYOUT, LIBRARY, library_here
from envbuild.limits import decode_kept
from envbuild.lock.model import Packer, PackerFile
from envbuild.resolve.sources.pinned_wheel import pinned_wheels
from envbuild.store.atomic import write_bytes
from envbuild.tools import installed_version

LEVEL = 3
"""zstd level 3 packs 219 MB in 1.1 s where gzip takes 19 s, at the same size
(docs/decisions.md)."""
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
"""Versions of Python that envbuild may run with where the lock is used."""
GLIBC = "2.28"


def packer_here() -> Packer:
    """Return what packs images on this machine."""
    return Packer(
        name="envbuild", version=str(LAYOUT), compressor="zstd", level=LEVEL, library=library_here()
    )


def find_packers(machine: str, context: Context) -> tuple[PackerFile, ...]:
    """Return the wheels of this machine's compressor, asked for once for each version.

    Where the index has none (or none for some Python), those are left out: the lock then names the
    library only.
    """
    wanted = installed_version(LIBRARY)
    path = context.store.folder("metadata") / f"{LIBRARY}-{wanted}-{machine}.json"
    kept = decode_kept(path, tuple[PackerFile, ...])
    if kept is not None:
        return kept
    bases = [
        BaseFacts(image=LIBRARY, python=f"{python}.0", machine=machine, glibc=GLIBC)
        for python in PYTHONS
    ]
    try:
        wheels = pinned_wheels(LIBRARY, wanted, bases, context)
    except EnvbuildError:
        return ()
    found = tuple(
        PackerFile(
            name=wheel.name,
            version=wheel.version,
            file=wheel.file.file,
            size=wheel.file.size,
            sha256=wheel.file.sha256,
        )
        for wheel in wheels
    )
    # a wheel that is missing today may be there tomorrow
    if len(found) == len(bases):
        write_bytes(path, msgspec.json.encode(found))
    return found
