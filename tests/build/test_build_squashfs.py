"""The file system writer and reader against each other, against squashfs-tools, and against damage."""

from __future__ import annotations

import hashlib
import os
import random
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from envbuild.errors import IntegrityError
from envbuild.formats.block_codec import BLOCK, Codec, opens_zstd, unpack_block
from envbuild.formats.file_tree import (
    Part,
    TreeEntry,
    compare_trees,
    entry_identity,
    merge_parts,
    tree_digest,
)
from envbuild.formats.squashfs.layout import SUPERBLOCK
from envbuild.parts.from_tar import device_number
from envbuild.parts.writer import Content
from envbuild.run import Command, LocalRunner
from tests.build.packing import EPOCH, ZSTD, file, pack_part, read_file_system, write_file_system
from tests.support import needs

GZIP = Codec(compressor="gzip", level=6, library="here")
NOISE = random.Random(7).randbytes(3 * BLOCK + 17)  # noqa: S311

PING = bytes.fromhex("0100000200200000000000000000000000000000")


def with_xattrs(entry: TreeEntry, *pairs: tuple[str, bytes]) -> TreeEntry:
    return msgspec.structs.replace(entry, xattrs=pairs)


VARIED: list[Content] = [
    (TreeEntry("", "d", 0o755), None),
    (TreeEntry("etc", "d", 0o755, 0, 0, 1234), None),
    (file("etc/empty"), b""),
    (file("etc/small", 0o600, uid=5, gid=6, mtime=99), b"hello"),
    (file("etc/same"), b"hello"),
    (file("etc/block"), b"x" * BLOCK),
    (file("etc/large"), b"abc" * BLOCK),
    (file("etc/noise"), NOISE),
    (file("etc/ohne Grüße & \\ $x"), b"odd name"),
    (TreeEntry("etc/link", "l", 0o777, target="../etc/small"), None),
    (TreeEntry("dev/null", "c", 0o666, device=device_number(1, 3)), None),
    (TreeEntry("dev/disk", "b", 0o660, device=device_number(259, 70000)), None),
    (TreeEntry("run/pipe", "p", 0o600), None),
    (file("usr/bin/su", 0o4755), b"set-uid"),
    (with_xattrs(file("usr/bin/ping", 0o755), ("security.capability", PING)), b"capable"),
    (with_xattrs(file("usr/bin/ping6", 0o755), ("security.capability", PING)), b"capable too"),
    (
        with_xattrs(
            TreeEntry("usr/share", "d", 0o755), ("user.note", b"x" * 300), ("user.other", b"")
        ),
        None,
    ),
    (with_xattrs(TreeEntry("usr/pipe", "p", 0o600), ("trusted.z", b"\0")), None),
    (
        with_xattrs(
            TreeEntry("usr/disk", "b", 0o660, device=device_number(8, 1)), ("trusted.note", b"y")
        ),
        None,
    ),
    (with_xattrs(TreeEntry("usr/to", "l", 0o777, target="bin/su"), ("security.x", b"z")), None),
]


def made(
    tmp_path: Path, contents: list[Content], codec: Codec = ZSTD, workers: int = 2
) -> tuple[Part, Path]:
    part = pack_part(contents, tmp_path / "blob", codec=codec, workers=workers)
    image = tmp_path / "image.squashfs"
    write_file_system(image, [(part, tmp_path / "blob")], codec=codec)
    return part, image


@pytest.mark.parametrize("codec", [ZSTD, GZIP], ids=["zstd", "gzip"])
def test_what_was_packed_is_read_again(tmp_path: Path, codec: Codec) -> None:
    part, image = made(tmp_path, VARIED, codec)
    found = read_file_system(image)
    expected = {path: entry for path, (entry, _) in merge_parts([part]).items()}
    assert compare_trees(expected, found) == ((), (), ())
    assert tree_digest(found.values()) == tree_digest(expected.values())
    assert found["etc/noise"].sha256 == hashlib.sha256(NOISE).hexdigest()
    assert (found["etc/small"].mtime, found["etc/same"].mtime) == (99, EPOCH)
    assert found["dev"].mode == 0o755


def test_many_names_in_one_folder_and_many_folders(tmp_path: Path) -> None:
    contents: list[Content] = [
        (file(f"many/{number:05d}-{'n' * 30}"), b"%d" % number) for number in range(6000)
    ]
    contents += [(file(f"deep/{'/'.join('d' * 40)}/{number}"), b"") for number in range(3)]
    contents += [(file(f"wide/{number}/x"), b"y") for number in range(700)]
    part, image = made(tmp_path, contents)
    found = read_file_system(image)
    assert len([path for path in found if path.startswith("many/")]) == 6000
    assert found["many/05999-" + "n" * 30].sha256 == hashlib.sha256(b"5999").hexdigest()
    assert compare_trees({p: e for p, (e, _) in merge_parts([part]).items()}, found) == ((), (), ())


@needs("unsquashfs")
def test_squashfs_tools_read_the_same(tmp_path: Path) -> None:
    contents = [*VARIED, *((file(f"many/{n:05d}-{'n' * 30}"), b"%d" % n) for n in range(3000))]
    contents = [item for item in contents if item[0].kind in ("f", "l", "d")]
    _, image = made(tmp_path, contents)
    command = ("unsquashfs", "-q", "-n", "-no-xattrs", "-d", str(tmp_path / "out"), str(image))
    LocalRunner()(Command(argv=command, timeout=60), check=os.getuid() == 0)
    for entry, content in contents:
        path = tmp_path / "out" / entry.path
        if entry.kind == "f":
            assert path.read_bytes() == content
            # only root may give files to others, and may keep the bits that act as the owner
            bits = 0o7777 if os.getuid() == 0 else 0o777
            assert path.stat().st_mode & bits == entry.mode & bits
        elif entry.kind == "l":
            assert path.readlink() == Path(entry.target)


def test_any_number_of_workers_gives_the_same_bytes(tmp_path: Path) -> None:
    images = []
    for workers in (1, 2, 7):
        folder = tmp_path / str(workers)
        folder.mkdir()
        images.append(made(folder, VARIED, workers=workers)[1].read_bytes())
    assert images[0] == images[1] == images[2]


def test_parts_lie_over_one_another(tmp_path: Path) -> None:
    lower = pack_part([(file("a"), b"old"), (file("kept"), NOISE)], tmp_path / "1")
    upper = pack_part([(file("a"), b"new"), (file("d/b"), b"y" * 2 * BLOCK)], tmp_path / "2")
    assert set(merge_parts([lower, upper])) == {"", "a", "d", "d/b", "kept"}
    write_file_system(tmp_path / "image", [(lower, tmp_path / "1"), (upper, tmp_path / "2")])
    found = read_file_system(tmp_path / "image")
    assert found["a"].sha256 == hashlib.sha256(b"new").hexdigest()
    assert found["d/b"].sha256 == hashlib.sha256(b"y" * 2 * BLOCK).hexdigest()
    assert found["kept"].sha256 == hashlib.sha256(NOISE).hexdigest()


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    lower = pack_part([(TreeEntry("bin", "l", 0o777, target="usr/bin"), None)], tmp_path / "1")
    upper = pack_part([(file("bin/evil"), b"")], tmp_path / "2")
    with pytest.raises(IntegrityError, match="/bin is no folder, but a package has files below it"):
        merge_parts([lower, upper])
    folder = pack_part([(TreeEntry("etc", "d", 0o755), None)], tmp_path / "3")
    with pytest.raises(IntegrityError, match="/etc is a folder in one package and none in another"):
        merge_parts([folder, pack_part([(file("etc"), b"")], tmp_path / "4")])


def test_the_tree_digest_is_over_everything_but_time_and_packing() -> None:
    entry = TreeEntry("a", "f", 0o644, 1, 2, 3, 4, "ab", "", 0, 5, (6,), 7, 8)
    same = TreeEntry("a", "f", 0o644, 1, 2, 99, 4, "ab", "", 0, 50, (60,), 70, 80)
    assert tree_digest([entry]) == tree_digest([same])
    for change in (
        {"path": "b"},
        {"mode": 0o600},
        {"uid": 9},
        {"gid": 9},
        {"size": 9},
        {"sha256": "cd"},
    ):
        assert tree_digest([msgspec.structs.replace(entry, **change)]) != tree_digest([entry])


names = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12
).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=3).map("/".join)


@given(
    st.dictionaries(paths, st.binary(max_size=200) | st.integers(0, 3 * BLOCK), max_size=20),
    st.integers(0, 0o7777),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_tree_survives(tmp_path: Path, wanted: dict[str, bytes | int], mode: int) -> None:
    usable = {
        path: content if isinstance(content, bytes) else NOISE[:content]
        for path, content in wanted.items()
        if not any(other.startswith(f"{path}/") for other in wanted)
    }
    part, image = made(tmp_path, [(file(path, mode), content) for path, content in usable.items()])
    found = read_file_system(image)
    assert {p: e.sha256 for p, e in found.items() if e.kind == "f"} == {
        path: hashlib.sha256(content).hexdigest() for path, content in usable.items()
    }
    assert {entry_identity(e) for e in found.values()} == {
        entry_identity(e) for e, _ in merge_parts([part]).values()
    }


@given(seed=st.integers(0, 2**32), count=st.integers(1, 12))
@example(seed=8362625, count=2)  # a block that says that it is larger than any
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_damage_is_told_and_never_a_crash(tmp_path: Path, seed: int, count: int) -> None:
    if not (tmp_path / "image.squashfs").exists():
        made(tmp_path, VARIED)
    data = bytearray((tmp_path / "image.squashfs").read_bytes())
    chance = random.Random(seed)  # noqa: S311
    tables = len(data) - 6000
    for _ in range(count):
        place = chance.choice(
            (chance.randrange(SUPERBLOCK.size), chance.randrange(tables, len(data)))
        )
        data[place] = chance.randrange(256)
    broken = tmp_path / "broken"
    broken.write_bytes(data)
    try:
        read_file_system(broken)
    except IntegrityError as error:
        told = ("damaged", "cannot read", "too much for a file of its size")
        assert any(words in str(error) for words in told)  # noqa: PT017


def test_a_block_is_no_larger_than_it_may_be() -> None:
    packed = zstandard.ZstdCompressor().compress(bytes(100))
    assert unpack_block(packed, "zstd", 100) == bytes(100)
    with pytest.raises(IntegrityError, match="larger than any"):
        unpack_block(packed, "zstd", 99)


def test_which_runtimes_open_zstd() -> None:
    assert opens_zstd("apptainer", (1, 4))
    assert not opens_zstd("apptainer", (1, 3, 6))
    assert not opens_zstd("singularity", (4, 5, 1))


def test_a_flipped_bit_in_a_file_is_found(tmp_path: Path) -> None:
    part, image = made(tmp_path, VARIED)
    data = bytearray(image.read_bytes())
    noise = merge_parts([part])["etc/noise"][0]
    data[4096 + noise.start + 1000] ^= 1
    image.write_bytes(data)
    _, changed, _ = compare_trees(
        {p: e for p, (e, _) in merge_parts([part]).items()}, read_file_system(image)
    )
    assert [path for path, _ in changed] == ["etc/noise"]


def test_a_file_system_that_is_cut_off(tmp_path: Path) -> None:
    _, image = made(tmp_path, VARIED)
    image.write_bytes(image.read_bytes()[:-5000])
    with pytest.raises(IntegrityError, match=r"its file system is damaged: .* outside of it"):
        read_file_system(image)
