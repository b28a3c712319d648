from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from envbuild.errors import EnvbuildError, HostError, SpaceError
from envbuild.store.atomic import (
    clear_partials,
    commit_file,
    copy_out,
    error_of_os,
    make_folder,
    write_bytes,
    write_text,
    writing_beside,
)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_written_whole_with_their_mode(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_text(path, "ä\n", mode=0o640)
    assert path.read_bytes() == b"\xc3\xa4\n"
    assert _mode(path) == 0o640
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in path.parent.iterdir()] == ["b.txt"]


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    with pytest.raises(KeyboardInterrupt):
        copy_out(path, tmp_path / "copy")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_writer_left_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    others = [tmp_path / ".tiny.toml.bak.partial", tmp_path / ".x.tiny.toml.abcdefgh.partial"]
    left, pipe = tmp_path / ".tiny.toml.abcd_123.partial", tmp_path / ".tiny.toml.abcd_124.partial"
    for file in (left, *others):
        file.write_text("half")
    os.mkfifo(pipe)
    with writing_beside(path, 0o644) as written:
        clear_partials(path)
        assert not left.exists()
        written.write(b"whole")
    assert path.read_bytes() == b"whole"
    assert sorted(tmp_path.iterdir()) == sorted([path, pipe, *others])


def test_a_committed_file_is_read_only(tmp_path: Path) -> None:
    temporary = tmp_path / "x.partial"
    temporary.write_text("x")
    commit_file(temporary, tmp_path / "new" / "x")
    assert _mode(tmp_path / "new" / "x") == 0o444
    assert not temporary.exists()


def test_a_placed_file_shares_nothing_with_its_source(tmp_path: Path) -> None:
    source, target = tmp_path / "store", tmp_path / "image.sif"
    source.write_bytes(b"image" * 1000)
    source.chmod(0o444)
    target.symlink_to(source)
    copy_out(source, target, mode=0o755)
    assert not target.is_symlink()
    assert _mode(target) == 0o755
    assert target.stat().st_ino != source.stat().st_ino
    target.write_bytes(b"signed")
    assert source.read_bytes() == b"image" * 1000


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (errno.ENOSPC, SpaceError, "/x: the file system is full"),
        (errno.EDQUOT, SpaceError, "/x: the disk quota is used up"),
        (errno.EACCES, HostError, "/x: cannot be written: Permission denied"),
        (errno.EROFS, HostError, "/x: cannot be written: Read-only file system"),
        (errno.EIO, HostError, "/x: cannot be used: Input/output error"),
        (errno.EFBIG, HostError, "/x: cannot be used: File too large"),
        (errno.EMFILE, HostError, "/x: cannot be used: Too many open files"),
    ],
)
def test_what_the_system_refuses_is_told(number: int, kind: type[EnvbuildError], text: str) -> None:
    error = error_of_os(OSError(number, os.strerror(number)), Path("/x"))
    assert type(error) is kind
    assert str(error) == text
    assert error.hint


def test_a_folder_that_another_process_made_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o2775)
    folder = tmp_path / "locks"
    made: list[int] = []

    def wait_for_another(*_: object) -> None:
        folder.mkdir()
        made.append(folder.stat().st_ino)

    monkeypatch.setattr("envbuild.store.atomic.fcntl.flock", wait_for_another)
    make_folder(folder)
    assert made == [folder.stat().st_ino]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(HostError, match="taken: cannot be used: Is a directory"):
        write_text(tmp_path / "taken", "x")
