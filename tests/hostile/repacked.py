"""Inputs of archives that are packed anew after the change, with checksums and sizes that are right.

Changed at random, nine of ten wheels end at a checksum of zip.  Here the input is what lies inside:
members, or headers alone, each behind a line of ``MARK``.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
import zipfile
from pathlib import Path

import zstandard

from envbuild.formats.block_codec import unpack_block
from envbuild.formats.sif_reader import DESCRIPTOR, HEADER, parse_header
from envbuild.formats.squashfs.layout import (
    COMPRESSORS,
    METADATA,
    NONE64,
    SUPERBLOCK,
    UNCOMPRESSED,
    Superblock,
)
from tests.build.test_build_conda_link import TOOL
from tests.build.test_build_from_wheel import record_hash
from tests.hostile.index_parsers import mend_tar
from tests.hostile.squash import metadata

MARK = b"\n--8<--\n"
LOCAL, CENTRAL = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I")
"""The headers of a zip's member: before its data, and in the directory at the end."""
LINK = b"-> "
"""Before the target of a symbolic link, in the place of what a member holds."""
STAMP = (1980, 1, 1, 0, 0, 0)
Pieces = list[bytes]


def read_members(data: bytes) -> dict[str, bytes]:
    """Read members: a name, a line end and what it holds."""
    found = {}
    for piece in data.split(MARK):
        name, _, content = piece.partition(b"\n")
        found[name.decode("utf-8", "replace").replace("\0", "")[:4000]] = content
    return found


def write_members(members: dict[str, bytes]) -> bytes:
    return MARK.join(name.encode() + b"\n" + content for name, content in members.items())


# --- wheels


def members_of_zip(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return write_members({name: archive.read(name) for name in archive.namelist()})


def pack_wheel(data: bytes) -> bytes:
    """Pack members as a wheel; each that RECORD names has its hash and size there."""
    members = read_members(data)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members.items():
            held = record_anew(content, members) if name.endswith("/RECORD") else content
            archive.writestr(zipfile.ZipInfo(name or "none", STAMP), held)
    return out.getvalue()


def record_anew(record: bytes, members: dict[str, bytes]) -> bytes:
    rows = []
    for row in record.split(b"\n"):
        name = row.partition(b",")[0].decode("utf-8", "replace")
        held = members.get(name)
        told = held is not None and not name.endswith("/RECORD") and row.count(b",") == 2
        rows.append(
            f"{name},{record_hash(held)},{len(held)}".encode() if told and held is not None else row
        )
    return b"\n".join(rows)


def headers_of_zip(data: bytes) -> tuple[Pieces, Pieces]:
    """Return the headers of a zip's members, and what lies behind each."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos, at = archive.infolist(), archive.start_dir
    headers, contents = [], []
    for info in infos:
        fields = LOCAL.unpack_from(data, info.header_offset)
        start = info.header_offset + LOCAL.size + fields[9] + fields[10]
        headers.append(data[info.header_offset : start])
        contents.append(data[start : start + info.compress_size])
    for _ in infos:
        fields = CENTRAL.unpack_from(data, at)
        end = at + CENTRAL.size + sum(fields[10:13])
        headers.append(data[at:end])
        contents.append(b"")
        at = end
    return headers, [*contents[:-1], data[at:]]


# --- conda packages


def members_of_conda(_: Path) -> Pieces:
    tars = (TOOL._content_members(), TOOL._info_members())
    named = {
        info.name: held if info.isreg() else LINK + info.linkname.encode()
        for members in tars
        for info, held in members
    }
    return [write_members(named)]


def pack_conda(data: bytes) -> bytes:
    """Pack members as a package; each that paths.json names has its hash and size there."""
    members = read_members(data)
    paths = members.get("info/paths.json", b"")
    members["info/paths.json"] = paths_anew(paths, members)
    out, stem = io.BytesIO(), TOOL.file.removesuffix(".conda")
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("metadata.json"), b'{"conda_pkg_format_version":2}')
        for part, is_info in (("pkg", False), ("info", True)):
            chosen = {
                name: held for name, held in members.items() if name.startswith("info/") is is_info
            }
            packed = zstandard.compress(pack_tar(chosen))
            archive.writestr(zipfile.ZipInfo(f"{part}-{stem}.tar.zst"), packed)
    return out.getvalue()


def paths_anew(text: bytes, members: dict[str, bytes]) -> bytes:
    try:
        told = json.loads(text)
        for row in told["paths"]:
            held = members.get(row["_path"])
            if held is not None and not held.startswith(LINK):
                row |= {"sha256": hashlib.sha256(held).hexdigest(), "size_in_bytes": len(held)}
    except (ValueError, TypeError, KeyError, RecursionError):
        return text
    return json.dumps(told).encode()


def pack_tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, held in members.items():
            info = tarfile.TarInfo(name)
            if held.startswith(LINK):
                info.type, info.linkname = tarfile.SYMTYPE, held[len(LINK) :].decode("latin-1")
                tar.addfile(info)
            else:
                info.size = len(held)
                tar.addfile(info, io.BytesIO(held))
    return out.getvalue()


def headers_of_conda(_: Path) -> Pieces:
    """Return both tars, whose headers get their checksums."""
    with zipfile.ZipFile(io.BytesIO(TOOL.pack())) as archive:
        tars = [archive.read(name) for name in archive.namelist() if name.endswith(".zst")]
    return [MARK.join(zstandard.decompress(packed).rstrip(b"\0") for packed in tars)]


def pack_tars(data: bytes) -> bytes:
    out, stem = io.BytesIO(), TOOL.file.removesuffix(".conda")
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("metadata.json"), b'{"conda_pkg_format_version":2}')
        for part, raw in zip(("pkg", "info"), [*data.split(MARK), b""], strict=False):
            whole = mend_tar(raw) + bytes(-len(raw) % 512 + 1024)
            packed = zstandard.compress(whole)
            archive.writestr(zipfile.ZipInfo(f"{part}-{stem}.tar.zst"), packed)
    return out.getvalue()


# --- images


def tables_of(system: bytes) -> bytes:
    """Return superblock, data, and the tables of a small file system unpacked."""
    block = Superblock(*SUPERBLOCK.unpack_from(system))
    ids_at, fragments_at = (
        int.from_bytes(system[at : at + 8], "little")
        for at in (block.id_table, block.fragment_table)
    )
    tables = (block.inode_table, block.folder_table, fragments_at, ids_at)
    return MARK.join(
        (
            system[: SUPERBLOCK.size],
            system[SUPERBLOCK.size : block.inode_table],
            *(read_metadata(system, at, block.compressor) for at in tables),
        )
    )


def read_metadata(system: bytes, at: int, compressor: int) -> bytes:
    (head,) = struct.unpack_from("<H", system, at)
    piece = system[at + 2 : at + 2 + (head & ~UNCOMPRESSED)]
    if head & UNCOMPRESSED:
        return piece
    name = next(name for name, number in COMPRESSORS.items() if number == compressor)
    return unpack_block(piece, name, METADATA)


def pack_system(data: bytes) -> bytes:
    """Lay tables after the data, and say in the superblock where they are."""
    pieces = [*data.split(MARK), *[b""] * 6][:6]
    head = pieces[0][: SUPERBLOCK.size].ljust(SUPERBLOCK.size, b"\0")
    block = Superblock(*SUPERBLOCK.unpack(head))
    body = bytearray(pieces[1])
    places = []
    for number, table in enumerate(pieces[2:]):
        places.append(SUPERBLOCK.size + len(body))
        body += metadata(table[:METADATA])
        if number >= 2:  # fragments and ids are found by a list of places
            places[-1], listed = SUPERBLOCK.size + len(body), places[-1]
            body += struct.pack("<Q", listed)
    inodes, folders, fragments, ids = places
    laid = block._replace(
        inode_table=inodes,
        folder_table=folders,
        fragment_table=fragments,
        id_table=ids,
        xattr_table=NONE64,
        export_table=NONE64,
        used=SUPERBLOCK.size + len(body),
    )
    return SUPERBLOCK.pack(*laid) + bytes(body)


def headers_of_sif(data: bytes) -> tuple[Pieces, Pieces]:
    """Return header and table of an image, and what lies behind each."""
    header = parse_header(data[: HEADER.size])
    table = header.table + header.total * DESCRIPTOR.size
    used = header.table + (header.total - header.free) * DESCRIPTOR.size
    headers = [data[: HEADER.size], data[header.table : used]]
    return headers, [data[HEADER.size : header.table], data[used:table] + data[table:]]


def pack_headers(data: bytes, sound: tuple[Pieces, Pieces]) -> bytes:
    """Put changed headers in the place of an archive's own, at their size and with their magic."""
    headers, contents = sound
    changed = [*data.split(MARK), *[b""] * len(headers)]
    out = b""
    for new, old, content in zip(changed, headers, contents, strict=False):
        out += old[:4] + (new + old[len(new) :])[4 : len(old)] + content
    return out
