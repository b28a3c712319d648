"""Every parser of foreign bytes, with sound inputs to start from, for fuzzing.

``PARSERS`` maps a name to its seeds and to what reads an input (as a file); it may raise an error of envbuild's own.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import json
import re
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import zstandard

from envbuild.app.dev.layer import DevRecord, EditableFolder, read_record
from envbuild.base.oci.layers import Tree
from envbuild.build.conda.link import link_package
from envbuild.build.image.embedded import read_embedded_info
from envbuild.build.packages.from_wheel import unpack_wheel
from envbuild.bundle.unpack import unpack
from envbuild.formats.block_codec import Codec
from envbuild.formats.fast_zip import open_zip
from envbuild.formats.file_tree import TreeEntry
from envbuild.formats.oci import Index, Manifest, read_config, read_document
from envbuild.formats.sif_frame import frame_digest, strange_frame
from envbuild.formats.sif_reader import image_digest, read_sif
from envbuild.formats.squashfs.hashes import read_tree
from envbuild.formats.squashfs.reader import SquashImage
from envbuild.job.sites.find import _read as read_site
from envbuild.limits import reading
from envbuild.lock.read import parse_lock, read_lock
from envbuild.lock.write import write_lock
from envbuild.net.simple import links_of_html, links_of_json
from envbuild.parts.from_layer import fill_layer
from envbuild.parts.from_tar import tar_contents
from envbuild.parts.writer import PartWriter
from envbuild.project.conda.locked_lists import read_conda_list
from envbuild.project.conda.recipe import draft_conda_recipe
from envbuild.recipe.read import read_recipe
from envbuild.shelf.model import read_entry, write_entry
from envbuild.store.layout import Store
from envbuild.toml import parse_toml
from tests.base.ociimages import image_of, index_of, tar_of
from tests.build.packing import file, pack_part, write_file_system
from tests.build.test_build_conda_link import PREFIX, TOOL
from tests.build.test_build_from_wheel import FILES, SCHEME, make_wheel
from tests.bundle.test_bundle_unpack import sound as sound_bundle
from tests.conda.test_conda_takeover import ENVIRONMENT
from tests.hostile.answer_parsers import ANSWER_PARSERS
from tests.hostile.index_parsers import INDEX_PARSERS, Parser, mend_tar
from tests.hostile.project_parsers import PROJECT_PARSERS
from tests.hostile.repacked import (
    MARK,
    headers_of_conda,
    headers_of_sif,
    headers_of_zip,
    members_of_conda,
    members_of_zip,
    pack_conda,
    pack_headers,
    pack_system,
    pack_tars,
    pack_wheel,
    tables_of,
)
from tests.hostile.test_whole_file import made, signed
from tests.shelf.test_shelf_trust import ENTRY

ROOT = Path(__file__).parents[2]
POOL = ThreadPoolExecutor(1)
"""One for all inputs: starting threads takes longer than most inputs."""
CODEC = Codec(compressor="zstd", level=1, library="here")


def file_systems(folder: Path, *, rights: bytes = b"\1" * 20) -> list[bytes]:
    found = []
    for number, compressor in enumerate(("zstd", "gzip")):
        codec = Codec(compressor=compressor, level=1, library="here")  # type: ignore[arg-type]
        held = (("security.capability", rights),) if rights else ()
        ping = msgspec.structs.replace(file("bin/ping", 0o4755), xattrs=held)
        contents = [
            (TreeEntry("", "d", 0o755), None),
            (ping, b"ping"),
            (file("etc/large"), bytes(200_000) + b"x" * 70_000),
            (file("etc/small"), b"small"),
            (TreeEntry("etc/link", "l", 0o777, target="small"), None),
            (TreeEntry("dev/null", "c", 0o666, device=259), None),
            (TreeEntry("run/pipe", "p", 0o600), None),
        ]
        part = pack_part(contents, folder / f"blob{number}", codec=codec, workers=1)
        write_file_system(folder / "image", [(part, folder / f"blob{number}")], codec=codec)
        found.append((folder / "image").read_bytes().rstrip(b"\0") + bytes(64))
    return found


def read_system(path: Path) -> None:
    with closing(SquashImage(path, 0, path.stat().st_size)) as image:
        read_tree(image, POOL)


def sifs(folder: Path) -> list[bytes]:
    plain = made(folder / "a.sif").read_bytes()
    signed(folder / "a.sif")
    return [plain, (folder / "a.sif").read_bytes()]


def read_whole_sif(path: Path) -> None:
    read_sif(path)
    image_digest(path)
    frame_digest(path)
    strange_frame(path)
    read_embedded_info(path)


def tars(_: Path) -> list[bytes]:
    plain = tar_of(
        {"etc": None, "etc/passwd": b"root" * 200, "etc/.wh.old": b"", "usr/.wh..wh..opq": b""}
    )
    out = io.BytesIO()
    for_all = {"comment": "all"}
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers=for_all) as tar:
        info = tarfile.TarInfo("a" * 150 + "/ü")
        info.size, info.pax_headers = 3, {"SCHILY.xattr.user.a": "b", "mtime": "1.5"}
        tar.addfile(info, io.BytesIO(b"abc"))
        info = tarfile.TarInfo("hard")
        info.type, info.linkname = tarfile.LNKTYPE, "a" * 150 + "/ü"
        tar.addfile(info)
    gnu = io.BytesIO()
    with tarfile.open(fileobj=gnu, mode="w", format=tarfile.GNU_FORMAT) as tar:
        info = tarfile.TarInfo("n" * 200)
        info.type, info.linkname = tarfile.SYMTYPE, "l" * 200
        tar.addfile(info)
    return [plain, out.getvalue(), gnu.getvalue()]


def read_layer(path: Path) -> None:
    try:
        Tree(lambda _name, _size: True).add_layer(path, None, number=0, where="image")
    finally:
        with path.with_name("blob").open("wb") as out:
            writer = PartWriter(out, codec=CODEC, pool=POOL)
            fill_layer(writer, path, None, where="image")
            writer.finish("k")


def packed_layers(folder: Path) -> list[bytes]:
    return [zstandard.ZstdCompressor(1).compress(tars(folder)[0]), gzip.compress(tars(folder)[0])]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wheels(folder: Path) -> list[bytes]:
    return [make_wheel(folder / "w.whl", FILES).read_bytes()]


def read_wheel(path: Path) -> None:
    with path.with_name("blob").open("wb") as out:
        writer = PartWriter(out, codec=CODEC, pool=POOL)
        unpack_wheel(path, "demo-1.0-py3-none-any.whl", SCHEME, writer, sha256=sha256(path))


def conda_packages(folder: Path) -> list[bytes]:
    return [TOOL.pack(), replace(TOOL, old_format=True).pack()]


def read_conda(path: Path) -> None:
    """Link an archive of either format, whatever the lock would say of it."""
    data = path.read_bytes()
    archive = replace(TOOL, old_format=data.startswith(b"BZh"))
    named = path.with_name(archive.file)
    named.write_bytes(data)
    with path.with_name("blob").open("wb") as out:
        writer = PartWriter(out, codec=CODEC, pool=POOL)
        link_package(named, archive.locked(data), PREFIX, writer)


@functools.cache
def fixed(name: str) -> tuple[list[bytes], list[bytes]]:
    """Return the headers of a sound archive, and what lies between them."""
    sound = {"wheel": wheels, "sif": sifs}[name]
    with tempfile.TemporaryDirectory() as folder:
        data = sound(Path(folder))[0]
    return headers_of_zip(data) if name == "wheel" else headers_of_sif(data)


def zips(folder: Path) -> list[bytes]:
    with zipfile.ZipFile(folder / "z", "w") as archive:
        archive.writestr("stored", b"x" * 100)
        archive.writestr("deflated", b"y" * 5000, zipfile.ZIP_DEFLATED)
    return [(folder / "z").read_bytes()]


def read_zip(path: Path) -> None:
    with reading("is damaged", path.name), open_zip(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                while member.read(1 << 20):
                    pass


def documents(_: Path) -> list[bytes]:
    image = image_of(tar_of({"a": b"x"}), env=("PATH=/bin",), entrypoint=("sh",))
    return [
        image.manifest,
        index_of(("amd64", image), ("arm64", image)),
        json.dumps(image.config).encode(),
    ]


def read_documents(path: Path) -> None:
    data = path.read_bytes()
    if b'"rootfs"' in data:
        config = read_config(data, where="image")
        assert isinstance(config.environment, dict)
    else:
        assert isinstance(read_document(data, "", where="image"), (Index, Manifest))


def read_bundle(path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        unpack(path, Store(Path(folder) / "store"), Path(folder) / "project")


def texts(pattern: str) -> Callable[[Path], list[bytes]]:
    return lambda _: [path.read_bytes() for path in sorted(ROOT.glob(pattern))]


def read_text(reader: Callable[[str], object]) -> Callable[[Path], object]:
    return lambda path: reader(path.read_text("utf-8", "replace"))


def recipes(_: Path) -> list[bytes]:
    """The shipped ones, under the name of the file that inputs are read from, with that as their script."""
    found = []
    for path in sorted(ROOT.glob("recipes/*.toml")):
        text = path.read_text("utf-8").replace(f'name = "{path.stem}"', 'name = "input"')
        found.append(re.sub(r'(?m)^script = ".*"$', 'script = "input"', text).encode())
    return found


def locks(_: Path) -> list[bytes]:
    """A shipped lock with few packages: parsing all of them would take most of the time."""
    lock = read_lock(ROOT / "lockfiles/keras-bert.lock")
    short = {
        "python": lock.python[:3],
        "debian": lock.debian[:2],
        "packers": lock.packers[:1],
        "notes": (),
    }
    return [write_lock(msgspec.structs.replace(lock, **short)).encode()]


def read_site_text(text: str) -> object:
    data = parse_toml(text, "site")
    told = data.get("site")
    name = told.get("name", "") if isinstance(told, dict) else ""
    return read_site(data, text, "site", name)


def conda_lists(_: Path) -> list[bytes]:
    """Return what others lock: @EXPLICIT, conda-lock.yml, pixi.lock."""
    address = "https://x.invalid/forge/linux-64/samtools-1.21-0.conda"
    row = (
        "{name: samtools, version: '1.21', manager: conda, platform: linux-64, "
        f"dependencies: {{libz: '>=1'}}, url: '{address}', hash: {{md5: {'0' * 32}}}}}"
    )
    pixi = (
        "version: 6\nenvironments:\n  default:\n    channels:\n    - url: https://x.invalid/forge/\n"
        f"    packages:\n      linux-64:\n      - conda: {address}\n"
        f"packages:\n- conda: {address}\n  sha256: {'0' * 64}\n  md5: {'0' * 32}\n"
        "  depends:\n  - libz >=1\n  license: MIT\n  size: 7\n"
    )
    listed = f"# platform: linux-64\n@EXPLICIT\n{address}#{'0' * 32}\n"
    return [listed.encode(), f"version: 1\npackage:\n- {row}\n".encode(), pixi.encode()]


def pages(_: Path) -> list[bytes]:
    html = b'<!DOCTYPE html><base href="/x/"><a href="a-1.0.whl#sha256=' + b"0" * 64
    html += b'" data-requires-python="&gt;=3.8" data-yanked="no">a-1.0.whl</a>'
    told = {
        "filename": "a-1.0.whl",
        "url": "a-1.0.whl",
        "hashes": {"sha256": "0" * 64},
        "size": 3,
        "yanked": True,
    }
    return [
        html,
        json.dumps({"meta": {"api-version": "1.1"}, "name": "a", "files": [told]}).encode(),
    ]


def read_page(path: Path) -> None:
    from envbuild.net.simple import PageError

    data = path.read_bytes()
    with contextlib.suppress(PageError):  # its caller makes a NetworkError of it
        if data.startswith(b"{"):
            links_of_json(data, "http://127.0.0.1/simple/a/")
        else:
            links_of_html(data.decode("utf-8", "replace"), "http://127.0.0.1/simple/a/")


def layer_records(folder: Path) -> list[bytes]:
    lock = parse_lock(locks(folder)[0].decode(), "lock")
    digest = f"sha256:{'0' * 64}"
    record = DevRecord(
        image=digest,
        layer="a.dev-0123456789ab.sqfs",
        size=4096,
        sha256=digest,
        lock=lock,
        packages=("six",),
        editable=(EditableFolder(name="mine", folder="/home/ada/mine"),),
    )
    return [msgspec.json.encode(record)]


PARSERS = {
    "sif": Parser(seeds=sifs, read=read_whole_sif),
    "squashfs": Parser(seeds=file_systems, read=read_system),
    "layer": Parser(seeds=tars, read=read_layer, mend=mend_tar),
    "packed layer": Parser(seeds=packed_layers, read=read_layer),
    "oci": Parser(seeds=documents, read=read_documents),
    "wheel": Parser(seeds=wheels, read=read_wheel),
    "conda": Parser(seeds=conda_packages, read=read_conda),
    "zip": Parser(seeds=zips, read=read_zip),
    "tar": Parser(
        seeds=tars, read=lambda path: list(tar_contents(path, sha256(path))), mend=mend_tar
    ),
    "members of a wheel": Parser(
        seeds=lambda folder: [members_of_zip(wheels(folder)[0])], read=read_wheel, mend=pack_wheel
    ),
    "headers of a wheel": Parser(
        seeds=lambda _: [MARK.join(fixed("wheel")[0])],
        read=read_wheel,
        mend=lambda data: pack_headers(data, fixed("wheel")),
    ),
    "members of a conda package": Parser(seeds=members_of_conda, read=read_conda, mend=pack_conda),
    "headers of a conda package": Parser(seeds=headers_of_conda, read=read_conda, mend=pack_tars),
    "tables of squashfs": Parser(
        seeds=lambda folder: [tables_of(system) for system in file_systems(folder, rights=b"")],
        read=read_system,
        mend=pack_system,
    ),
    "headers of an image": Parser(
        seeds=lambda _: [MARK.join(fixed("sif")[0])],
        read=read_whole_sif,
        mend=lambda data: pack_headers(data, fixed("sif")),
    ),
    "bundle": Parser(
        seeds=lambda folder: [sound_bundle(folder / "b").read_bytes().rstrip(b"\0") + bytes(1024)],
        read=read_bundle,
        mend=mend_tar,
    ),
    "lock": Parser(seeds=locks, read=read_text(lambda text: parse_lock(text, "lock"))),
    "recipe": Parser(seeds=recipes, read=read_recipe),
    "site": Parser(
        seeds=texts("envbuild/data/sites/*.toml"),
        read=read_text(read_site_text),
    ),
    "entry": Parser(
        seeds=lambda _: [write_entry(ENTRY)],
        read=lambda path: read_entry(path.read_bytes(), "entry"),
    ),
    "conda list": Parser(seeds=conda_lists, read=lambda path: read_conda_list(path, "linux-64")),
    "conda environment": Parser(
        seeds=lambda _: [ENVIRONMENT.encode()], read=lambda path: draft_conda_recipe(path, None)
    ),
    "layer record": Parser(seeds=layer_records, read=read_record),
    "page": Parser(seeds=pages, read=read_page),
    **INDEX_PARSERS,
    **PROJECT_PARSERS,
    **ANSWER_PARSERS,
}


@functools.cache
def seeds_of(name: str) -> tuple[bytes, ...]:
    """Return the sound inputs of a parser."""
    with tempfile.TemporaryDirectory() as folder:
        return tuple(PARSERS[name].seeds(Path(folder)))
