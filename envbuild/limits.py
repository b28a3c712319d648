"""How much of anything is read from hostile input: each limit with its reason, and what counts.

A small input never takes more than some 512 MB of memory or a minute. Where an honest input may be
large, the limit grows with the size of what was sent: whoever wants much done has to send much.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from envbuild.errors import EnvbuildError, IntegrityError, UsageError

T = TypeVar("T")
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises over bytes that are not what they should be."""
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RECORD = 512 * MIB
"""Bytes of a record that the store keeps: the largest found, of all Debian packages, has 47 MB."""
PATH = 4096
"""Bytes of a path or of a link's target: Linux opens no longer one (PATH_MAX)."""
NAME = 255
"""Bytes of one name of a path: no usual file system holds longer ones (NAME_MAX)."""
DEPTH = 255
"""Folders in each other; real trees have some 30, and every level costs each name below it."""
HEADER = MIB
"""Bytes of a tar header that describes a member; the largest honest ones hold 64 KiB."""
COMMON_HEADERS = 64 * KIB
"""Bytes of tar headers for all members; each member gets a copy of them.  git writes 52."""
CHAIN = 16
"""Headers before one member: each is a call within the last.  Tar programs write at most three."""
XZ = 128 * MIB
"""Bytes of memory to unpack one .xz; xz's strongest preset (-9) takes 65 MiB (xz(1))."""
KEYSTORE = 16 * MIB
"""Bytes of Java's certificates, which are rewritten in memory; Debian's have 160 KiB."""
SCRIPT = 16 * MIB
"""Bytes of a wheel's script, which is rewritten in memory; honest ones have some megabytes."""
WHOLE = {"RECORD": 64 * MIB, "WHEEL": MIB, "METADATA": 4 * MIB, "entry_points.txt": MIB}
"""Bytes of files that are read as a whole: the RECORD of 300,000 files has 40 MB, the others kB."""
CONDA_INFO = 64 * MIB
"""Bytes of a conda package's own lists; paths.json of 100,000 files has 25 MB."""
TEXT = 4 * MIB
"""Bytes that are read of a source archive's pyproject.toml; what is longer does not parse."""
LIBRARY = 64 * MIB
"""Bytes of the compiled library that packs; zstandard's has 6 MB."""
LIST = 4 * MIB
"""Bytes of a page of a registry's tags; pages of 1000 tags have 130 kB."""
# characters of one tag of an HTML page: those of index pages have some hundred
TAG = 64 * KIB
TOKEN = MIB
"""Bytes of a registry's token; real ones have 2 to 8 kB."""
CHALLENGE = 8 * KIB
"""Bytes of the header in which a registry says who may give a token."""
ANSWER_SECONDS = 180.0
"""How long a server may take over an answer that is read whole: a manifest, a list, a page."""
PAGE, LINKS = 32 * MIB, 100_000
"""Bytes of a project's page on an index, unpacked, and its files; the largest have a few million.

A file costs up to 10 times its bytes in memory, and 30 microseconds; tf-nightly has 2,400.
"""
REFUSAL = 64 * KIB
"""Bytes that are read of what comes with a redirect, for which nobody asked."""
QUESTION_SECONDS = 300.0
"""One call of uv, which fetches some hundred pages at once; a cold one took 34 s."""
RESOLUTION_SECONDS = 900.0
"""All calls of uv for one resolution; a cold one with twenty calls took 60 s."""
RESOLVER_MEMORY = 512 * MIB
"""Bytes of memory for uv; the 641 packages of apache-airflow[all] took 240 MB."""
SEARCH_SECONDS = 5.0
"""How long each address gets to answer when the slow one of several is looked for."""
FILE_SECONDS = 600.0
"""What the download of any file gets; its size at SLOWEST_FILE comes on top."""
SLOWEST_FILE = 8 * KIB
"""Bytes a second of a whole download: a server that drips is not waited for as long as it likes."""
STALL_SECONDS, STALL_BYTES = 60.0, 64 * KIB
"""A download that brings less in that time is given up; one of a file is opened again."""
BACKEND_SECONDS = 120.0
"""One question to a build backend, where the user lets it run; setuptools answers in a second."""
RESTARTS = 5
"""How often a download starts from its first byte because the server does not continue."""
CHANNEL_MEMORY, CHANNEL_MEMORY_MOST = 448 * MIB, 4 * GIB
"""Bytes of memory for reading a channel's lists: for small ones, and for any.

8 for each byte sent come on top.  65 packages out of 50,000 take 100 MiB, out of 400,000 250.
"""
CHANNEL_LIST, CHANNEL_LIST_MOST = 64 * MIB, 2 * GIB
"""Bytes of one unpacked list, the same way: 20 for each byte sent; honest lists have 5 to 10."""
CHANNEL_CPU = 60
"""Seconds of the processor for small lists; one for each MiB sent comes on top."""
CHANNEL_SECONDS = 1200.0
"""One question to the channels of a recipe, with all downloads."""
TABLE = 64 * MIB
"""Bytes of a table of parameters, of a file of variables, and of one of keys."""
SHELL_LINE = 64 * KIB
"""Characters of a shell line that is split: the time grows with their square (4 MB: hours)."""
LONG_LINE = re.compile(r"^[^\n]{4000,}$", re.MULTILINE)
"""Lines that rules leave out: one may look at the rest of a line from each of its places."""
ATTRIBUTES = 128 * KIB
"""Bytes of the extended attributes of a file: Linux has 64 KiB of names, and of each value."""
ATTRIBUTE, ATTRIBUTE_SETS, OWNERS = 16, 0x10000, 0xFFFF
"""Bytes that an attribute costs beside its own; sets of them, and owners, that squashfs counts."""
GIT_MEMORY, SHELF_PACK, REPOSITORY = 512 * MIB, GIB, 8 * GIB
"""Bytes of memory for git, and what it may bring of a shelf, and of any repository.

A delta of 15 kB can ask for any memory; git takes 90 bytes for an object, and streams big files.
"""
GIT_BOUNDS = ((resource.RLIMIT_DATA, GIT_MEMORY),)
SMALL_GIT = (
    "-c", "core.bigFileThreshold=16m", "-c", "fetch.unpackLimit=1", "-c", "pack.threads=2",
)  # fmt: skip
"""How git keeps to it, and brings all that it fetches in one file."""
SHELF_FILES, REPOSITORY_FILES = 200_000, 1_000_000
"""Files of a shelf's tree, and of a repository's: git's trees of 1 kB unfold to any number."""
SUBMODULES = 1000
"""Repositories that one brings along: each may name the next one twice. Boost has some 170."""
PROJECT = 64 * MIB
"""Bytes of a bundle's recipe, lock and scripts; a lock of 1000 packages has 300 kB."""
ENTRY = 200
"""What a name costs in memory beside its own bytes."""


def most_names(size: int) -> int:
    """Return the bytes that names and tables of a tree may take which was sent in so many bytes.

    An honest file of an image is some 300 bytes of names in some 10,000 of content.
    """
    return 64 * MIB + 8 * size


def most_content(size: int) -> int:
    """Return the bytes that may come out of so many packed ones: zeros pack a thousandfold."""
    return 8 * GIB + 100 * size


class Room:
    """What is left of a limit; ``what`` it is of, for the error."""

    def __init__(self, limit: int, what: str) -> None:
        self._limit = self.left = limit
        self._what = what

    def take(self, amount: int) -> None:
        """Use some of it.  Raises IntegrityError where that is more than is left."""
        self.left -= amount
        if self.left < 0:
            limit = f"{self._limit // KIB} KiB"
            raise IntegrityError(f"{self._what} more than {limit}: too much for a file of its size")


def require_path(path: str) -> None:
    """Raise IntegrityError for a path that no file system could hold."""
    if len(path) <= NAME // 4:  # of four bytes each at most
        return
    data = path.encode("utf-8", "surrogateescape")
    parts = data.split(b"/")
    if len(data) > PATH or len(parts) > DEPTH or max(map(len, parts)) > NAME:
        size = f"{len(data)} bytes and {len(parts)} parts"
        raise IntegrityError(
            f"holds {path[:60]!r}…, a path of {size}, which no file system can hold"
        )


def split_words(line: str, *, comments: bool = False) -> list[str]:
    """Split a line of somebody's shell as shlex does; ValueError where it cannot be, or is too long."""
    if len(line) > SHELL_LINE:
        raise ValueError(f"a line of more than {SHELL_LINE // KIB} KiB")
    return shlex.split(line, comments=comments)


def open_plain(path: Path) -> BinaryIO:
    """Open a file of a project or of another's folder, to read it.

    Such folders are copied with links: one to /dev/zero is read without end, a pipe waits for ever.
    Raises OSError, and UsageError for what is no plain file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise UsageError("is no plain file", where=path)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn the system's errors over a file that the user names into UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror or error}", where=path) from error


def read_whole(path: Path, limit: int) -> bytes:
    """Read a plain file; raises OSError, and UsageError for another thing or more bytes than that."""
    with open_plain(path) as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise UsageError(f"larger than {limit // MIB} MiB: too large for such a file", where=path)
    return raw


def read_kept(path: Path) -> bytes:
    """Read a record of the store, in which other members of a group may have put anything.

    Raises OSError, also for what is no plain file or too large.
    """
    try:
        return read_whole(path, RECORD)
    except UsageError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from error


def decode_kept(path: Path, kind: type[T]) -> T | None:
    """Read a record of JSON as read_kept does; None where there is none, or a full disk cut it."""
    try:
        return msgspec.json.decode(read_kept(path), type=kind)
    except (OSError, *UNREADABLE):
        return None


@contextmanager
def reading(what: str, where: str, *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn whatever a library raises over hostile bytes into IntegrityError.

    The errors of libraries have no class in common.  Our own errors pass, with the place where they
    were met; so do those of a full disk, and the classes in ``passing``.
    """
    try:
        yield
    except MemoryError:
        raise
    except passing:
        raise
    except EnvbuildError as error:
        error.where = error.where or where
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        reason = str(error) or type(error).__name__
        if isinstance(error, RecursionError):
            reason = "nested too deeply"
        raise IntegrityError(f"{what}: {reason[:300]}", where=where) from error
