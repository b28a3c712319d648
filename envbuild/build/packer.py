"""Pack with the library that the lock names, also on a machine that has another version of it.

The wheel is code that would run here, outside of any container, so a lock alone is not believed: the package index
of this machine has to list the very file with the very hash.
"""

from __future__ import annotations

import zipfile
from importlib import util
from pathlib import Path

from envbuild.build.codec import add_library, is_ready
from envbuild.build.model import Workshop
from envbuild.errors import EnvbuildError, IntegrityError, NetworkError
from envbuild.lock.library import LIBRARY, library_here
from envbuild.lock.model import Lock, PackerFile
from envbuild.store.atomic import commit, telling
from envbuild.store.fetch import Wanted, fetch
from envbuild.store.index import index_url, make_client, read_links
from envbuild.store.layout import Store

MODULE = f"{LIBRARY}.backend_c"


def ready_packer(lock: Lock, shop: Workshop) -> None:
    """Load the library that the lock names, where this machine has another one.

    Where that cannot be, it is said: the image then holds the same files in other bytes.
    """
    library = lock.packer.library
    if library is None or is_ready(lock.packer):
        return
    try:
        module = _load(_module_file(lock, shop), library)
    except (EnvbuildError, OSError, ImportError, zipfile.BadZipFile) as error:
        shop.report.say(
            f"the lock packs with {library}, which is not to be had here ({error}); {library_here()} packs the same "
            "files into other bytes"
        )
        return
    add_library(library, module)


def _module_file(lock: Lock, shop: Workshop) -> Path:
    """Return the library as a file, after bringing its wheel where the store lacks it."""
    item = _fitting(lock)
    final = shop.store.folder("tools") / f"{item.sha256}.so"
    if final.is_file():
        return final
    _require_listed(item, shop)
    wanted = Wanted(file=item.file, size=item.size, sha256=item.sha256, kind="python", project=LIBRARY)
    with shop.report.stage(f"bring {item.name} {item.version}, which packs"):
        fetch([wanted], settings=shop.settings, store=shop.store, runner=shop.runner, report=shop.report)
    return _extract(shop.store.artifact(item.sha256), final, shop.store)


def _extract(wheel: Path, final: Path, store: Store) -> Path:
    with store.work("packer") as work, zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{LIBRARY}/backend_c.")]
        if len(names) != 1:
            raise IntegrityError("holds no compiled library", where=wheel.name)
        with telling(work):
            (work / "module").write_bytes(archive.read(names[0]))
        commit(work / "module", final)
    return final


def _fitting(lock: Lock) -> PackerFile:
    """Return the wheel for the Python that runs this.  Raises IntegrityError where the lock lists none."""
    from packaging.tags import sys_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    known = list(sys_tags())
    for item in lock.packers:
        try:
            name, _, _, tags = parse_wheel_filename(item.file)
        except InvalidWheelFilename:
            continue
        if name == LIBRARY and any(tag in tags for tag in known):
            return item
    raise IntegrityError("the lock lists no wheel of it for this Python")


def _require_listed(item: PackerFile, shop: Workshop) -> None:
    with make_client(shop.settings) as client:
        links = read_links(index_url(shop.settings, shop.runner), LIBRARY, client)
    if not any((link.file, link.sha256) == (item.file, item.sha256) for link in links):
        raise NetworkError(f"the package index lists no {item.file} with the hash of the lock")


def _load(path: Path, library: str) -> object:
    spec = util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = "zstd " + ".".join(map(str, module.ZSTD_VERSION))
    if found != library:
        raise IntegrityError(f"holds {found}, the lock says {library}", where=path.name)
    return module
