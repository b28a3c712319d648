"""SIF files: read, digested, refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.errors import UsageError
from envbuild.formats.sif_reader import (
    CRYPT_MESSAGE,
    DESCRIPTOR,
    HEADER,
    OCI_ROOT,
    SIGNATURE,
    image_digest,
    read_sif,
    require_base,
)
from envbuild.run import Command, LocalRunner
from tests.base.siffiles import Object, partition, write_sif
from tests.support import needs

DEFINITION: Object = (0x4001, b"bootstrap: scratch\n", b"")
SIGNED: Object = (SIGNATURE, b"-----BEGIN PGP-----", b"")


def message(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        require_base(read_sif(path), "x86_64")
    return caught.value.what


def test_the_table_is_read(tmp_path: Path) -> None:
    path = write_sif(
        tmp_path / "a.sif", [DEFINITION, partition(b"root")], created=1700000000, gap=2
    )
    sif = read_sif(path)
    assert (sif.machine, sif.created, sif.size) == ("x86_64", 1700000000, path.stat().st_size)
    assert [(o.id, o.data_type, o.size, o.name, o.group) for o in sif.objects] == [
        (1, 0x4001, 19, "name", 1),
        (2, 0x4004, 4, "name", 1),
    ]
    assert sif.primary == sif.objects[1]
    assert path.read_bytes()[sif.objects[1].offset :] == b"root"
    require_base(sif, "x86_64")


def test_signing_does_not_change_the_digest(tmp_path: Path) -> None:
    plain = image_digest(write_sif(tmp_path / "a.sif", [DEFINITION, partition()], created=1))
    assert (
        image_digest(write_sif(tmp_path / "b.sif", [DEFINITION, partition(), SIGNED], created=2))
        == plain
    )


@pytest.mark.parametrize(
    "others",
    [
        [partition(), DEFINITION],
        [DEFINITION, partition(b"hsqs rooT")],
        [DEFINITION],
        [DEFINITION, partition(), partition(b"layer", kind=4)],
        [DEFINITION, partition(kind=4)],
        [(0x4001, b"bootstrap: scratch\nh", b""), partition(b"sqs root")],
    ],
)
def test_any_other_change_changes_the_digest(tmp_path: Path, others: list[Object]) -> None:
    plain = image_digest(write_sif(tmp_path / "a.sif", [DEFINITION, partition()]))
    assert image_digest(write_sif(tmp_path / "b.sif", others)) != plain


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (
            b"hsqs" + bytes(200),
            "is not a SIF image but a bare squashfs file system (an image of Singularity 2)",
        ),
        (b"Bootstrap: docker\nFrom: x\n", "is not a SIF image but a definition: build it first"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid",
            "is not a SIF image but a Git LFS pointer: fetch the file itself (git lfs pull)",
        ),
        (bytes(10_000), "is not a SIF image"),
    ],
)
def test_what_is_no_sif_is_named(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "x.sif"
    path.write_bytes(content)
    assert message(path) == what


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    assert message(tmp_path / "none.sif") == "there is no such file"
    (tmp_path / "folder.sif").mkdir()
    assert message(tmp_path / "folder.sif") == "cannot be read: Is a directory"


@pytest.mark.parametrize("keep", [64, HEADER.size, HEADER.size + DESCRIPTOR.size, -1])
def test_a_cut_off_file_is_told(tmp_path: Path, keep: int) -> None:
    path = write_sif(tmp_path / "x.sif", [DEFINITION, partition()])
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:keep])
    what = message(path)
    assert what.startswith(f"is cut off: {path.stat().st_size} of at least ")
    assert int(what.split()[-4]) <= whole


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    path = write_sif(tmp_path / "x.sif", [partition(arch=b"04\0")], arch=b"04\0")
    assert message(path) == "is for aarch64, but this machine is x86_64"
    require_base(read_sif(path), "aarch64")


@pytest.mark.parametrize(
    "content",
    [[partition(file_system=5)], [partition(), (CRYPT_MESSAGE, b"key", b"")]],
    ids=["partition", "key"],
)
def test_an_encrypted_image_is_refused(tmp_path: Path, content: list[Object]) -> None:
    assert message(write_sif(tmp_path / "x.sif", content)) == "is encrypted"


def test_an_image_without_a_root_is_refused(tmp_path: Path) -> None:
    assert (
        message(write_sif(tmp_path / "x.sif", [DEFINITION]))
        == "has no root file system (no primary partition)"
    )
    path = write_sif(tmp_path / "y.sif", [(OCI_ROOT, b"{}", b"")])
    assert message(path) == "is an OCI-SIF, which holds no root file system of its own"


@settings(max_examples=200)
@given(
    position=st.integers(0, HEADER.size + 2 * DESCRIPTOR.size - 1),
    value=st.integers(0, 255),
    data=st.data(),
)
def test_no_damaged_byte_of_the_table_ends_in_a_crash(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int, data: st.DataObject
) -> None:
    path = write_sif(tmp_path_factory.getbasetemp() / "damaged.sif", [DEFINITION, partition()])
    content = bytearray(path.read_bytes())
    content[position] = value
    more = data.draw(st.binary(max_size=8))
    content[position : position + len(more)] = more
    path.write_bytes(content)
    with contextlib.suppress(UsageError):
        require_base(read_sif(path), "x86_64")
        assert image_digest(path).startswith("sha256:")


@pytest.mark.live
@needs("apptainer", "mksquashfs")
def test_a_real_sif_is_read_as_apptainer_does(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_text("x")
    runner = LocalRunner()
    runner(
        Command(
            argv=("mksquashfs", str(root), str(tmp_path / "root.sqfs"), "-quiet", "-no-progress")
        )
    )
    path = tmp_path / "real.sif"
    runner(Command(argv=("apptainer", "sif", "new", str(path))))
    add = ("--datatype", "4", "--parttype", "2", "--partfs", "1", "--partarch", "2")
    runner(Command(argv=("apptainer", "sif", "add", *add, str(path), str(tmp_path / "root.sqfs"))))
    sif = read_sif(path)
    require_base(sif, "x86_64")
    assert sif.primary is not None
    data = (tmp_path / "root.sqfs").read_bytes()
    assert path.read_bytes()[sif.primary.offset :][: sif.primary.size] == data
