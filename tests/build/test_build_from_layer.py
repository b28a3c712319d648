"""Layers of images as parts: what they hide, what goes through links, what is left out; bases in SIF files."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envbuild.build.image.base_config import config_of_oci
from envbuild.build.image.runtime_files import runtime_files
from envbuild.build.in_base.install_scheme import Scheme
from envbuild.build.packages.whiteouts import replaced_entries
from envbuild.errors import IntegrityError, UsageError
from envbuild.formats.block_codec import BLOCK, Codec
from envbuild.formats.file_tree import Part, Tree, TreeEntry, compare_trees, merge_parts
from envbuild.formats.oci import OciConfig, read_config
from envbuild.formats.sif_writer import partition_object, write_sif
from envbuild.formats.squashfs.writer import write_squashfs
from envbuild.parts.cache import CachedPart, PackContext, provide_part
from envbuild.parts.compact import drop_unused_blocks
from envbuild.parts.from_layer import fill_layer
from envbuild.parts.from_sif import sif_part
from envbuild.parts.reader import read_file
from envbuild.parts.writer import PartWriter
from envbuild.plan.model import Definition
from envbuild.progress import Silent, SilentStage
from envbuild.run import Command, LocalRunner
from envbuild.store.layout import Store
from tests.build.packing import EPOCH, ZSTD, read_file_system

Member = tuple[str, bytes | None, dict[str, object]]
NOISE = bytes(range(256)) * (BLOCK // 200)


def file(name: str, content: bytes = b"", **fields: object) -> Member:
    return name, content, {"mode": 0o644, **fields}


def folder(name: str, **fields: object) -> Member:
    return name, None, {"type": tarfile.DIRTYPE, "mode": 0o755, **fields}


def symlink(name: str, target: str) -> Member:
    return name, None, {"type": tarfile.SYMTYPE, "linkname": target, "mode": 0o777}


def hardlink(name: str, target: str) -> Member:
    return name, None, {"type": tarfile.LNKTYPE, "linkname": target}


def layer(*members: Member) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, fields in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content or b"")
            for key, value in fields.items():
                setattr(entry, key, value)
            tar.addfile(entry, io.BytesIO(content or b""))
    return out.getvalue()


@pytest.fixture
def packing(tmp_path: Path) -> Iterable[PackContext]:
    with ThreadPoolExecutor(2) as pool:
        yield PackContext(store=Store(tmp_path / "store"), codec=ZSTD, pool=pool, report=Silent())


def packed(packing: PackContext, tmp_path: Path, *tars: bytes) -> list[CachedPart]:
    parts = []
    for tar in tars:
        digest = hashlib.sha256(tar).hexdigest()
        path = tmp_path / digest
        path.write_bytes(gzip.compress(tar, 1))

        def fill(writer: PartWriter, path: Path = path, digest: str = digest) -> None:
            fill_layer(writer, path, f"sha256:{digest}", where="x")

        parts.append(provide_part(digest, packing, fill, layer=True))
    return parts


def merged(parts: list[CachedPart]) -> Tree:
    return merge_parts([part.part for part in parts])


def written(
    tmp_path: Path, parts: list[CachedPart], name: str = "image.squashfs"
) -> dict[str, TreeEntry]:
    tree, copies = drop_unused_blocks(merged(parts), parts)
    with (tmp_path / name).open("wb") as out:
        write_squashfs(out, tree, copies, epoch=EPOCH, compressor="zstd")
    return read_file_system(tmp_path / name)


def names(tree: Iterable[str]) -> list[str]:
    return sorted(filter(None, tree))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_whiteouts_opaque_folders_and_what_replaces_what(
    packing: PackContext, tmp_path: Path
) -> None:
    parts = packed(
        packing,
        tmp_path,
        layer(
            file("a/old"),
            file("a/kept"),
            file("b/1"),
            file("b/2/deep"),
            folder("c"),
            file("c/x"),
            file("d"),
        ),
        layer(
            file("a/.wh.old"),
            file("b/new"),
            file("b/.wh..wh..opq"),
            file("c", b"now a file"),
            folder("d"),
        ),
        layer(file("a/old", b"back"), file(".wh.nothing"), file("d/inside")),
    )
    assert names(merged(parts)) == ["a", "a/kept", "a/old", "b", "b/new", "c", "d", "d/inside"]
    assert merged(parts)["a/old"][0].sha256 == sha256(b"back")


def test_a_whiteout_hides_lower_names_only_wherever_it_stands(
    packing: PackContext, tmp_path: Path
) -> None:
    parts = packed(
        packing,
        tmp_path,
        layer(file("f", b"1"), file("g", b"1")),
        layer(file("f", b"2"), file(".wh.f"), file(".wh.g")),
    )
    assert names(merged(parts)) == ["f"]
    assert merged(parts)["f"][0].sha256 == sha256(b"2")


def test_names_go_through_links_of_lower_layers_and_never_out(
    packing: PackContext, tmp_path: Path
) -> None:
    parts = packed(
        packing,
        tmp_path,
        layer(
            folder("usr/lib"),
            symlink("lib", "usr/lib"),
            symlink("up", "../../.."),
            symlink("a", "b"),
            symlink("b", "a"),
        ),
        layer(
            file("lib/libc.so.6", b"c"), file("up/etc/x"), file("../../etc/y"), file("lib/.wh.none")
        ),
    )
    assert names(merged(parts)) == [
        "a",
        "b",
        "etc",
        "etc/x",
        "etc/y",
        "lib",
        "up",
        "usr",
        "usr/lib",
        "usr/lib/libc.so.6",
    ]


def test_hard_links_share_their_bytes_in_and_across_layers(
    packing: PackContext, tmp_path: Path
) -> None:
    parts = packed(
        packing,
        tmp_path,
        layer(file("pkgs/lib.so", NOISE, mode=0o755), hardlink("env/lib.so", "pkgs/lib.so")),
        layer(hardlink("later", "env/lib.so"), file("pkgs/.wh.lib.so")),
    )
    found = written(tmp_path, parts)
    assert {found[path].sha256 for path in ("env/lib.so", "later")} == {sha256(NOISE)}
    assert found["later"].mode == 0o755
    assert (tmp_path / "image.squashfs").stat().st_size < len(NOISE)
    with pytest.raises(IntegrityError, match="another name of /gone"):
        merged(packed(packing, tmp_path, layer(hardlink("x", "gone"))))


@pytest.mark.parametrize(
    "target", ["../../etc/passwd", "/etc/passwd", "a/../../etc/passwd", "/proc/self/environ"]
)
def test_a_hard_link_takes_no_file_of_this_machine(
    target: str, packing: PackContext, tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match=r"another name of /\S+, which no layer holds"):
        merged(packed(packing, tmp_path, layer(folder("a"), hardlink("x", target))))


def test_names_that_differ_in_case_alone_are_two(packing: PackContext, tmp_path: Path) -> None:
    found = written(tmp_path, packed(packing, tmp_path, layer(file("A", b"1"), file("a", b"2"))))
    assert [found[name].sha256 for name in "Aa"] == [sha256(b"1"), sha256(b"2")]


def test_owners_set_uid_times_and_capabilities_are_kept(
    packing: PackContext, tmp_path: Path
) -> None:
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    told = {
        "SCHILY.xattr.security.capability": capability.decode("latin-1"),
        "SCHILY.xattr.security.selinux": "x",
    }
    [part] = packed(
        packing,
        tmp_path,
        layer(
            file("bin/su", b"s", mode=0o4755, mtime=77),
            file("bin/ping", b"p", mode=0o755, pax_headers=told),
            folder("home/jovyan", uid=1000, gid=100, mode=0o2770),
        ),
    )
    found = written(tmp_path, [part])
    assert (found["bin/su"].mode, found["bin/su"].mtime) == (0o4755, 77)
    assert [name for name, _ in found["bin/ping"].xattrs] == ["security.capability"]
    assert (found["home/jovyan"].uid, found["home/jovyan"].gid, found["home/jovyan"].mode) == (
        1000,
        100,
        0o2770,
    )
    assert compare_trees({p: e for p, (e, _) in merged([part]).items()}, found) == ((), (), ())


def test_what_is_hidden_takes_no_room(packing: PackContext, tmp_path: Path) -> None:
    secret = os.urandom(5 * BLOCK + 9)
    parts = packed(
        packing,
        tmp_path,
        layer(file("small", b"s"), file("big", secret), file("between", NOISE), file("end", b"e")),
        layer(file(".wh.big"), file("small", b"S")),
    )
    found = written(tmp_path, parts)
    assert (tmp_path / "image.squashfs").stat().st_size < BLOCK
    assert secret[:64] not in (tmp_path / "image.squashfs").read_bytes()
    assert found["between"].sha256 == sha256(NOISE)
    assert found["end"].sha256 == sha256(b"e")
    assert read_file(merged(parts), parts, "between", compressor="zstd") == NOISE
    assert read_file(merged(parts), parts, "small", compressor="zstd") == b"S"
    assert read_file(merged(parts), parts, "big", compressor="zstd") is None


class Model:
    """A plain folder: path to "d", or "f" and the number of the layer that brought it."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def drop(self, path: str, *, itself: bool = True) -> None:
        gone = [
            name for name in self.held if name.startswith(f"{path}/") or (itself and name == path)
        ]
        for name in gone:
            del self.held[name]

    def put(self, path: str, kind: str) -> None:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            self.held.setdefault("/".join(parts[:depth]), "d")
        if kind != "d" or self.held.get(path) != "d":
            self.drop(path)
            self.held[path] = kind


def sane(story: list[tuple[str, str]], model: Model) -> dict[str, str]:
    """Leave out what no real layer holds: names below a file, in it or in a lower one that it does not replace."""
    steps: dict[str, str] = {}
    for path, kind in story:
        above = [path[:at] for at, letter in enumerate(path) if letter == "/"]
        files = any(
            steps.get(folder) == "f" or model.held.get(folder, "d") != "d" for folder in above
        )
        under = kind == "f" and any(other.startswith(f"{path}/") for other in steps)
        if not files and not under:
            steps[path] = kind
    return dict(sorted(steps.items()))


MARKS = {"w": "{0}.wh.{1}", "o": "{0}{1}/.wh..wh..opq"}
STEP = st.tuples(
    st.sampled_from(["a", "b", "a/c", "a/d", "b/c/e"]), st.sampled_from(["f", "d", "w", "o"])
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(STEP, max_size=5), min_size=1, max_size=4))
def test_layers_give_what_unpacking_them_gives(
    packing: PackContext, tmp_path: Path, stories: list[list[tuple[str, str]]]
) -> None:
    model, tars = Model(), []
    for number, story in enumerate(stories):
        steps = sane(story, model)
        hiding = {path: kind for path, kind in steps.items() if kind in MARKS}
        for path, kind in hiding.items():
            model.drop(path, itself=kind == "w")
        members = [file(MARKS[kind].format(*_apart(path))) for path, kind in hiding.items()]
        for path, kind in steps.items():
            if kind not in MARKS:
                model.put(path, kind if kind == "d" else f"f{number}")
                members.append(folder(path) if kind == "d" else file(path, b"%d" % number))
        tars.append(layer(*members))
    found = {
        path: entry for path, (entry, _) in merged(packed(packing, tmp_path, *tars)).items() if path
    }
    expected = {
        path: "d" if kind == "d" else sha256(kind[1:].encode()) for path, kind in model.held.items()
    }
    assert {path: entry.sha256 or entry.kind for path, entry in found.items()} == expected


def _apart(path: str) -> tuple[str, str]:
    top, slash, name = path.rpartition("/")
    return top + slash, name


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda data: b"\x1f\x8b" + b"nonsense" * 99, "damaged"),
        (lambda data: gzip.compress(layer(file("other"))), "other files than"),
    ],
    ids=["cut-off", "no-gzip", "other-content"],
)
def test_a_layer_that_is_not_what_was_locked(
    packing: PackContext, tmp_path: Path, spoil: Callable[[bytes], bytes], says: str
) -> None:
    tar = layer(file("a", NOISE), file("b", NOISE))
    path = tmp_path / "layer"
    path.write_bytes(spoil(gzip.compress(tar, 1)))
    digest = f"sha256:{hashlib.sha256(tar).hexdigest()}"
    with pytest.raises(IntegrityError, match=says):
        provide_part(
            "0" * 64,
            packing,
            lambda writer: fill_layer(writer, path, digest, where="x"),
            layer=True,
        )


def test_a_name_that_no_image_of_ours_can_hold(packing: PackContext, tmp_path: Path) -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    with pytest.raises(IntegrityError, match="not UTF-8"):
        packed(packing, tmp_path, layer(file(name)).replace(b"caf\xc3\xa9", b"caf\xe9"))


# ---- replaced packages

SCHEME = Scheme(
    site="opt/lib/site-packages",
    prefix="opt",
    version="3.9",
    python="opt/bin/python3",
    path=("opt/lib", "opt/first", "opt/lib/site-packages", "usr/lib/python3/dist-packages"),
)
RECORD = b"""\
foo/__init__.py,,
foo/data/x.bin,,
../../bin/foo,,
../../../../../../etc/passwd,,
"weird, name.py",,
Foo_Bar-1.0.dist-info/METADATA,,
Foo_Bar-1.0.dist-info/RECORD,,
"""


def test_a_replaced_package_takes_its_files_and_emptied_folders_along(
    packing: PackContext, tmp_path: Path
) -> None:
    site = "opt/lib/site-packages"
    parts = packed(
        packing,
        tmp_path,
        layer(
            file("etc/passwd"),
            file("opt/bin/foo"),
            file("opt/bin/python3"),
            *(
                file(f"{site}/{name}")
                for name in ("foo/__init__.py", "foo/__pycache__/__init__.cpython-39.pyc")
            ),
            *(
                file(f"{site}/{name}")
                for name in (
                    "foo/data/x.bin",
                    "weird, name.py",
                    "other.py",
                    "old.py",
                    "oldpkg/a.py",
                )
            ),
            file(f"{site}/Foo_Bar-1.0.dist-info/METADATA"),
            file(f"{site}/Foo_Bar-1.0.dist-info/RECORD", RECORD),
            file(f"{site}/Other-1.0.dist-info/RECORD", b"other.py,,\n"),
            file(f"{site}/old-2.0-py3.9.egg-info/top_level.txt", b"old\noldpkg\n../../etc\n"),
            file("usr/lib/python3/dist-packages/foo_bar-0.9.egg-info"),
            file("opt/first/foo_bar-0.8.egg-info"),
        ),
    )
    tree = merged(parts)

    def read(path: str) -> bytes | None:
        return read_file(tree, parts, path, compressor="zstd")

    entries = replaced_entries(tree, ["foo-bar", "old"], SCHEME, read)
    hidden = Part(key="", entries=entries, fragments=(), size=0, sha256="", layer=True)
    left = merge_parts([*(part.part for part in parts), hidden])
    assert names(path for path, (entry, _) in left.items() if entry.kind != "d") == [
        "opt/bin/python3",
        f"{site}/Other-1.0.dist-info/RECORD",
        f"{site}/other.py",
        "usr/lib/python3/dist-packages/foo_bar-0.9.egg-info",
    ]
    assert f"{site}/foo" not in left
    assert "opt/first" not in left


# ---- what an image asks for


def config(**command: object) -> OciConfig:
    import json

    return read_config(json.dumps({"architecture": "amd64", "config": command}).encode(), where="x")


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        ({"Entrypoint": ["printf", "%s|"], "Cmd": ["it's", "a b"]}, [], "it's|a b|"),
        ({"Entrypoint": ["printf", "%s|"], "Cmd": ["lost"]}, ["x y", "$z"], "x y|$z|"),
        ({"Cmd": ["echo", "two\nlines"]}, [], "two\nlines\n"),
        ({"Cmd": ["echo", "own"]}, ["echo", "given"], "given\n"),
    ],
)
def test_the_entry_point_runs_as_the_image_says(
    tmp_path: Path, command: dict[str, object], arguments: list[str], says: str
) -> None:
    script = config_of_oci(config(**command)).runscript or ""
    result = LocalRunner()(Command(argv=("sh", "-c", script, "run", *arguments), timeout=10))
    assert result.stdout == says


def test_the_images_variables_come_first_and_the_recipes_win() -> None:
    inherited = config_of_oci(
        config(Env=["PATH=/opt/bin:/bin", "GREETING=it's `a` $test", "A=base", "bad-name=1"])
    )
    plan = Definition(comment=(), header=(), environment=(("A", "recipe"),), help=())
    files = runtime_files(plan, "text", inherited)
    script = (
        files["env/10-docker2singularity.sh"]
        + files["env/90-environment.sh"]
        + '\necho "$PATH|$GREETING|$A"'
    )
    env = {"PATH": "/usr/bin:/bin", "A": "caller"}
    assert LocalRunner()(Command(argv=("/bin/sh", "-c", script), env=env, timeout=10)).stdout == (
        "/opt/bin:/bin|it's `a` $test|recipe\n"
    )


# ---- a SIF as base


@pytest.mark.parametrize(
    "codec",
    [ZSTD, Codec(compressor="gzip", level=6, library="here")],
    ids=["copied", "packed-anew"],
)
def test_the_root_of_a_sif_becomes_a_part(
    packing: PackContext, tmp_path: Path, codec: Codec
) -> None:
    other = PackContext(
        store=Store(tmp_path / "other"), codec=codec, pool=packing.pool, report=Silent()
    )
    parts = packed(
        other,
        tmp_path,
        layer(file("a", NOISE, uid=7), symlink("l", "a"), file("s", b"small"), folder("d")),
    )
    tree = merged(parts)
    path = tmp_path / "base.sif"

    def write(out: io.BufferedWriter) -> int:
        return write_squashfs(
            out, tree, [(p.part, p.copy) for p in parts], epoch=EPOCH, compressor=codec.compressor
        )

    root = partition_object(write, machine="x86_64")  # type: ignore[arg-type]
    with path.open("wb") as out:
        write_sif(out, [root], machine="x86_64", epoch=0, identity="x")
    part = sif_part(path, "sha256:" + "1" * 64, packing, SilentStage())
    found = written(tmp_path, [part])
    assert compare_trees({p: e for p, (e, _) in tree.items()}, found) == ((), (), ())
    overlay = partition_object(write, machine="x86_64", overlay=True)  # type: ignore[arg-type]
    with path.open("wb") as out:
        write_sif(out, [root, overlay], machine="x86_64", epoch=0, identity="x")
    with pytest.raises(UsageError, match="made of layers"):
        sif_part(path, "sha256:" + "2" * 64, packing, SilentStage())


def test_blocks_that_lie_in_others_are_kept_once(tmp_path: Path) -> None:
    """Files of equal content share their blocks, so one may lie in another's."""
    blob = tmp_path / "blob"
    blob.write_bytes(bytes(range(100)))
    part = Part(key="k", entries=(), fragments=(), size=100, sha256="", layer=True)
    places = {"whole": (0, 60), "inside": (10, 20), "later": (40, 10), "far": (80, 5)}
    before: Tree = {
        name: (TreeEntry(name, "f", 0o644, start=start, blocks=(length,)), 0)
        for name, (start, length) in places.items()
    }
    after, [(compact, copy)] = drop_unused_blocks(before, [CachedPart(part=part, blob=blob)])
    with (tmp_path / "out").open("wb") as out:
        copy(out.fileno(), 0)
    data = (tmp_path / "out").read_bytes()
    assert compact.size == len(data) == 65
    for name, (start, length) in places.items():
        at = after[name][0].start
        assert data[at : at + length] == bytes(range(start, start + length))
