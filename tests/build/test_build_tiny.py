"""Making, verifying, flattening and rebuilding an image of a few files, without any tool (tests/tiny_build.py)."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec
import pytest

from envbuild.build.image import verify
from envbuild.build.image.embedded import EmbeddedInfo, read_embedded_info
from envbuild.build.image.flatten import flatten_image
from envbuild.build.image.rebuild import compare_images, made_again
from envbuild.build.image.verify import OTHER_FRAME, image_tree, root_partitions, verify_image
from envbuild.build.image_cache import fit_runtime
from envbuild.build.make import building
from envbuild.build.model import BuildSpec
from envbuild.context import Context
from envbuild.errors import EnvbuildError, HostError, IntegrityError
from envbuild.formats.file_tree import tree_digest
from envbuild.formats.sif_reader import image_digest, read_sif
from envbuild.formats.squashfs.reader import read_compressor
from envbuild.progress import SilentStage
from envbuild.recipe.find import find_recipe
from tests.tiny_build import EPOCH, TinyProject


@pytest.fixture(params=["bootstrap", "image"])
def tiny(request: pytest.FixtureRequest, tmp_path: Path) -> TinyProject:
    return TinyProject(tmp_path / "p", request.param)


def make(tiny: TinyProject, spec: BuildSpec) -> tuple[bool, list[str]]:
    """Make an image; return whether it was built, and which scripts ran in the base."""
    tiny.runtime.scripts.clear()
    with building(spec, tiny.context) as image:
        built = image.built
    return built, list(tiny.runtime.scripts)


def refuse(spec: BuildSpec, context: Context) -> None:
    with building(spec, context) as image:
        assert image_digest(image.path) == image.digest
        raise IntegrityError("its check failed")


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


class TestRuntimeWithoutZstd:
    @pytest.mark.parametrize("mode", ["flat", "layered"])
    def test_the_same_tree_is_packed_with_gzip(self, tiny: TinyProject, mode: str) -> None:
        spec = tiny.spec(mode)
        make(tiny, spec)
        tree = tree_digest(image_tree(spec.target, tiny.context).values())
        tiny.runtime.version = (1, 3, 6)
        assert make(tiny, spec)[0]
        assert {
            read_compressor(spec.target, item.offset) for item in root_partitions(spec.target)
        } == {"gzip"}
        assert tree_digest(image_tree(spec.target, tiny.context).values()) == tree
        assert not make(tiny, spec)[0], "the store has it"
        assert verify_image(spec.target, tiny.lock, spec, tiny.context).holds == "bytes"
        tiny.runtime.version = (1, 4, 0)
        assert verify_image(spec.target, tiny.lock, spec, tiny.context).holds == "bytes"
        make(tiny, spec)
        assert {
            read_compressor(spec.target, item.offset) for item in root_partitions(spec.target)
        } == {"zstd"}

    def test_singularity_reads_none_in_any_version(self, tiny: TinyProject) -> None:
        tiny.runtime.name, tiny.runtime.version = "singularity", (4, 5, 1)
        assert fit_runtime(tiny.spec(), tiny.context).codec.compressor == "gzip"

    def test_a_layered_one_is_flattened_with_its_own_packer(
        self, tiny: TinyProject, tmp_path: Path
    ) -> None:
        tiny.runtime.version = (1, 3, 6)
        spec = tiny.spec("layered")
        make(tiny, spec)
        flatten_image(spec.target, tmp_path / "flat.sif", SilentStage())
        (root,) = root_partitions(tmp_path / "flat.sif")
        assert read_compressor(tmp_path / "flat.sif", root.offset) == "gzip"

    def test_a_target_site_whose_runtime_opens_no_zstd_decides_too(self, tiny: TinyProject) -> None:
        recipe = tiny.folder / "recipes/tiny.toml"
        recipe.write_text(recipe.read_text() + '[target]\nsites = ["abci3"]\n')
        tiny.source = find_recipe("tiny", tiny.context.settings)
        assert tiny.spec().codec.compressor == "gzip"
        recipe.write_text(recipe.read_text().replace("abci3", "tsubame4"))
        tiny.source = find_recipe("tiny", tiny.context.settings)
        assert tiny.spec().codec.compressor == "zstd"
        site = tiny.folder / "sites/old.toml"
        site.parent.mkdir()
        site.write_text(
            '[site]\nname = "old"\nscheduler = "slurm"\n[host]\nruntime = "apptainer 1.3.6"\n'
        )
        recipe.write_text(recipe.read_text().replace("tsubame4", "old"))
        tiny.source = find_recipe("tiny", tiny.context.settings)
        assert tiny.spec().codec.compressor == "gzip"


class TestMake:
    def test_the_image_holds_base_packages_and_bytecode(self, tiny: TinyProject) -> None:
        spec = tiny.spec()
        built, scripts = make(tiny, spec)
        assert built
        assert scripts == ["scheme.py", "compile.py"][tiny.kind == "bootstrap" :]
        tree = image_tree(spec.target, tiny.context)
        packages = {path: entry for path, entry in tree.items() if "-packages/" in path}
        named = {path.partition("-packages/")[2] for path in packages}
        info = {"INSTALLER", "METADATA", "RECORD", "WHEEL"}
        tag = f"cpython-{tiny.lock.base.python[:4].replace('.', '')}".rstrip(".")
        assert named == {
            "__pycache__",
            # broken.py is no Python: it stays without
            f"__pycache__/beta.{tag}.pyc",
            "alpha",
            "alpha/__init__.py",
            "alpha/__pycache__",
            f"alpha/__pycache__/__init__.{tag}.pyc",
            "alpha/data.bin",
            "beta.py",
            "broken.py",
            *(f"{name}-1.0.dist-info" for name in ("alpha", "beta")),
            *(f"{name}-1.0.dist-info/{file}" for name in ("alpha", "beta") for file in info),
        }
        # the upper layer of the image hides the folder, a root has no logs
        assert ("usr/share/doc" in tree) == (tiny.kind == "bootstrap")
        assert ("var/log/dpkg.log" in tree) == (tiny.kind == "image")
        assert {"dev", "mnt", "proc", "root", "sys", "tmp", ".singularity.d/runscript"} <= set(tree)
        assert all(entry.mtime <= EPOCH for entry in tree.values())
        embedded = read_embedded_info(spec.target)
        assert embedded.lock == tiny.lock
        assert embedded.note is not None
        assert (embedded.note.mode, embedded.note.tree) == ("flat", tree_digest(tree.values()))

    def test_one_lock_gives_the_same_bytes_anywhere(
        self, tiny: TinyProject, tmp_path: Path
    ) -> None:
        other = TinyProject(tmp_path / "another folder", tiny.kind)
        for mode in ("flat", "layered"):
            digests = set()
            for project in (tiny, other):
                make(project, project.spec(mode))
                digests.add(hashlib.sha256(project.spec(mode).target.read_bytes()).hexdigest())
            assert len(digests) == 1

    def test_what_is_there_is_not_made_again(self, tiny: TinyProject) -> None:
        spec = tiny.spec()
        make(tiny, spec)
        first = spec.target.read_bytes()
        spec.target.unlink()
        assert make(tiny, spec) == (False, [])
        assert spec.target.read_bytes() == first
        # layers are made of the same parts
        assert make(tiny, tiny.spec("layered")) == (True, [])

    def test_a_part_that_is_lost_is_packed_again(self, tiny: TinyProject) -> None:
        spec = tiny.spec()
        make(tiny, spec)
        first = spec.target.read_bytes()
        for blob in (tiny.store.root / "v1/layers").rglob("*.blob"):
            spec.target.unlink()
            blob.unlink()
            assert make(tiny, spec)[0]
            assert spec.target.read_bytes() == first

    def test_an_image_that_its_check_refuses_is_nowhere(self, tiny: TinyProject) -> None:
        spec = tiny.spec()
        with pytest.raises(IntegrityError, match="its check failed"):
            refuse(spec, tiny.context)
        assert not list(tiny.folder.glob("*.sif*"))
        assert not list(tiny.folder.glob(".*.partial"))
        assert make(tiny, spec)[0]

    @pytest.mark.parametrize("what", ["wheel", "base"])
    def test_what_was_changed_in_the_store_is_refused(self, what: str, tiny: TinyProject) -> None:
        if what == "wheel":
            damaged = tiny.store.artifact(tiny.lock.python[0].sha256)
        elif tiny.kind == "bootstrap":
            damaged = tiny.store.base(tiny.lock.base.digest)
        else:
            layers = sorted(tiny.store.artifact("0").parent.parent.rglob("*"), key=str)
            damaged = max((p for p in layers if p.is_file()), key=lambda p: p.stat().st_size)
        flip(damaged, damaged.stat().st_size // 2)
        # a root is made again, which needs mmdebstrap
        with pytest.raises((IntegrityError, HostError), match=r"changed in the store|mmdebstrap"):
            make(tiny, tiny.spec())
        assert not list(tiny.folder.glob("*.sif"))

    def test_a_lock_of_another_base_is_refused(self, tmp_path: Path) -> None:
        tiny = TinyProject(tmp_path / "p")
        base = msgspec.structs.replace(tiny.lock.base, digest="sha256:" + "1" * 64)
        lock = msgspec.structs.replace(tiny.lock, base=base)
        with pytest.raises(IntegrityError, match="the base's digest is"):
            make(tiny, tiny.spec(lock=lock))


class TestVerify:
    @pytest.mark.parametrize("mode", ["flat", "layered"])
    def test_the_very_bytes(self, mode: str, tiny: TinyProject) -> None:
        spec = tiny.spec(mode)
        make(tiny, spec)
        found = verify_image(spec.target, tiny.lock, spec, tiny.context)
        assert (found.holds, found.compared) == ("bytes", "all files")
        # the recipe is not at hand
        found = verify_image(spec.target, tiny.lock, None, tiny.context)
        assert found.holds in ("bytes", "tree")
        assert found.compared.startswith("all files but the container runtime's own")

    def test_another_lock_names_what_differs(self, tiny: TinyProject) -> None:
        spec = tiny.spec()
        make(tiny, spec)
        wheel = tiny.wheel("beta", {"beta.py": b"two = 3\n", "more.py": b""})
        lock = msgspec.structs.replace(tiny.lock, python=(tiny.lock.python[0], wheel))
        found = verify_image(spec.target, lock, tiny.spec(lock=lock), tiny.context)
        assert found.holds == "differs"
        site = next(path for path, _ in found.changed if path.endswith("/beta.py"))[
            : -len("beta.py")
        ]
        assert f"{site}more.py" in found.missing
        assert f"{site}broken.py" in found.extra

    def test_every_flipped_byte_is_seen(self, tiny: TinyProject) -> None:
        """A byte of each kind of place: launch line, table, note, file system."""
        spec = tiny.spec()
        make(tiny, spec)
        whole = spec.target.read_bytes()
        objects = read_sif(spec.target).objects
        places = [5, 60, 140, *(item.offset + item.size // 2 for item in objects)]
        for at in places:
            flip(spec.target, at)
            with contextlib.suppress(EnvbuildError):
                found = verify_image(spec.target, tiny.lock, spec, tiny.context)
                assert found.holds != "bytes", f"at {at}"
            spec.target.write_bytes(whole)

    @pytest.mark.parametrize(
        "added",
        [
            "usr/local/lib/python3.11/dist-packages/rich-15.0.0.dist-info/METADATA",
            "usr/lib/python3/dist-packages/old.egg-info/PKG-INFO",
            "var/lib/dpkg/info/hello.list",
        ],
    )
    def test_one_from_its_definition_holds_no_other_package(
        self, added: str, tiny: TinyProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As where somebody installed it in the sandbox that the image was packed from."""
        spec = tiny.spec()
        make(tiny, spec)
        tree = image_tree(spec.target, tiny.context)
        unsaid = EmbeddedInfo(note=None, lock=None)
        monkeypatch.setattr(verify, "read_embedded_info", lambda _: unsaid)
        found = verify_image(spec.target, tiny.lock, spec, tiny.context)
        assert (found.holds, found.extra) == ("tree", ())
        entry = next(entry for entry in tree.values() if entry.path.endswith("/beta.py"))
        tree[added] = msgspec.structs.replace(entry, path=added)
        monkeypatch.setattr(verify, "image_tree", lambda *_: tree)
        found = verify_image(spec.target, tiny.lock, spec, tiny.context)
        assert (found.holds, found.extra) == ("differs", (added,))

    @pytest.mark.parametrize("at", [48, 64, 72])
    def test_another_header_around_the_same_objects_differs(
        self, at: int, tiny: TinyProject
    ) -> None:
        """Its id and times (SIF's global header): no other packer explains them."""
        spec = tiny.spec()
        make(tiny, spec)
        flip(spec.target, at)
        found = verify_image(spec.target, tiny.lock, spec, tiny.context)
        assert (found.holds, found.outside) == ("differs", (OTHER_FRAME,))


class TestFlattenAndRebuild:
    def test_a_layered_image_becomes_the_flat_one_s_tree(self, tiny: TinyProject) -> None:
        make(tiny, tiny.spec())
        make(tiny, tiny.spec("layered"))
        target = tiny.folder / "out.sif"
        digest = flatten_image(tiny.spec("layered").target, target, SilentStage())
        trees = [
            tree_digest(image_tree(path, tiny.context).values())
            for path in (target, tiny.spec().target, tiny.spec("layered").target)
        ]
        assert trees == [digest] * 3
        assert len([item for item in read_sif(target).objects if item.partition]) == 1

    def test_made_again_it_is_the_same(self, tmp_path: Path) -> None:
        tiny = TinyProject(tmp_path / "p", "image")
        spec = tiny.spec()
        make(tiny, spec)
        tiny.runtime.scripts.clear()
        with made_again(spec, tiny.context) as (second, clean):
            found = compare_images(spec.target, spec, second, clean)
        assert (found.same, found.differs) == ("bytes", ())
        # nothing was taken from the first store but downloads
        assert tiny.runtime.scripts == ["scheme.py", "compile.py"]

    def test_what_differs_is_named_with_its_layer(self, tmp_path: Path) -> None:
        tiny = TinyProject(tmp_path / "p", "image")
        wheel = tiny.wheel("beta", {"beta.py": b"two = 3\n"})
        other = msgspec.structs.replace(tiny.lock, python=(tiny.lock.python[0], wheel))
        make(tiny, tiny.spec(lock=other))
        with made_again(tiny.spec(), tiny.context) as (second, clean):
            found = compare_images(tiny.spec().target, tiny.spec(), second, clean)
        assert found.same == "nothing"
        rows = {(layer, path.rpartition("/")[2]): what for layer, path, what in found.differs}
        assert rows["packages", "broken.py"] == "is not in the first image"
        assert ("packages", "beta.py") in rows
