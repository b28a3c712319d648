"""``verify`` means the whole file; ``check`` says when a file is not what make built."""

from __future__ import annotations

import contextlib
import io
import struct
from pathlib import Path

import msgspec
import pytest

from envbuild.build.image.metadata import ImageNote
from envbuild.build.image.verify import recorded_digest
from envbuild.build.model import ImageRecord
from envbuild.build.output_record import record_output
from envbuild.check.perform import as_built
from envbuild.errors import IntegrityError, UsageError
from envbuild.formats.sif_frame import LAUNCH, frame_digest, strange_frame
from envbuild.formats.sif_reader import DESCRIPTOR, HEADER, SIGNATURE, image_digest
from envbuild.formats.sif_writer import DATA, JSON, TABLE, data_object, partition_object, write_sif
from envbuild.store.atomic import write_bytes
from envbuild.store.layout import Store

EPOCH = 1_700_000_000
NOTE = ImageNote(
    recipe="x", mode="flat", lock="sha256:" + "1" * 64, packer="p", tree="sha256:" + "2" * 64
)


def made(path: Path, note: ImageNote = NOTE) -> Path:
    parts = [
        data_object(JSON, "envbuild.json", msgspec.json.encode(note)),
        partition_object(lambda out: out.write(b"hsqs" + bytes(5000)), machine="x86_64"),
    ]
    out = io.BytesIO()
    write_sif(out, parts, machine="x86_64", epoch=EPOCH, identity="k")
    path.write_bytes(out.getvalue())
    return path


def signed(path: Path) -> None:
    """Add a signature object, as the runtime does: aligned at the end, with its own time in the header."""
    raw = bytearray(path.read_bytes())
    at = -(-len(raw) // 8) * 8
    body = b"-----BEGIN PGP SIGNED MESSAGE-----"
    fields = list(HEADER.unpack(raw[: HEADER.size]))
    row = DESCRIPTOR.pack(
        SIGNATURE,
        True,
        3,
        0xF0000001,
        2,
        at,
        len(body),
        len(body),
        EPOCH + 9,
        EPOCH + 9,
        0,
        0,
        b"part-signature",
        b"x",
    )
    fields[6], fields[7], fields[12] = EPOCH + 9, fields[7] - 1, at + len(body) - fields[11]
    raw[: HEADER.size] = HEADER.pack(*fields)
    raw[TABLE + 2 * DESCRIPTOR.size : TABLE + 3 * DESCRIPTOR.size] = row
    path.write_bytes(bytes(raw) + bytes(at - len(raw)) + body)


def whole(path: Path) -> tuple[str, str]:
    return image_digest(path), frame_digest(path)


def test_every_flipped_bit_changes_what_is_compared(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sif")
    raw = path.read_bytes()
    before = whole(path)
    places = {
        *range(HEADER.size),
        *range(TABLE, TABLE + 3 * DESCRIPTOR.size, 7),
        *range(HEADER.size, len(raw), 211),
    }
    for place in sorted(places):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        with contextlib.suppress(IntegrityError, UsageError):  # what cannot be read is told, too
            assert whole(path) != before, place


def test_a_signature_changes_nothing_of_it(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sif")
    before = whole(path)
    signed(path)
    assert whole(path) == before
    assert strange_frame(path) == ()


@pytest.mark.parametrize("also_signed", [False, True])
def test_a_launch_line_is_told(also_signed: bool, tmp_path: Path) -> None:
    path = made(tmp_path / "x.sif")
    if also_signed:
        signed(path)
    with path.open("r+b") as file:
        file.write(b"#!/home/you/evil\n".ljust(32, b"\0"))
    (told,) = strange_frame(path)
    assert told == r"the launch line, which ./x.sif runs: '#!/home/you/evil\n'"


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (TABLE + 5 * DESCRIPTOR.size + 300, "descriptors that are not in use hold something: 6"),
        (HEADER.size + 40, "bytes 128 to 4096 belong to no object and are not empty"),
    ],
)
def test_what_hides_between_objects_is_told(place: int, told: str, tmp_path: Path) -> None:
    path = made(tmp_path / "x.sif")
    raw = bytearray(path.read_bytes())
    raw[place] = 7
    path.write_bytes(bytes(raw))
    assert strange_frame(path) == (told,)


def test_what_is_behind_the_last_object_is_told(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sif")
    signed(path)
    before = whole(path)
    with path.open("ab") as file:
        file.write(b"hidden")
    assert "belong to no object" in strange_frame(path)[0]
    assert whole(path) != before


def test_the_launch_line_is_the_runtime_s() -> None:
    assert struct.pack("32s", LAUNCH).startswith(b"#!/usr/bin/env run-singularity\n\0")
    assert DATA > TABLE


@pytest.mark.parametrize("kind", ["assembled", "built from its definition"])
class TestAsBuilt:
    def delivered(self, kind: str, tmp_path: Path) -> tuple[Path, Store]:
        path, store = made(tmp_path / "x.sif"), Store(tmp_path / "s")
        if kind == "built from its definition":
            kept = store.own(store.image("sha256:key"))
            kept.parent.mkdir(parents=True)
            kept.write_bytes(path.read_bytes())
            record_output(path, store, "sha256:key", "")
            return path, store
        record = ImageRecord(
            digest=image_digest(path), tree=NOTE.tree, size=1, packer="p", layers=(), lock=NOTE.lock
        )
        write_bytes(store.own(store.record("sha256:key")), msgspec.json.encode(record))
        record_output(path, store, "sha256:key", record.digest)
        return path, store

    def test_the_file_of_make_passes(self, kind: str, tmp_path: Path) -> None:
        path, store = self.delivered(kind, tmp_path)
        (finding,) = as_built(recorded_digest(path, store), image_digest(path))
        assert finding.outcome == "passed"

    def test_a_flipped_bit_fails_whatever_size_and_time_say(
        self, kind: str, tmp_path: Path
    ) -> None:
        path, store = self.delivered(kind, tmp_path)
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(bytes(raw))
        (finding,) = as_built(recorded_digest(path, store), image_digest(path))
        assert finding.outcome == "failed"
        assert "it was changed or damaged since" in finding.reason

    def test_a_signed_one_passes(self, kind: str, tmp_path: Path) -> None:
        path, store = self.delivered(kind, tmp_path)
        signed(path)
        (finding,) = as_built(recorded_digest(path, store), image_digest(path))
        assert finding.outcome == "passed"

    def test_another_image_under_the_name_is_not_accused(self, kind: str, tmp_path: Path) -> None:
        path, store = self.delivered(kind, tmp_path)
        other = NOTE.tree.replace("2", "4"), NOTE.lock.replace("1", "3")
        made(path, msgspec.structs.replace(NOTE, tree=other[0], lock=other[1], packer="other"))
        assert recorded_digest(path, store) is None
        assert as_built(None, image_digest(path)) == ()
