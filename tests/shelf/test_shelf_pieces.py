"""Images on a shelf: kept in pieces, shared between images, put together again byte for byte, or refused."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest

from envbuild.app.shelf.publish import gather_publication, publish
from envbuild.build.image.metadata import embedded_lock, image_note
from envbuild.build.image.origin import NOTE
from envbuild.build.image_cache import locked_codec
from envbuild.check.expected import asked_digest
from envbuild.check.model import Report
from envbuild.check.reports.report import save_report
from envbuild.errors import CheckFailedError, IntegrityError, SpaceError, UsageError
from envbuild.formats.file_tree import merge_parts
from envbuild.formats.sif_reader import image_digest
from envbuild.formats.sif_writer import GENERIC, JSON, data_object, partition_object, write_sif
from envbuild.formats.squashfs.writer import write_squashfs
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.parts.cache import CachedPart
from envbuild.progress import Silent
from envbuild.shelf.backend import object_path
from envbuild.shelf.folder import FolderBackend
from envbuild.shelf.pieces import (
    LEAST,
    PieceList,
    cut_points,
    describe_image,
    fetch_image,
    store_image,
)
from envbuild.store.hashing import digest_of
from envbuild.store.layout import Store
from tests.build.packing import EPOCH, file, pack_part
from tests.shelf.people import Member, User, allowed, member, new_key, user
from tests.support import needs

MIB = 1 << 20


def part(folder: Path, name: str, mib: int) -> CachedPart:
    """A packed tree of files of 1 MiB that do not compress."""
    folder.mkdir(exist_ok=True)
    source = random.Random(name)  # noqa: S311  (the same bytes each time)
    contents = [(file(f"{name}/{number}.so"), source.randbytes(MIB)) for number in range(mib)]
    blob = folder / f"{name}.blob"
    return CachedPart(part=pack_part(contents, blob, key=name), blob=blob)


def write(
    path: Path,
    parts: Sequence[CachedPart],
    lock: Lock,
    *,
    mode: str = "flat",
    overlay: bool = False,
) -> Path:
    """A SIF as envbuild writes it: what it says about itself, and its root."""
    tree = merge_parts([kept.part for kept in parts])

    def root(out: BinaryIO) -> int:
        return write_squashfs(
            out, tree, [(kept.part, kept.copy) for kept in parts], epoch=EPOCH, compressor="zstd"
        )

    note = image_note(
        lock.name, lock, mode=mode, packer=locked_codec(lock.packer).name, tree=f"sha256:{'7' * 64}"
    )
    objects = [
        data_object(GENERIC, f"{lock.name}.lock", embedded_lock(lock).encode()),
        data_object(JSON, NOTE, note),
    ]
    objects.append(partition_object(root, machine="x86_64"))
    if overlay:
        objects.append(partition_object(root, machine="x86_64", name="top", overlay=True))
    with path.open("wb") as out:
        write_sif(out, objects, machine="x86_64", epoch=EPOCH, identity=path.name)
    return path


@pytest.fixture
def ann(tmp_path: Path) -> Member:
    who = member(tmp_path / "ann", str(tmp_path / "shelf"))
    who.recipe()
    return who


def lock_of(who: Member | User) -> Lock:
    return read_lock(who.folder / "lockfiles/small.lock")


def publish_image(who: Member, tmp_path: Path, *, mib: int = 6) -> Path:
    """Put a small image of the recipe's lock on the shelf."""
    image = write(who.folder / "small.sif", [part(tmp_path / "parts", "base", mib)], lock_of(who))
    who.publish(image=True)
    return image


def bring(who: Member, target: Path) -> None:
    from envbuild.app.shelf.entry import fetch_entry_image as bring_verified

    bring_verified(who.take(), who.library, target, who.context)


class TestPieces:
    def test_an_image_comes_back_byte_for_byte(self, ann: Member, tmp_path: Path) -> None:
        image = publish_image(ann, tmp_path)
        bob = member(tmp_path / "bob", str(tmp_path / "shelf"))
        bring(bob, tmp_path / "brought.sif")
        assert (tmp_path / "brought.sif").read_bytes() == image.read_bytes()

    @pytest.mark.parametrize("shifted", [False, True])
    def test_a_second_image_on_the_same_base_adds_little(
        self, shifted: bool, ann: Member, tmp_path: Path
    ) -> None:
        """Also where the common part lies elsewhere in the file."""
        folder = FolderBackend(tmp_path / "shelf")
        base, own, other = (
            part(tmp_path / "parts", name, mib)
            for name, mib in (("base", 24), ("own", 2), ("other", 3))
        )
        first = write(tmp_path / "first.sif", [base, own], lock_of(ann))
        second = write(
            tmp_path / "second.sif", [other, base] if shifted else [base, other], lock_of(ann)
        )
        locked = lock_digest(lock_of(ann))
        store_image(first, describe_image(first, locked, ann.context.store), folder, Silent())
        listed, new = store_image(
            second, describe_image(second, locked, ann.context.store), folder, Silent()
        )
        assert (
            sum(size for _, size in msgspec.json.decode(listed, type=PieceList).pieces)
            == second.stat().st_size
        )
        assert new < 3 * MIB + 6 * LEAST, "its own part, and a few pieces where the two meet"

    def test_the_same_image_adds_nothing(self, ann: Member, tmp_path: Path) -> None:
        image = publish_image(ann, tmp_path)
        folder = FolderBackend(tmp_path / "shelf")
        described = describe_image(image, lock_digest(lock_of(ann)), ann.context.store)
        report = Silent()
        report.transfer = None  # type: ignore[assignment, method-assign]  # a transfer of nothing is not shown
        assert store_image(image, described, folder, report)[1] == 0

    def test_pieces_have_sensible_sizes(self, ann: Member, tmp_path: Path) -> None:
        image = write(tmp_path / "x.sif", [part(tmp_path / "parts", "base", 40)], lock_of(ann))
        size = image.stat().st_size
        places = [0, *cut_points(image, size), size]
        sizes = [end - start for start, end in itertools.pairwise(places)]
        assert sum(sizes) == size
        assert 5 <= len(sizes) <= 40
        assert min(sizes[:-1]) >= LEAST

    def test_a_file_system_that_cannot_be_read_is_cut_evenly(self, tmp_path: Path) -> None:
        path = tmp_path / "encrypted.sif"
        path.write_bytes(b"no image")
        assert cut_points(path, 200 * MIB) == [64 * MIB, 128 * MIB, 192 * MIB]


class TestRefused:
    def _pieces(self, shelf: Path) -> list[Path]:
        return sorted(
            (path for path in (shelf / "objects").rglob("*") if path.is_file()),
            key=lambda p: -p.stat().st_size,
        )

    @pytest.mark.parametrize("fault", ["changed", "missing", "longer", "shorter", "a link", "list"])
    def test_a_spoilt_piece_gives_no_image(self, fault: str, ann: Member, tmp_path: Path) -> None:
        publish_image(ann, tmp_path)
        piece = self._pieces(tmp_path / "shelf")[0]
        content = piece.read_bytes()
        if fault == "list":
            weight = ann.take().stored.entry.image
            assert weight is not None
            piece = tmp_path / "shelf" / object_path(weight.pieces or "")
            piece.write_bytes(piece.read_bytes().replace(b"1", b"2"))
        elif fault in ("missing", "a link"):
            piece.unlink()
        else:
            piece.write_bytes(
                {"changed": content[:-1] + b"?", "longer": content + b"?", "shorter": content[:-1]}[
                    fault
                ]
            )
        if fault == "a link":
            piece.symlink_to("/etc/passwd")
        bob = member(tmp_path / "bob", str(tmp_path / "shelf"))
        with pytest.raises(IntegrityError):
            bring(bob, tmp_path / "brought.sif")

    @pytest.mark.parametrize("field", ["digest", "sha256", "size"])
    def test_an_image_that_is_not_the_published_one(
        self, field: str, ann: Member, tmp_path: Path
    ) -> None:
        image = publish_image(ann, tmp_path)
        folder = FolderBackend(tmp_path / "shelf")
        weight = describe_image(image, lock_digest(lock_of(ann)), ann.context.store)
        listed, _ = store_image(image, weight, folder, Silent())
        wrong = msgspec.structs.replace(
            weight, **{field: weight.size + 1 if field == "size" else f"sha256:{'9' * 64}"}
        )
        with pytest.raises(IntegrityError, match=r"another one than was published|not as long as"):
            fetch_image(wrong, listed, folder, tmp_path / "out.sif", Silent())

    def test_an_image_of_another_lock_in_its_place(self, ann: Member, tmp_path: Path) -> None:
        """Whoever can write there puts a good image of other packages where the good lock is: no signature needed."""
        publish_image(ann, tmp_path)
        folder = FolderBackend(tmp_path / "shelf")
        other = msgspec.structs.replace(lock_of(ann), notes=("another lock",))
        image = write(tmp_path / "evil.sif", [part(tmp_path / "parts", "evil", 2)], other)
        weight = describe_image(image, lock_digest(other), ann.context.store)
        listed, _ = store_image(image, weight, folder, Silent())
        folder._put(object_path(digest_of(listed)), listed)
        entry = next((tmp_path / "shelf/names").iterdir())
        from envbuild.shelf.model import read_entry, write_entry

        swapped = msgspec.structs.replace(weight, pieces=digest_of(listed))
        entry.write_bytes(
            write_entry(msgspec.structs.replace(read_entry(entry.read_bytes(), ""), image=swapped))
        )
        bob = member(tmp_path / "bob", str(tmp_path / "shelf"))
        with pytest.raises(IntegrityError, match="its image was made from another lock"):
            bring(bob, tmp_path / "brought.sif")

    def test_a_layered_image_is_not_published(self, ann: Member, tmp_path: Path) -> None:
        write(
            ann.folder / "small.sif",
            [part(tmp_path / "parts", "base", 1)],
            lock_of(ann),
            mode="layered",
            overlay=True,
        )
        with pytest.raises(UsageError, match="is layered") as caught:
            ann.publish(image=True)
        assert caught.value.hint == "envbuild flatten small.sif"
        assert not ann.library.numbers

    def test_an_image_of_another_lock_is_not_published(self, ann: Member, tmp_path: Path) -> None:
        other = msgspec.structs.replace(lock_of(ann), notes=("another lock",))
        write(ann.folder / "small.sif", [part(tmp_path / "parts", "base", 1)], other)
        with pytest.raises(UsageError, match="is no image of this lock"):
            ann.publish(image=True)
        ann.publish()
        assert ann.take().stored.entry.image is None

    def test_without_room_nothing_is_written(
        self, ann: Member, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(FolderBackend, "free_bytes", lambda _: 1 * MIB)
        image = write(ann.folder / "small.sif", [part(tmp_path / "parts", "base", 4)], lock_of(ann))
        before = sorted(tmp_path.joinpath("shelf").rglob("*"))
        with pytest.raises(SpaceError, match="the shelf has room for"):
            ann.publish(image=True)
        assert sorted(tmp_path.joinpath("shelf").rglob("*")) == before
        assert image.exists()

    @needs("git")
    def test_a_git_shelf_takes_no_images_and_keeps_their_digest(self, tmp_path: Path) -> None:
        from tests.shelf.people import bare

        ann = member(tmp_path / "ann", bare(tmp_path / "shelf.git"))
        ann.recipe()
        image = write(ann.folder / "small.sif", [part(tmp_path / "parts", "base", 1)], lock_of(ann))
        with pytest.raises(UsageError, match="takes no images"):
            ann.publish(image=True)
        ann.publish()
        weight = ann.take().stored.entry.image
        assert weight is not None
        assert (weight.digest, weight.pieces) == (image_digest(image), None)

    def test_a_later_entry_about_the_same_image_keeps_its_bytes(
        self, ann: Member, tmp_path: Path
    ) -> None:
        publish_image(ann, tmp_path)
        before = ann.take().stored.entry.image
        ann.recipe(summary="a better summary")
        ann.publish()
        assert before is not None
        assert before.pieces is not None
        assert ann.take().stored.entry.image == before


def claim(who: Member, image: Path, gpu: str) -> None:
    """Let somebody's store say that an image passed on a GPU."""
    when = "2026-01-01T00:00:00+00:00"
    save_report(
        Report(
            image="x",
            digest=image_digest(image),
            verdict="passed",
            findings=(),
            when=when,
            gpu=(gpu,),
        ),
        Store(who.settings.store),
    )


@needs("ssh-keygen")
class TestVerdicts:
    def test_a_failed_check_is_published_only_when_told_and_hides_none(
        self, ann: Member, tmp_path: Path
    ) -> None:
        image = publish_image(ann, tmp_path)
        day = "2026-01-0%dT00:00:00+00:00"
        own = Report(
            image="x", digest=image_digest(image), verdict="passed", findings=(), when=day % 1
        )
        deeper = msgspec.structs.replace(own, level="full", verdict="failed", when=day % 2)
        elsewhere = msgspec.structs.replace(
            own, target="driver 450", verdict="failed", when=day % 3
        )
        for report in (own, deeper, elsewhere):
            save_report(report, ann.context.store)
        with pytest.raises(CheckFailedError) as told:
            ann.publish()
        assert (
            str(told.value) == "publish: its check failed (level full; level quick for driver 450)"
        )
        publication = gather_publication(
            "small", ann.context, shelf="lab", with_image=False, key=None
        )
        publish(publication, ann.context)
        entry = ann.take().stored.entry
        assert [(one.outcome, one.level, one.target) for one in entry.verdicts] == [
            ("passed", "quick", None),
            ("failed", "full", None),
            ("failed", "quick", "driver 450"),
        ]

    def test_reports_about_one_image_add_up(self, ann: Member, tmp_path: Path) -> None:
        image = publish_image(ann, tmp_path)
        bob = member(tmp_path / "bob", str(tmp_path / "shelf"))
        bob.recipe()
        (bob.folder / "small.sif").write_bytes(image.read_bytes())
        for who, gpu in ((ann, "Tesla V100"), (bob, "NVIDIA A100")):
            claim(who, image, gpu)
            who.publish()
        assert [one.gpu for one in bob.take().stored.entry.verdicts] == [
            ("Tesla V100",),
            ("NVIDIA A100",),
        ]
        assert len(bob.take().reports) == 2

    def test_nobody_signs_what_a_stranger_claimed(self, tmp_path: Path) -> None:
        """Eve may write to the shelf but has no pinned key: her verdict does not come under Ann's signature."""
        key, place = new_key(tmp_path, "key"), str(tmp_path / "shelf")
        ann = member(
            tmp_path / "ann", place, signers=allowed(tmp_path / "allowed", key), require_signed=True
        )
        eve = member(tmp_path / "eve", place)
        for who in (ann, eve):
            who.recipe()
            image = write(
                who.folder / "small.sif", [part(tmp_path / "parts", "base", 1)], lock_of(who)
            )
        claim(ann, image, "Tesla V100")
        ann.publish(key=key)
        claim(eve, image, "NVIDIA H100")
        eve.publish()
        ann.recipe(summary="a better summary")
        ann.publish(key=key)
        entry = ann.take().stored.entry
        assert (entry.number, [one.gpu for one in entry.verdicts]) == (3, [("Tesla V100",)])


@needs("ssh-keygen")
class TestMake:
    """``envbuild make SHELF/NAME`` on a machine that can build nothing: no container runtime, no network."""

    @pytest.fixture
    def lab(self, tmp_path: Path) -> tuple[User, User, Path]:
        key = new_key(tmp_path, "key")
        signers = allowed(tmp_path / "allowed", key)
        shelf = str(tmp_path / "shelf")
        ann = user(tmp_path / "ann", shelf, "--allowed-signers", str(signers), "--require-signed")
        bob = user(tmp_path / "bob", shelf, "--allowed-signers", str(signers), "--require-signed")
        for who in (ann, bob):
            who.env["ENVBUILD_RUNTIME"] = "no-such-runtime"
        path = ann.recipe("small")
        image = write(ann.folder / "small.sif", [part(tmp_path / "parts", "base", 3)], lock_of(ann))
        self._verdict(ann, path, image)
        ann.ok("shelf", "publish", "--image", "--sign", str(key))
        return ann, bob, image

    def _verdict(self, ann: User, path: Path, image: Path) -> None:
        from envbuild.recipe.read import read_recipe

        asked = asked_digest(read_recipe(path)[0], path.parent / "small/check.py")
        report = Report(
            image=str(image), digest=image_digest(image), verdict="passed", findings=(),
            when="2026-01-01T00:00:00+00:00", gpu=("NVIDIA A100-SXM4-40GB",), driver="550.54.15", asked=asked,
        )  # fmt: skip
        save_report(report, Store(ann.store))

    def test_the_lab_s_image_is_taken_with_its_verdict(self, lab: tuple[User, User, Path]) -> None:
        ann, bob, image = lab
        result = bob.succeed("make", "lab/small")
        assert "signed by key@lab" in result.stderr
        assert "0 checks passed" in result.stdout
        assert (bob.folder / "small.sif").read_bytes() == image.read_bytes()
        again = bob.succeed("make", "lab/small")
        assert "small.sif is up to date" in again.stderr
        rows = json.loads(
            bob.ok(
                "shelf",
                "search",
                "--gpu",
                "a100",
                "--framework",
                "torch==2.5",
                "--cuda",
                "12",
                "--json",
            )
        )
        assert [(row["name"], row["image"], row["verdict"]) for row in rows] == [
            ("small", True, "passed 2026-01-01")
        ]
        assert str(ann.folder) not in bob.ok("shelf", "show", "small", "--json"), (
            "no path of the publisher's machine"
        )

    def test_get_brings_recipe_image_and_verdict(self, lab: tuple[User, User, Path]) -> None:
        _, bob, image = lab
        assert bob.ok("shelf", "get", "small", "--image").split()[-1] == "small.sif"
        assert (bob.folder / "small.sif").read_bytes() == image.read_bytes()
        assert "passed 2026-01-01" in bob.ok("list")

    def test_a_verdict_of_nobody_known_is_made_again(
        self, lab: tuple[User, User, Path], tmp_path: Path
    ) -> None:
        """Signed, but by a key that this user has not pinned: the image is checked here, which needs a runtime."""
        carl = user(tmp_path / "carl", str(tmp_path / "shelf"))
        carl.env["ENVBUILD_RUNTIME"] = "no-such-runtime"
        carl.ok("shelf", "get", "small")  # which believes no verdict either
        assert "no-such-runtime" in carl.refused(7, "make", "lab/small")
        assert not (carl.folder / "small.sif").exists()

    def test_require_gpu_is_never_met_by_somebody_else_s_verdict(
        self, lab: tuple[User, User, Path]
    ) -> None:
        _, bob, _ = lab
        bob.refused(7, "make", "lab/small", "--require-gpu")
        assert not (bob.folder / "small.sif").exists()
