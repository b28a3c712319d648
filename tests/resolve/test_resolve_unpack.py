"""Source archives are unpacked the same way by every Python, and nothing of them lands outside their folder."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from envbuild.errors import IntegrityError
from envbuild.resolve.sources.pep517 import unpack_archive

Member = tuple[str, bytes, str, int]
"""Kind of the member, content, target of a link, mode."""


def file(content: bytes = b"text", mode: int = 0o644) -> Member:
    return tarfile.REGTYPE.decode(), content, "", mode


def link(target: str) -> Member:
    return tarfile.SYMTYPE.decode(), b"", target, 0o777


def archive(path: Path, members: list[tuple[str, Member]], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, (kind, content, target, bits) in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode, info.size = (
                kind.encode(),
                target,
                bits,
                len(content),
            )
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_files_come_with_their_bytes_and_one_bit_of_their_mode(tmp_path: Path, mode: str) -> None:
    members = [
        ("a-1/configure", file(b"#!", 0o6777)),
        ("a-1/deep/er/setup.py", file(b"setup()", 0o600)),
    ]
    top = unpack_archive(archive(tmp_path / "a.tar", members, mode), tmp_path / "out")
    assert top == tmp_path / "out/a-1"
    found = {
        str(p.relative_to(top)): (p.read_bytes(), stat.S_IMODE(p.stat().st_mode))
        for p in top.rglob("*.*")
    }
    assert found == {"deep/er/setup.py": (b"setup()", 0o644)}
    assert stat.S_IMODE((top / "configure").stat().st_mode) == 0o755


def test_a_link_becomes_a_copy_of_the_member_it_names(tmp_path: Path) -> None:
    hard = (tarfile.LNKTYPE.decode(), b"", "a-1/VERSION", 0o644)
    members = [
        ("a-1/src/VERSION", link("../VERSION")),
        ("a-1/VERSION", file(b"1")),
        ("a-1/again", hard),
        ("a-1/nothing", link("missing")),
    ]
    top = unpack_archive(archive(tmp_path / "a.tar.gz", members), tmp_path / "out")
    assert sorted(str(p.relative_to(top)) for p in top.rglob("*")) == [
        "VERSION",
        "again",
        "src",
        "src/VERSION",
    ]
    assert (top / "src/VERSION").read_bytes() == (top / "again").read_bytes() == b"1"
    assert not any(p.is_symlink() for p in top.rglob("*"))


HOSTILE: dict[str, list[tuple[str, Member]]] = {
    "upwards": [("../evil", file())],
    "absolute": [("/tmp/envbuild-evil", file())],
    "through a folder": [("a-1/../../evil", file())],
    "a pipe": [("a-1/pipe", (tarfile.FIFOTYPE.decode(), b"", "", 0o644))],
    "a device": [("a-1/null", (tarfile.CHRTYPE.decode(), b"", "", 0o666))],
    "links in a circle": [("a-1/a", link("b")), ("a-1/b", link("a"))],
    "a file as folder": [("a-1/a", file()), ("a-1/a/b", file())],
    "a folder as file": [("a-1/a/b", file()), ("a-1/a", file())],
    "a name that is too long": [("a-1/" + "n" * 300, file())],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_what_leads_out_or_is_no_file_is_refused(
    tmp_path: Path, members: list[tuple[str, Member]]
) -> None:
    out = tmp_path / "in/out"
    out.mkdir(parents=True)
    with pytest.raises(
        IntegrityError,
        match=r"a.tar.gz: (this source archive cannot be unpacked: |holds .* which no file system can hold)",
    ):
        unpack_archive(archive(tmp_path / "a.tar.gz", members), out)
    assert not (tmp_path / "in/evil").exists()
    assert not (tmp_path / "evil").exists()
    assert not Path("/tmp/envbuild-evil").exists()


def test_a_link_cannot_lead_a_later_file_out(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    members = [("a-1/door", link(str(victim))), ("a-1/door/evil", file())]
    unpack_archive(archive(tmp_path / "a.tar.gz", members), tmp_path / "out")
    assert list(victim.iterdir()) == []
    assert (tmp_path / "out/a-1/door/evil").read_bytes() == b"text"


def test_damage_is_told(tmp_path: Path) -> None:
    whole = archive(
        tmp_path / "a.tar.gz", [("a-1/big", file(bytes(range(256)) * 4000))]
    ).read_bytes()
    for name, data in {
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:60] + bytes([whole[60] ^ 255]) + whole[61:],
        "empty": b"",
        "text": b"<html>",
    }.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(
            IntegrityError, match=f"^{name}: this source archive cannot be unpacked"
        ):
            unpack_archive(tmp_path / name, tmp_path / f"out-{name}")


def test_a_zip_archive_stays_in_its_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as zipped:
        zipped.writestr("a-1/setup.py", "setup()")
        zipped.writestr("a-1/../../../evil", "x")
    top = unpack_archive(tmp_path / "a.zip", tmp_path / "in/out")
    assert (
        top / "a-1/setup.py" if top.name == "out" else top / "setup.py"
    ).read_text() == "setup()"
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "in/evil").exists()
