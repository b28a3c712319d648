"""The store's folders: what is kept, under which key, and the one lock per key."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from envbuild.errors import HostError
from envbuild.limits import read_kept
from envbuild.progress import Reporter
from envbuild.settings import Settings
from envbuild.store.anchored import refuse_foreign_links
from envbuild.store.atomic import is_shared, make_empty, make_folder, make_own_folder, os_errors_as

LAYOUT = "v1"
REFUSED_SECONDS, REFUSED_PAUSE = 5.0, 0.1
"""How long a lock file that cannot be opened is tried again (older versions fix it)."""
HELD = ".held"
"""Ending of the files that tell that a working folder's process lives."""
LEFT = ".partial.sif"
"""Ending of an image that is being written beside its final name."""
DEV_RECORD = ".dev.json"
"""Ending of the record of a development layer."""
LAYER_FILE = r"\.dev-[0-9a-f]{12}\.(sqfs|sif)"
"""Pattern of what follows the name in the name of a development layer."""

OUTSIDE = "envbuild-build-"
"""Beginning of the name of a temporary folder that lies outside of the store."""


def final_path(path: Path) -> Path:
    """Return the name that a file which is being written will have; any other path as it is."""
    found = re.fullmatch(rf"\.(.+)\.[0-9a-f]{{12}}{re.escape(LEFT)}", path.name)
    return path.with_name(found[1]) if found else path


def open_store(settings: Settings) -> Store:
    """Return the store that the settings name, over the stores that may only be read.

    Raises IntegrityError where another user has made one of its folders a link.
    """
    folders = settings.store / LAYOUT
    refuse_foreign_links(
        [folders, *folders.glob("*"), *folders.glob("apt/*"), *folders.glob("apt/*/*")]
    )
    return Store(settings.store, settings.stores_below)


@dataclass(frozen=True, slots=True)
class Store:
    """A content-addressed folder; every method returns a path and creates nothing but folders.

    ``artifacts/SHA[:2]/SHA`` downloaded files · ``bases/DIGEST.tar`` bootstrapped roots ·
    ``facts/DIGEST.json`` · ``layers/KEY.index`` and ``.blob`` packed trees · ``built/KEY.whl``
    wheels of sdists · ``images/KEY.sif`` or, for an image that is put together from layers,
    ``KEY.json`` · ``verdicts/DIGEST/`` · ``logs/`` · ``tmp/``.

    ``below`` are roots of other stores, such as the lab's, that are looked into and never written
    to.
    """

    root: Path
    below: tuple[Path, ...] = ()

    def new_log(self, name: str) -> Path:
        """Return the path of a new log of a build."""
        return (
            self.folder("logs")
            / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(4).hex()}.log"
        )

    def artifact(self, sha256: str) -> Path:
        """Return where the file with this sha256 (64 hex digits, or ``sha256:…``) is kept."""
        sha256 = sha256.removeprefix("sha256:")
        return self._find(f"artifacts/{sha256[:2]}/{sha256}")

    def base(self, digest: str) -> Path:
        """Return where the tar of a bootstrapped root is kept."""
        return self._find(f"bases/{_file_name_of(digest)}.tar")

    def facts(self, digest: str) -> Path:
        """Return where the facts read out of the image with this digest are kept."""
        return self._find(f"facts/{_file_name_of(digest)}.json")

    def scheme(self, digest: str, python: str) -> Path:
        """Return the file that says where a Python of the image installs packages."""
        return self._find(
            f"facts/{_file_name_of(digest)}{_file_name_of(python).replace('/', '-')}.scheme"
        )

    def image(self, key: str) -> Path:
        """Return the path of a built image; its key is of lock digest, mode and packing."""
        return self._find(f"images/{_file_name_of(key)}.sif")

    def record(self, key: str) -> Path:
        """Return where the record of an image that is put together from layers is kept."""
        return self._find(f"images/{_file_name_of(key)}.json")

    def delivery(self, key: str) -> Path:
        """Return where it is noted which image was put under a name."""
        return self.root / LAYOUT / "delivered" / f"{key}.json"

    def digest(self, key: str) -> Path:
        """Return where the digest of a file is noted; the key is over the file's path."""
        return self.root / LAYOUT / "digests" / f"{key}.json"

    def layer(self, key: str) -> Path:
        """Return the index of a packed tree; its bytes are beside it, as ``.blob``."""
        return self._find(f"layers/{key}.index")

    def metadata(self, name: str) -> Path:
        """Return the path of an index file's metadata; its name begins with the sha256."""
        return self._find(f"metadata/{name}")

    def built(self, key: str) -> Path:
        """Return where the wheel that was built from an sdist is kept."""
        return self._find(f"built/{key}.whl")

    def dev(self, name: str) -> Path:
        """Return where a layer for one run, or the note of a development layer, is kept."""
        return self._find(f"dev/{name}")

    def _find(self, relative: str) -> Path:
        """Return the path in the first store that has it, else in this one."""
        own = self.root / LAYOUT / relative
        if not self.below or own.exists():
            return own
        return next((path for top in self.below if (path := top / LAYOUT / relative).exists()), own)

    def own(self, path: Path) -> Path:
        """Return this store's own path of a file, as that of a store below may be damaged."""
        top = next((top for top in self.below if path.is_relative_to(top)), self.root)
        return self.root / path.relative_to(top)

    def verdicts(self, digest: str) -> Path:
        """Return the folder of an image's check reports, which may not be there."""
        return self.root / LAYOUT / "verdicts" / _file_name_of(digest)

    def folder(self, name: str) -> Path:
        """Return (and make) a named working folder of the store, such as "logs"."""
        path = self.root / LAYOUT / name
        with os_errors_as(path):
            make_own_folder(self.root)
            make_folder(path)
        return path

    @contextlib.contextmanager
    def work(self, purpose: str) -> Iterator[Path]:
        """Yield a temporary folder on the store's file system, removed afterwards."""
        with claim_folder(self.folder("tmp"), purpose) as path:
            with os_errors_as(path):
                path.mkdir(mode=0o700)
            try:
                yield path
            finally:
                remove_tree(path)

    @contextlib.contextmanager
    def beside(self, target: Path) -> Iterator[Path]:
        """Yield a name beside a final one for a new file; what is left there is removed.

        The store remembers the name meanwhile, so that ``store gc`` finds what a killed process
        left.
        """
        # nobody who may write there, such as code in an image, can put a link in its place before
        path = target.with_name(f".{target.name[:64]}.{os.urandom(6).hex()}{LEFT}")
        with claim_folder(self.folder("tmp"), "beside", remember=path):
            try:
                yield path
            finally:
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def outside(self, parent: Path, *, chosen: bool = False) -> Iterator[Path]:
        """Yield a temporary folder elsewhere, such as TMPDIR, which the store remembers.

        Raises HostError where any user may put a folder of his own in its place, unless the
        ``chosen`` place is where the user wants the outcome.
        """
        with os_errors_as(parent):
            open_to_all = None if chosen else _open_to_all(parent)
        if open_to_all is not None:
            what = "every user of the machine may exchange what lies in it (no sticky bit)"
            hint = f"chmod +t {shlex.quote(str(open_to_all))}; or export TMPDIR=/tmp"
            raise HostError(what, where=open_to_all, hint=hint)
        path = parent / f"{OUTSIDE}{os.getpid()}-{os.urandom(6).hex()}"
        with claim_folder(self.folder("tmp"), "outside", remember=path):
            with os_errors_as(path):
                path.mkdir(mode=0o700)
            try:
                yield path
            finally:
                remove_tree(path)

    @contextlib.contextmanager
    def lock(self, key: str, report: Reporter) -> Iterator[None]:
        """Hold the lock of one key; says who holds it while waiting.

        fcntl locks (filelock's default on Unix) end with their process, so a killed one leaves
        nothing to clear.
        """
        from filelock import FileLock, Timeout

        folder = self.folder("locks")
        path = folder / f"{_file_name_of(key)}.lock"
        holder = folder / f"{_file_name_of(key)}.holder"
        mode = 0o664 if is_shared(folder) else 0o644
        lock = FileLock(path, mode=mode)
        with os_errors_as(path):
            make_empty(path, mode)
            try:
                _lock_patiently(lambda: lock.acquire(timeout=0))
            except Timeout:
                report.say(f"waiting for {_lock_holder(holder)}, which makes the same thing")
                lock.acquire()
        try:
            with os_errors_as(holder):
                holder.unlink(missing_ok=True)  # a killed process of another user may have left one
                with holder.open("x", encoding="utf-8") as file:  # no link is followed
                    file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()


def _lock_patiently(acquire: Callable[[], object]) -> None:
    """Open a lock's file; a refusal may pass, as another user is just making it."""
    until = time.monotonic() + REFUSED_SECONDS
    while True:
        try:
            acquire()
        except PermissionError:  # noqa: PERF203  (every refusal counts)
            if time.monotonic() > until:
                raise
            time.sleep(REFUSED_PAUSE)
        else:
            return


def _open_to_all(folder: Path) -> Path | None:
    """Return the folder on the way to this one, or this one, in which any user may exchange the next."""
    real = folder.resolve(strict=True)
    for place in (real, *real.parents):
        mode = place.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return place
    return None


def _lock_holder(path: Path) -> str:
    """Return who holds a lock, one line: another user may have written the file."""
    try:
        first, _, _ = read_kept(path)[:200].decode("utf-8", "replace").partition("\n")
        return first.strip() or "another process"
    except OSError:
        return "another process"


@contextlib.contextmanager
def claim_folder(parent: Path, purpose: str, *, remember: Path | None = None) -> Iterator[Path]:
    """Yield an unused name in a folder; a locked NAME.held shows that its process lives.

    ``remember`` is a path elsewhere that is to vanish with the claim.
    """
    path = parent / f"{purpose}-{os.getpid()}-{os.urandom(6).hex()}"
    note = path.with_name(f"{path.name}{HELD}")
    with os_errors_as(note):
        handle = os.open(note, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        if remember is not None:
            with os_errors_as(note):
                os.write(handle, os.fsencode(remember.absolute()))
        yield path
    finally:
        # a thread that was still at work may have written into it: gc removes it then
        if remember is None or not os.path.lexists(remember):
            note.unlink(missing_ok=True)
        os.close(handle)


def _file_name_of(digest: str) -> str:
    """Turn ``sha256:abc…`` into a file name."""
    return digest.replace(":", "-")


def remove_tree(path: Path) -> None:
    """Remove a folder tree, folders without write permission included."""

    def writable(_function: object, name: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            Path(name).parent.chmod(0o700)
            # a link would hand the mode on to what it names, which may be anybody's
            if stat.S_ISDIR(Path(name).lstat().st_mode):
                Path(name).chmod(0o700)
                shutil.rmtree(name, ignore_errors=True)
            else:
                Path(name).unlink(missing_ok=True)

    shutil.rmtree(path, onerror=writable)
