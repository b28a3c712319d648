"""A shelf that others may write to: one bad file takes its own entry out of the search, nothing else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuild.errors import HostError, IntegrityError
from envbuild.shelf.backend import slot_path
from tests.shelf.people import Member, member


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def giant(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, 5 << 20)


def garbage(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"[" * 100_000)


@pytest.fixture
def shelf(tmp_path: Path) -> tuple[Path, Member]:
    place = tmp_path / "shelf"
    one = member(tmp_path / "one", str(place))
    for name in ("small", "other"):
        one.recipe(name)
        one.publish(name)
    return place, member(tmp_path / "two", str(place))


@pytest.mark.parametrize("spoil", [link, pipe, folder, giant, garbage])
def test_a_search_still_shows_all_others(
    spoil: Callable[[Path], None], shelf: tuple[Path, Member]
) -> None:
    place, reader = shelf
    spoil(place / slot_path("small.000001"))
    found = reader.library.newest_entries()
    assert isinstance(found["small"], IntegrityError)
    assert not isinstance(found["other"], IntegrityError)


@pytest.mark.parametrize("name", ["names", "objects"])
def test_a_folder_that_is_a_link_is_not_followed(
    name: str, shelf: tuple[Path, Member], tmp_path: Path
) -> None:
    place, reader = shelf
    (place / name).rename(tmp_path / "elsewhere")
    (place / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match="is a link, which a shelf never holds"):
        reader.take()
    reader.recipe("new")
    with pytest.raises(IntegrityError, match="is a link, which a shelf never holds"):
        reader.publish("new")


def test_no_mode_of_a_file_elsewhere_is_changed(
    shelf: tuple[Path, Member], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another member puts a link there after envbuild has looked what it is."""
    place, publisher = shelf
    secret, fstat = tmp_path / "secret", os.fstat
    secret.mkdir(mode=0o700)
    (place / "names").chmod(0o700)

    def swap(handle: int) -> os.stat_result:
        found = fstat(handle)
        if (place / "names").is_dir() and os.path.samestat(found, (place / "names").stat()):
            (place / "names").rename(place / "was")
            (place / "names").symlink_to(secret)
        return found

    monkeypatch.setattr(os, "fstat", swap)
    publisher.recipe("new")
    with pytest.raises((IntegrityError, HostError)):
        publisher.publish("new")
    assert (place / "names").is_symlink()
    assert stat.S_IMODE(secret.stat().st_mode) == 0o700


def test_a_folder_in_a_signature_s_place_is_told_by_its_path(shelf: tuple[Path, Member]) -> None:
    place, reader = shelf
    stored = reader.library.find_entry("small")
    path = place / f"signatures/{stored.digest.removeprefix('sha256:')}.sig"
    path.mkdir(parents=True)
    with pytest.raises(IntegrityError) as caught:
        reader.take()
    assert str(caught.value) == f"{path}: is no file"
