"""Repositories of a few kilobytes that unfold to gigabytes or to millions of files, as a shelf and as a requirement."""

from __future__ import annotations

import hashlib
import os
import resource
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild import limits
from envbuild.errors import EnvbuildError, IntegrityError
from envbuild.resolve.sources import git as requirements
from envbuild.run import Command, LocalRunner
from envbuild.settings import Settings
from envbuild.shelf import git as shelves
from envbuild.shelf.backend import MARKER, MARKER_TEXT
from tests.support import needs, quiet_context

pytestmark = needs("git")
PIECE = 15 * limits.MIB
"""A delta copies so many bytes of its base with seven bytes of its own."""


def git(repository: Path, *arguments: str, stdin: str | None = None) -> str:
    argv = ("git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@lab.invalid")
    command = Command(argv=(*argv, *arguments), stdin=stdin, timeout=600)
    return LocalRunner()(command).stdout.strip()


def commit(repository: Path, names: str) -> None:
    """Let main be a shelf's marker and a folder ``names``; ``names`` is the tree's id."""
    marker = git(repository, "hash-object", "-w", "--stdin", stdin=MARKER_TEXT.decode())
    rows = f"100644 blob {marker}\t{MARKER}\n040000 tree {names}\tnames\n"
    made = git(
        repository,
        "commit-tree",
        "-m",
        "x",
        git(repository, "mktree", "--missing", stdin=rows),
    )
    git(repository, "update-ref", "refs/heads/main", made)


def unfold_files(repository: Path) -> None:
    """Ten folders in each of ten folders, ten times: every one is the same object."""
    kind = "100644 blob"
    found = git(repository, "hash-object", "-w", "--stdin", stdin="x")
    for _ in range(10):
        found = git(
            repository, "mktree", stdin="".join(f"{kind} {found}\tf{n}\n" for n in range(10))
        )
        kind = "040000 tree"
    commit(repository, found)


def unfold_empty_folders(repository: Path) -> None:
    found = git(repository, "mktree", stdin="")
    for _ in range(10):
        found = git(
            repository, "mktree", stdin="".join(f"040000 tree {found}\tf{n}\n" for n in range(10))
        )
    commit(repository, found)


def unfold_bytes(repository: Path) -> None:
    """A delta that copies its base again and again: git makes the whole file in memory."""
    base, times = bytes(PIECE), limits.GIT_MEMORY // PIECE + 4
    whole = hashlib.sha1(f"blob {times * PIECE}\0".encode())  # noqa: S324  (git's names)
    for _ in range(times):
        whole.update(base)
    copy = b"\xf0" + struct.pack("<I", PIECE)[:3]
    delta = number(PIECE) + number(times * PIECE) + copy * times
    name = hashlib.sha1(f"blob {PIECE}\0".encode() + base).digest()  # noqa: S324
    objects = [head(3, PIECE), zlib.compress(base), head(7, len(delta)), name, zlib.compress(delta)]
    pack = b"PACK" + struct.pack(">II", 2, 2) + b"".join(objects)
    pack += hashlib.sha1(pack).digest()  # noqa: S324
    path = repository / "objects/pack/pack-bomb.pack"
    path.write_bytes(pack)
    git(repository, "index-pack", str(path))
    files = {"demo.000001": whole.hexdigest(), "base": name.hex()}
    rows = "".join(f"100644 blob {found}\t{file}\n" for file, found in files.items())
    commit(repository, git(repository, "mktree", stdin=rows))


def number(value: int) -> bytes:
    """Write a number as deltas have it: seven bits a byte, the lowest first."""
    more = value >> 7
    return bytes([value & 127 | (128 if more else 0)]) + (number(more) if more else b"")


def head(kind: int, size: int) -> bytes:
    """Write what stands before an object of a pack."""
    more = size >> 4
    first = bytes([kind << 4 | size & 15 | (128 if more else 0)])
    return first + (number(more) if more else b"")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "served/tool.git"
    path.mkdir(parents=True)
    git(path, "init", "-q", "--bare", "-b", "main")
    return path


BOMBS = [unfold_files, unfold_empty_folders, unfold_bytes]


@pytest.mark.parametrize("unfold", BOMBS)
def test_as_a_shelf(
    unfold: Callable[[Path], None], repository: Path, user_settings: Settings
) -> None:
    unfold(repository)
    shelf = shelves.GitBackend(str(repository), quiet_context(user_settings))
    with pytest.raises(IntegrityError, match=r"too m(any|uch) for a shelf"):
        shelf.refresh()


@pytest.mark.parametrize("unfold", BOMBS)
def test_as_a_requirement(
    unfold: Callable[[Path], None],
    repository: Path,
    user_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REPOSITORY_FILES", 10_000)
    here = ("-c", "protocol.file.allow=always")
    monkeypatch.setattr(requirements, "SAFE", (*requirements.SAFE, *here))
    unfold(repository)
    with pytest.raises(EnvbuildError, match=r"unfolds to more than|Out of memory"):
        requirements.checkout(
            f"file://{repository}", "", repository.parents[1] / "tree", quiet_context(user_settings)
        )
    assert [path.name for path in (repository.parents[1] / "tree").iterdir()] == [".git"]


@pytest.mark.parametrize(
    ("limit", "told"),
    [("SUBMODULES", "brings more than 8 submodules"), ("REPOSITORY_FILES", "unfolds to more")],
)
def test_submodules_that_double(
    limit: str,
    told: str,
    repository: Path,
    user_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten commits, each of which names the one before it twice."""
    monkeypatch.setattr(limits, limit, 8)
    here = ("-c", "protocol.file.allow=always")
    monkeypatch.setattr(requirements, "SAFE", (*requirements.SAFE, *here))
    modules = "".join(f'[submodule "{m}"]\n\tpath = {m}\n\turl = ../tool.git\n' for m in "ab")
    blob = git(repository, "hash-object", "-w", "--stdin", stdin=modules)
    made, rows, parent = "", f"100644 blob {blob}\t.gitmodules\n", tuple[str, ...]()
    for _ in range(10):
        tree = git(repository, "mktree", "--missing", stdin=rows)
        made = git(repository, "commit-tree", *parent, "-m", "x", tree)
        rows = f"100644 blob {blob}\t.gitmodules\n" + "".join(
            f"160000 commit {made}\t{module}\n" for module in "ab"
        )
        parent = ("-p", made)
    git(repository, "update-ref", "refs/heads/main", made)
    with pytest.raises(IntegrityError, match=told):
        requirements.checkout(
            f"file://{repository}", "", repository.parents[1] / "tree", quiet_context(user_settings)
        )


def test_a_shelf_that_sends_gigabytes(
    repository: Path, user_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelves, "BOUNDS", ((resource.RLIMIT_FSIZE, limits.MIB),))
    big = git(repository, "hash-object", "-w", "--stdin", stdin=os.urandom(limits.MIB).hex())
    commit(repository, git(repository, "mktree", stdin=f"100644 blob {big}\tdemo.000001\n"))
    shelf = shelves.GitBackend(str(repository), quiet_context(user_settings))
    with pytest.raises(IntegrityError, match="too much for a shelf"):
        shelf.refresh()
    # what git leaves of it goes when nobody can be at it any more
    (left,) = user_settings.home.glob(".cache/envbuild/shelves/*.git/objects/pack/tmp_*")
    before = time.time() - 2 * shelves.SECONDS
    os.utime(left, (before, before))
    with pytest.raises(IntegrityError):
        shelf.refresh()
    assert not left.exists()
