"""Nothing wrong is accepted: signatures, tampering, swapped and rolled-back entries."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.check.model import Report
from envbuild.errors import EnvbuildError, IntegrityError, UsageError
from envbuild.shelf.backend import object_path, signature_path, slot_path
from envbuild.shelf.folder import FolderBackend
from envbuild.shelf.model import CheckSummary, Entry, ImageDescriptor, read_entry, write_entry
from envbuild.shelf.signatures import read_signers
from envbuild.store.hashing import digest_of
from tests.shelf.people import Member, allowed, member, new_key
from tests.support import needs

pytestmark = needs("ssh-keygen", "git")
IMAGE = f"sha256:{'5' * 64}"
ENTRY = Entry(
    schema=1, name="small", number=1, previous=None, who="ann", when="2026-11-01T00:00:00Z", envbuild="0.1.0",
    recipe=IMAGE, lock=IMAGE, locked=IMAGE, definition=IMAGE, image=ImageDescriptor(digest=IMAGE, sha256=IMAGE, size=1),
)  # fmt: skip


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return {name: new_key(folder, name) for name in ("ann", "eve", "old")}


def lab(
    tmp_path: Path, place: str, keys: dict[str, Path], options: str = 'namespaces="envbuild"'
) -> tuple[Member, Member]:
    """Ann, who publishes, and Bob, who takes; both know Ann's key and want signatures."""
    signers = allowed(tmp_path / "allowed", keys["ann"], options=options)
    ann = member(tmp_path / "ann", place, signers=signers, require_signed=True)
    return ann, member(tmp_path / "bob", place, signers=signers, require_signed=True)


class TestSignatures:
    def test_a_signed_entry_is_taken_and_says_by_whom(
        self, place: str, tmp_path: Path, keys: dict[str, Path]
    ) -> None:
        ann, bob = lab(tmp_path, place, keys)
        ann.recipe()
        ann.publish(key=keys["ann"])
        signer = bob.take().signer
        assert signer is not None
        assert signer.principal == "ann@lab"
        assert signer.key.startswith("ED25519 key SHA256:")

    def test_an_unsigned_one_is_refused_where_signatures_are_required(
        self, place: str, tmp_path: Path, keys: dict[str, Path]
    ) -> None:
        _, bob = lab(tmp_path, place, keys)
        eve = member(tmp_path / "eve", place)
        eve.recipe()
        eve.publish()
        with pytest.raises(
            IntegrityError, match="entry 1 is not signed, and only signed ones are taken"
        ):
            bob.take()

    def test_one_must_sign_to_publish_there(self, tmp_path: Path, keys: dict[str, Path]) -> None:
        ann, _ = lab(tmp_path, str(tmp_path / "shelf"), keys)
        ann.recipe()
        with pytest.raises(UsageError, match="takes signed entries only"):
            ann.publish()

    def test_an_unknown_key_is_refused_and_named(
        self, place: str, tmp_path: Path, keys: dict[str, Path]
    ) -> None:
        _, bob = lab(tmp_path, place, keys)
        eve = member(tmp_path / "eve", place, signers=allowed(tmp_path / "hers", keys["eve"]))
        eve.recipe()
        eve.publish(key=keys["eve"])
        with pytest.raises(
            IntegrityError, match=r"it is signed by an unknown key: ED25519 key SHA256:\S+"
        ):
            bob.take()

    def test_nobody_publishes_what_others_would_refuse(
        self, tmp_path: Path, keys: dict[str, Path]
    ) -> None:
        ann, _ = lab(tmp_path, str(tmp_path / "shelf"), keys)
        ann.recipe()
        with pytest.raises(IntegrityError, match="unknown key"):
            ann.publish(key=keys["eve"])
        assert not ann.library.numbers

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (
                'valid-before="20200101"',
                'signed by ann@lab with a key that is not valid today, or not for this: valid-before="20200101"',
            ),
            ('valid-after="20990101"', "not valid today"),
            ('namespaces="git"', r'not for this: namespaces="git"$'),
        ],
        ids=["expired", "not yet", "another purpose"],
    )
    def test_a_key_that_does_not_hold_is_told_from_an_unknown_one(
        self, options: str, expected: str, tmp_path: Path, keys: dict[str, Path]
    ) -> None:
        place = str(tmp_path / "shelf")
        ann, _ = lab(tmp_path, place, keys)
        ann.recipe()
        ann.publish(key=keys["ann"])
        signers = allowed(tmp_path / "signers", keys["ann"], options=options)
        carl = member(tmp_path / "carl", place, signers=signers, require_signed=True)
        with pytest.raises(IntegrityError, match=expected):
            carl.take()

    def test_an_entry_is_signed_again_with_a_new_key(
        self, tmp_path: Path, keys: dict[str, Path]
    ) -> None:
        place = str(tmp_path / "shelf")
        ann, _ = lab(tmp_path, place, keys)
        ann.recipe()
        ann.publish(key=keys["ann"])
        again = member(
            tmp_path / "ann",
            place,
            signers=allowed(tmp_path / "new", keys["old"]),
            require_signed=True,
        )
        again.publish(key=keys["old"])
        again.publish(key=keys["old"])
        assert again.take().stored.entry.number == 2

    def test_a_signature_for_another_purpose_is_refused(
        self, tmp_path: Path, keys: dict[str, Path]
    ) -> None:
        """What ann signed for git cannot be put beside an entry."""
        _ann, bob = lab(tmp_path, str(tmp_path / "shelf"), keys)
        eve = member(tmp_path / "eve", str(tmp_path / "shelf"))
        eve.recipe()
        eve.publish()
        stored = eve.take().stored
        entry = tmp_path / "shelf" / slot_path(stored.entry.slot)
        import subprocess

        done = subprocess.run(
            ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", str(keys["ann"])],
            input=entry.read_bytes(), capture_output=True, check=True,
        )  # fmt: skip
        path = tmp_path / "shelf" / signature_path(stored.digest)
        path.parent.mkdir()
        path.write_bytes(done.stdout)
        with pytest.raises(IntegrityError, match='signed for another purpose than "envbuild"'):
            bob.take()

    def test_a_key_that_needs_a_passphrase_says_how(
        self, tmp_path: Path, keys: dict[str, Path]
    ) -> None:
        import subprocess

        ann, _ = lab(tmp_path, str(tmp_path / "shelf"), keys)
        ann.recipe()
        locked = tmp_path / "locked"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(locked)], check=True
        )
        with pytest.raises(UsageError, match="cannot be signed with") as caught:
            ann.publish(key=locked)
        assert "ssh-add" in str(caught.value.hint)

    @pytest.mark.parametrize("text", ["", "# nobody\n", "ann@lab\n", "ssh-ed25519 AAAAC3Nz\n"])
    def test_a_file_that_names_no_key_is_refused(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "signers"
        path.write_text(text)
        with pytest.raises(UsageError, match="no key"):
            read_signers(path)

    def test_the_pinned_file_is_a_copy_that_must_not_vanish(
        self, tmp_path: Path, keys: dict[str, Path]
    ) -> None:
        ann, _ = lab(tmp_path, str(tmp_path / "shelf"), keys)
        (tmp_path / "allowed").unlink()
        ann.recipe()
        ann.publish(key=keys["ann"])
        assert ann.take().signer is not None
        next((tmp_path / "ann").rglob("lab.signers")).unlink()
        with pytest.raises(UsageError, match="cannot be read"):
            ann.take()


def rewrite(shelf: Path, change: Callable[[Entry], Entry]) -> None:
    """Change the entry on the shelf, with a name that fits its bytes."""
    path = shelf / slot_path("small.000001")
    path.write_bytes(write_entry(change(read_entry(path.read_bytes(), "test"))))


def change_object(shelf: Path, field: str, data: bytes) -> None:
    entry = read_entry((shelf / slot_path("small.000001")).read_bytes(), "test")
    (shelf / object_path(getattr(entry, field))).write_bytes(data)


def swap_object(shelf: Path, field: str, change: Callable[[bytes], bytes]) -> None:
    """Change what an entry names, and the entry with it: only a signature or a rule tells."""
    path = shelf / slot_path("small.000001")
    entry = read_entry(path.read_bytes(), "test")
    data = change((shelf / object_path(getattr(entry, field))).read_bytes())
    target = shelf / object_path(digest_of(data))
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(data)
    path.write_bytes(write_entry(msgspec.structs.replace(entry, **{field: digest_of(data)})))


def _append(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _link(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()
    path.with_name("elsewhere").write_bytes(data)
    path.symlink_to("elsewhere")


def _pipe(path: Path) -> None:
    import os

    path.unlink()
    os.mkfifo(path)


def _giant(path: Path) -> None:
    with path.open("ab") as out:
        out.truncate(1 << 30)


def _other_signature(shelf: Path) -> None:
    other = next(path for path in (shelf / "signatures").iterdir() if path.stat().st_size)
    rewrite(shelf, lambda e: msgspec.structs.replace(e, when="2031-01-01T00:00:00Z"))
    data = (shelf / slot_path("small.000001")).read_bytes()
    (shelf / signature_path(digest_of(data))).write_bytes(other.read_bytes())


TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "lock": (
        lambda s: change_object(s, "lock", b"schema = 1\n"),
        "its lock was changed on the shelf",
    ),
    "recipe": (
        lambda s: change_object(s, "recipe", b"[recipe]\n"),
        "its recipe was changed on the shelf",
    ),
    "definition": (
        lambda s: change_object(s, "definition", b"x"),
        "its definition was changed on the shelf",
    ),
    "script": (
        lambda s: change_object(s, "script", b"import os\n"),
        "its check script was changed on the shelf",
    ),
    "object gone": (lambda s: shutil.rmtree(s / "objects"), "is missing"),
    "not canonical": (
        lambda s: _append(s / slot_path("small.000001"), b" "),
        "is not written as envbuild writes it",
    ),
    "cut off": (lambda s: _cut(s / slot_path("small.000001")), "is damaged"),
    "no JSON": (
        lambda s: (s / slot_path("small.000001")).write_bytes(b"[" * 100_000),
        "is damaged",
    ),
    "other name": (
        lambda s: (s / slot_path("small.000001")).rename(s / slot_path("other.000001")),
        "put under another name",
    ),
    "unknown key": (
        lambda s: (s / slot_path("small.000001")).write_bytes(b'{"schema":1,"run":"rm -rf /"}\n'),
        "is damaged",
    ),
    "a link": (lambda s: _link(s / slot_path("small.000001")), "is a link"),
    "a pipe": (lambda s: _pipe(s / slot_path("small.000001")), "is no file"),
    "a giant": (lambda s: _giant(s / slot_path("small.000001")), "larger than"),
    "swapped image": (
        lambda s: rewrite(
            s,
            lambda e: msgspec.structs.replace(
                e, image=ImageDescriptor(digest=IMAGE, sha256=IMAGE, size=1)
            ),
        ),
        "signed|signature",
    ),
    "swapped lock": (
        lambda s: swap_object(s, "lock", lambda b: b.replace(b"1.16.0", b"1.17.0")),
        "signed|signature",
    ),
    "swapped script": (
        lambda s: swap_object(s, "script", lambda b: b + b"import os\n"),
        "signed|signature",
    ),
    "swapped name": (
        lambda s: rewrite(s, lambda e: msgspec.structs.replace(e, who="mallory")),
        "signed|signature",
    ),
    "verdict": (
        lambda s: rewrite(
            s,
            lambda e: msgspec.structs.replace(
                e,
                verdicts=(
                    CheckSummary(
                        report=e.lock, outcome="passed", level="soak", when=e.when, gpu=("H100",)
                    ),
                ),
            ),
        ),
        "signed|signature",
    ),
    "signature": (
        lambda s: next((s / "signatures").iterdir()).write_bytes(
            b"-----BEGIN SSH SIGNATURE-----\n"
        ),
        "none",
    ),
    "signature gone": (lambda s: next((s / "signatures").iterdir()).unlink(), "is not signed"),
    "signature of another": (_other_signature, "signature is none"),
}


class TestTampering:
    @pytest.mark.parametrize("fault", sorted(TAMPERED))
    def test_is_refused_with_what_is_wrong(
        self, fault: str, tmp_path: Path, keys: dict[str, Path]
    ) -> None:
        ann, bob = lab(tmp_path, str(tmp_path / "shelf"), keys)
        ann.recipe()
        ann.publish(key=keys["ann"])
        spoil, expected = TAMPERED[fault]
        spoil(tmp_path / "shelf")
        with pytest.raises(IntegrityError, match=expected) as caught:
            bob.take("other" if fault == "other name" else "small")
        assert caught.value.code == 6
        assert caught.value.where

    def test_a_damaged_entry_does_not_hide_the_others_from_a_search(self, tmp_path: Path) -> None:
        from envbuild.shelf.search import search_entries

        ann = member(tmp_path / "ann", str(tmp_path / "shelf"))
        for name in ("small", "tiny"):
            ann.recipe(name)
            ann.publish(name)
        _cut(tmp_path / "shelf" / slot_path("small.000001"))
        states = {row.name: row.state[:8] for row in search_entries([ann.library])}
        assert states == {"small": "refused:", "tiny": ""}


class TestContradictions:
    """An entry that was made to fit its bytes, on a shelf without signatures: what contradicts itself is refused."""

    def _spoilt(self, tmp_path: Path, spoil: Callable[[Path], object]) -> EnvbuildError:
        ann = member(tmp_path / "ann", str(tmp_path / "shelf"))
        ann.recipe()
        ann.publish()
        spoil(tmp_path / "shelf")
        bob = member(tmp_path / "bob", str(tmp_path / "shelf"))
        with pytest.raises(EnvbuildError) as caught:
            bob.take()
        return caught.value

    @pytest.mark.parametrize(
        ("part", "before", "after", "expected"),
        [
            ("recipe", b"six==1.16.0", b"six==1.17.0", "is no lock of this recipe: requirement"),
            (
                "lock",
                b"docker://example.invalid",
                b"docker://evil.invalid",
                "starts from 'docker://evil.invalid/lab/torch:2.5', which the recipe does not",
            ),
            ("lock", b"11053", b"11054", "its card does not match its recipe and lock"),
            ("recipe", b'name = "small"', b'name = "other"', "holds the recipe of 'other'"),
        ],
        ids=["other requirements", "another base", "another digest", "another name"],
    )
    def test_a_recipe_and_a_lock_that_do_not_belong_together(
        self, part: str, before: bytes, after: bytes, expected: str, tmp_path: Path
    ) -> None:
        def spoil(shelf: Path) -> None:
            swap_object(shelf, part, lambda data: data.replace(before, after))

        told = self._spoilt(tmp_path, spoil)
        assert isinstance(told, IntegrityError)
        assert expected in told.what

    @pytest.mark.parametrize("field", ["digest", "verdict"])
    def test_a_verdict_about_something_else(self, field: str, tmp_path: Path) -> None:
        """A report about another image, or one that failed where the gist says passed."""
        report = Report(
            image="small.sif",
            digest=IMAGE,
            verdict="failed",
            findings=(),
            when="2026-01-01T00:00:00+00:00",
        )
        data = msgspec.json.encode(report)

        def spoil(shelf: Path) -> None:
            target = shelf / object_path(digest_of(data))
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
            image = f"sha256:{'6' * 64}" if field == "digest" else IMAGE
            said = CheckSummary(
                report=digest_of(data),
                outcome="passed" if field == "verdict" else "failed",
                level="quick",
                when=report.when,
            )
            weight = ImageDescriptor(digest=image, sha256=image, size=1)
            rewrite(shelf, lambda e: msgspec.structs.replace(e, image=weight, verdicts=(said,)))

        assert (
            "a verdict of it is about another image, or does not match its report"
            in self._spoilt(tmp_path, spoil).what
        )

    def test_an_entry_of_a_newer_schema_asks_for_an_update(self, tmp_path: Path) -> None:
        def spoil(shelf: Path) -> None:
            (shelf / slot_path("small.000001")).write_bytes(b'{"schema":2}\n')

        told = self._spoilt(tmp_path, spoil)
        assert isinstance(told, UsageError)
        assert told.hint == "update envbuild"


def rewrite_entry(path: Path) -> None:
    """Let somebody else have written an entry."""
    entry = msgspec.structs.replace(read_entry(path.read_bytes(), ""), who="mallory")
    path.write_bytes(write_entry(entry))


class TestHistory:
    def _two(self, tmp_path: Path) -> tuple[Member, Member, Path]:
        ann, bob = (member(tmp_path / name, str(tmp_path / "shelf")) for name in ("ann", "bob"))
        for summary in ("first", "second"):
            ann.recipe(summary=summary)
            ann.publish()
        return ann, bob, tmp_path / "shelf"

    def test_a_rolled_back_name_is_refused(self, tmp_path: Path) -> None:
        ann, bob, shelf = self._two(tmp_path)
        assert bob.take().recipe.recipe.summary == "second"
        (shelf / slot_path("small.000002")).unlink()
        with pytest.raises(IntegrityError, match=r"its history was changed: its entry 2 is gone"):
            bob.take()
        with pytest.raises(IntegrityError, match="its history was changed"):
            ann.publish()  # whoever published it does not continue what was rolled back either

    def test_a_name_that_vanished_is_no_unknown_name(self, tmp_path: Path) -> None:
        _, bob, shelf = self._two(tmp_path)
        bob.take()
        for path in (shelf / "names").iterdir():
            path.unlink()
        with pytest.raises(IntegrityError, match="its entry 1 is gone, which was there before"):
            bob.take()

    def test_a_replaced_entry_is_refused(self, tmp_path: Path) -> None:
        _, bob, shelf = self._two(tmp_path)
        bob.take()
        rewrite_entry(shelf / slot_path("small.000002"))
        with pytest.raises(
            IntegrityError, match="entry 2 is another one than was verified here before"
        ):
            bob.take()

    def test_a_rewritten_past_is_refused(self, tmp_path: Path) -> None:
        _, bob, shelf = self._two(tmp_path)
        rewrite_entry(shelf / slot_path("small.000001"))
        with pytest.raises(IntegrityError, match="entry 2 does not continue entry 1"):
            bob.take()

    def test_a_forced_push_is_seen(self, tmp_path: Path) -> None:
        import subprocess

        from tests.shelf.people import bare

        place = bare(tmp_path / "shelf.git")
        ann, bob = (member(tmp_path / name, place) for name in ("ann", "bob"))
        for summary in ("first", "second"):
            ann.recipe(summary=summary)
            ann.publish()
        bob.take()
        subprocess.run(
            ["git", "-C", place, "update-ref", "refs/heads/main", "refs/heads/main~1"], check=True
        )
        with pytest.raises(IntegrityError, match="its entry 2 is gone"):
            bob.take()
        subprocess.run(["git", "-C", place, "update-ref", "-d", "refs/heads/main"], check=True)
        with pytest.raises(EnvbuildError, match="no branch main"):
            bob.take()

    def test_a_shelf_begun_anew_is_accepted_only_when_told(self, tmp_path: Path) -> None:
        from envbuild.shelf.last_verified import last_verified_of

        _, bob, shelf = self._two(tmp_path)
        bob.take()
        for path in (shelf / "names").iterdir():
            path.unlink()
        carl = member(tmp_path / "carl", str(shelf))
        carl.recipe(summary="anew")
        carl.publish()
        with pytest.raises(IntegrityError, match="its history was changed"):
            bob.take()
        last_verified_of(str(shelf), bob.settings).forget_all()
        assert bob.take().recipe.recipe.summary == "anew"

    def test_one_entry_of_the_history_is_named_by_its_digest(self, tmp_path: Path) -> None:
        ann, bob, _ = self._two(tmp_path)
        first = ann.library.history("small")[0].digest
        assert bob.take(digest=first[7:15]).recipe.recipe.summary == "first"
        for wrong in ("abc", "sha256:zzzzzzzz", "0" * 64):
            with pytest.raises(UsageError, match=r"names no entry|no entries"):
                bob.take(digest=wrong)

    def test_a_damaged_memory_is_told(self, tmp_path: Path) -> None:
        _, bob, _ = self._two(tmp_path)
        bob.take()
        bob.library.last_verified.path.write_bytes(b"{")
        with pytest.raises(IntegrityError, match="is damaged"):
            bob.take()


def test_objects_are_repaired_by_publishing_the_same_again(tmp_path: Path) -> None:
    ann = member(tmp_path / "ann", str(tmp_path / "shelf"))
    ann.recipe()
    ann.publish()
    change_object(tmp_path / "shelf", "lock", b"broken")
    ann.recipe(summary="another summary, the same lock")
    ann.publish()
    assert ann.take().recipe.recipe.summary == "another summary, the same lock"
    backend = ann.library.backend
    assert isinstance(backend, FolderBackend)


def test_what_is_signed_is_the_entry_and_through_it_everything(tmp_path: Path) -> None:
    """The one string that is signed names name, recipe, lock, definition, script, image and verdicts."""
    ann = member(tmp_path / "ann", str(tmp_path / "shelf"))
    ann.recipe()
    ann.publish()
    told = json.loads(ann.take().stored.data)
    assert {
        "name",
        "number",
        "previous",
        "recipe",
        "lock",
        "definition",
        "script",
        "image",
        "verdicts",
    } <= set(told)


@given(
    data=st.binary(max_size=300),
    at=st.integers(0, 2000),
    mode=st.sampled_from(["alone", "inside", "cut"]),
)
def test_whatever_bytes_an_entry_has_it_is_read_or_refused(data: bytes, at: int, mode: str) -> None:
    """The law: read_entry gives an entry that is written as these very bytes, or one of two errors."""
    good = write_entry(ENTRY)
    at %= len(good)
    raw = {"alone": data, "inside": good[:at] + data + good[at + len(data) :], "cut": good[:at]}[
        mode
    ]
    with contextlib.suppress(IntegrityError, UsageError):
        assert write_entry(read_entry(raw, "test")) == raw
