"""``app.make`` and its neighbours in this process, on a project of a few files (tests/tiny_build.py)."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import msgspec
import pytest

from envbuild.app.check import describe_project_faults, failed_checks, require_passed
from envbuild.app.dev import add
from envbuild.app.image import find_image, find_recipe_of_image, refuse_old_image
from envbuild.app.lock import LockRequest, describe_lock, update_lock
from envbuild.app.make import MakeRequest, MakeResult, make
from envbuild.app.ready_lock import require_fresh_lock, require_lock, write_own_lock
from envbuild.app.source import project_folder
from envbuild.app.verdict import known_report
from envbuild.build.make import building
from envbuild.check.expected import CheckBasis, asked_digest
from envbuild.check.model import Finding, Report
from envbuild.check.reports.report import save_report
from envbuild.errors import CheckFailedError, StaleLockError, UsageError
from envbuild.formats.sif_reader import image_digest
from envbuild.lock.read import read_lock
from tests.tiny_build import TinyProject

IMPORTS = Finding(check="direct-imports", title="imports", outcome="passed", reason="all import")
FAILED = Finding(check="leaks", title="leaks", outcome="failed", reason="a file of the host")


@pytest.fixture
def tiny(tmp_path: Path) -> TinyProject:
    return TinyProject(tmp_path / "p")


def store_image(tiny: TinyProject) -> str:
    """Put the image into the store, as an earlier make did, and return its digest."""
    spec = dataclasses.replace(tiny.spec("flat"), target=tiny.folder / "earlier.sif")
    with building(spec, tiny.context) as image:
        assert image.built
    return image_digest(spec.target)


def verdict(tiny: TinyProject, digest: str, *findings: Finding, outcome: str = "passed") -> Report:
    """Keep a verdict on an image, as an earlier check did."""
    report = Report(
        image="tiny.sif",
        digest=digest,
        verdict=outcome,  # type: ignore[arg-type]
        findings=findings,
        when="2026-01-01T00:00:00+00:00",
        asked=asked_digest(tiny.source.recipe, None),
    )
    save_report(report, tiny.store)
    return report


def live_elsewhere(tiny: TinyProject) -> None:
    """Give the user another home than the project's folder."""
    settings = dataclasses.replace(tiny.context.settings, home=tiny.folder.parent / "home")
    tiny.context = dataclasses.replace(tiny.context, settings=settings)


def make_tiny(tiny: TinyProject, **asked: object) -> MakeResult:
    return make("tiny", MakeRequest(**asked), tiny.context)  # type: ignore[arg-type]


def test_a_package_whose_image_is_there_already_is_added(
    tiny: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after ``remove --no-make``: no image is made, and the recipe changes all the same."""
    store_image(tiny)
    make_tiny(tiny, check=False)
    path, lock = tiny.source.path, tiny.source.lock
    whole = path.read_text()
    path.write_text(whole.replace(', "beta"', ""))
    lock.unlink()
    monkeypatch.setattr(add, "update_lock", lambda *_: (None, tiny.lock))
    change = add.RecipeChange(add=("beta",), check=False)
    made = add.change_recipe("tiny", change, tiny.context).made
    assert made is not None
    assert not made.changed
    assert (path.read_text(), read_lock(lock)) == (whole, tiny.lock)


class TestMake:
    def test_an_image_of_the_store_is_written_once(self, tiny: TinyProject) -> None:
        digest = store_image(tiny)
        tiny.runtime.scripts.clear()
        first = make_tiny(tiny, check=False)
        assert (first.changed, first.report, first.spec.mode) == (True, None, "flat")
        assert image_digest(tiny.folder / "tiny.sif") == digest
        assert not make_tiny(tiny, check=False).changed
        assert tiny.runtime.scripts == [], "nothing was packed again"

    def test_a_changed_file_is_written_again(self, tiny: TinyProject) -> None:
        digest = store_image(tiny)
        make_tiny(tiny, check=False)
        (tiny.folder / "tiny.sif").write_bytes(b"somebody else's")
        assert make_tiny(tiny, check=False).changed
        assert image_digest(tiny.folder / "tiny.sif") == digest

    def test_a_verdict_of_this_image_is_believed_and_noted_in_the_lock(
        self, tiny: TinyProject
    ) -> None:
        report = verdict(tiny, store_image(tiny), IMPORTS)
        result = make_tiny(tiny)
        assert (result.changed, result.report) == (True, report)
        assert read_lock(tiny.source.lock).proof == "imported"
        again = make_tiny(tiny)
        assert (again.changed, again.report) == (False, report)

    def test_a_verdict_on_another_question_is_none(self, tiny: TinyProject) -> None:
        digest = store_image(tiny)
        verdict(tiny, digest, IMPORTS)
        recipe = tiny.source.recipe
        asks_more = msgspec.structs.replace(
            recipe, check=msgspec.structs.replace(recipe.check, imports=("alpha",))
        )
        path = tiny.folder / "tiny.sif"
        assert known_report(path, digest, tiny.source, tiny.store) is not None
        other = msgspec.structs.replace(tiny.source, recipe=asks_more)
        assert known_report(path, digest, other, tiny.store) is None

    def test_a_failed_verdict_is_not_believed(self, tiny: TinyProject) -> None:
        digest = store_image(tiny)
        verdict(tiny, digest, FAILED, outcome="failed")
        assert known_report(tiny.folder / "x.sif", digest, tiny.source, tiny.store) is None

    def test_whatever_the_check_raises_leaves_no_image(self, tiny: TinyProject) -> None:
        store_image(tiny)
        spec = tiny.spec("flat")
        with contextlib.suppress(CheckFailedError), building(spec, tiny.context) as image:
            assert image.path.is_file()
            raise CheckFailedError("its check failed")
        assert not spec.target.exists()
        assert sorted(path.name for path in tiny.folder.glob(".*.sif")) == []

    def test_a_dry_run_writes_no_image(self, tiny: TinyProject) -> None:
        store_image(tiny)
        assert not make_tiny(tiny, dry_run=True).changed
        assert not (tiny.folder / "tiny.sif").exists()

    def test_a_stale_lock_is_refused(self, tiny: TinyProject) -> None:
        path = tiny.folder / "recipes/tiny.toml"
        path.write_text(path.read_text().replace('"alpha", ', ""))
        with pytest.raises(StaleLockError, match='requirement "alpha" was removed'):
            make_tiny(tiny)

    def test_a_folder_is_no_place_for_an_image(self, tiny: TinyProject) -> None:
        (tiny.folder / "out").mkdir()
        with pytest.raises(UsageError, match="is a folder") as told:
            make_tiny(tiny, output=Path("out"))
        assert told.value.hint == f"-o {tiny.folder}/out/tiny.sif"
        with pytest.raises(UsageError, match="there is no such folder"):
            make_tiny(tiny, output=Path("nowhere/tiny.sif"))


class TestLock:
    def test_a_lock_that_is_there_and_fits(self, tiny: TinyProject) -> None:
        assert require_lock(tiny.source) == require_fresh_lock(tiny.source) == tiny.lock

    def test_no_lock(self, tiny: TinyProject) -> None:
        tiny.source.lock.unlink()
        with pytest.raises(StaleLockError, match="there is no lock yet") as told:
            require_lock(tiny.source)
        assert told.value.hint == "run: envbuild lock tiny"

    def test_no_day(self, tiny: TinyProject) -> None:
        with pytest.raises(UsageError, match="write a day as YYYY-MM-DD"):
            update_lock(tiny.source, LockRequest(as_of="yesterday"), tiny.context)

    def test_envbuilds_own_lock_is_written_into_the_project(self, tiny: TinyProject) -> None:
        shipped = msgspec.structs.replace(
            tiny.source, shipped=True, lock=Path("/usr/share/envbuild/tiny.lock")
        )
        path = write_own_lock(shipped, tiny.lock, tiny.context)
        assert path == tiny.folder / "lockfiles/tiny.lock"
        assert read_lock(path) == tiny.lock

    def test_what_a_new_lock_holds(self, tiny: TinyProject) -> None:
        lines = describe_lock(tiny.lock, tiny.lock, None)
        assert lines[0].startswith("not written: 2 Python and 1 Debian packages, ")
        how = "(envbuild lock --prove, or the check of envbuild make)"
        assert lines[-2:] == [f"  proof: not run {how}", "  no package changed"]


class TestCheck:
    def test_a_failed_check_shows_the_whole_report(self, tiny: TinyProject) -> None:
        report = verdict(tiny, "sha256:" + "1" * 64, IMPORTS, FAILED, outcome="failed")
        assert failed_checks(report) == "leaks"
        with pytest.raises(CheckFailedError, match="tiny: it failed: leaks") as told:
            require_passed(report, "tiny: it failed", "mend it")
        assert "a file of the host" in told.value.details
        assert told.value.code == 1

    def test_what_is_wrong_with_the_project_is_told_and_refuses_no_image(
        self, tiny: TinyProject
    ) -> None:
        own = Finding(
            check="sources",
            title="own",
            outcome="failed",
            reason="train.py:1: it is not called",
            hint="call it",
        )
        told = verdict(tiny, "sha256:" + "2" * 64, IMPORTS, own, outcome="failed")
        require_passed(told, "no", "no")
        assert describe_project_faults(told) == ["own: train.py:1: it is not called\n  call it"]
        both = verdict(tiny, "sha256:" + "3" * 64, FAILED, own, outcome="failed")
        with pytest.raises(CheckFailedError, match="leaks, sources"):
            require_passed(both, "no", "no")

    def test_the_project_is_the_folder_of_an_own_recipe(self, tiny: TinyProject) -> None:
        assert project_folder(tiny.source, tiny.context) is None  # it is the home folder
        live_elsewhere(tiny)
        assert project_folder(tiny.source, tiny.context) == tiny.folder
        shipped = msgspec.structs.replace(tiny.source, shipped=True)
        assert project_folder(shipped, tiny.context) is None
        assert project_folder(None, tiny.context) is None

    @pytest.mark.parametrize("from_bundle", [False, True])
    def test_make_looks_at_the_project_unless_it_is_elsewhere(
        self, tiny: TinyProject, monkeypatch: pytest.MonkeyPatch, from_bundle: bool
    ) -> None:
        asked: list[object] = []

        def remember(_: object, basis: CheckBasis, *__: object) -> Report:
            asked.append(basis.project)
            return verdict(tiny, "sha256:" + "4" * 64, IMPORTS)

        store_image(tiny)
        live_elsewhere(tiny)
        monkeypatch.setattr("envbuild.app.check.check_image", remember)
        make_tiny(tiny, from_bundle=from_bundle)
        assert asked == [None if from_bundle else tiny.folder]

    def test_a_passed_check_raises_nothing(self, tiny: TinyProject) -> None:
        require_passed(verdict(tiny, "sha256:" + "1" * 64, IMPORTS), "no", "no")


class TestImage:
    def test_of_the_only_recipe_by_name_and_by_path(self, tiny: TinyProject) -> None:
        store_image(tiny)
        make_tiny(tiny, check=False)
        path = tiny.folder / "tiny.sif"
        for name in (None, "tiny"):
            found = find_image(name, tiny.context)
            assert (found.path, found.lock, found.old) == (path, tiny.lock, None)
        assert find_image("./earlier.sif", tiny.context).source is None
        assert find_image("earlier", tiny.context).source is None, "no recipe has that name"
        assert find_recipe_of_image("earlier", tiny.context) is None

    def test_not_built_yet_and_no_image(self, tiny: TinyProject) -> None:
        with pytest.raises(UsageError, match="the image of tiny is not built yet"):
            find_image(None, tiny.context)
        with pytest.raises(UsageError, match="there is no such image"):
            find_image("./other.sif", tiny.context)
        (tiny.folder / "tiny.sif").write_bytes(b"text")
        with pytest.raises(UsageError, match="this is not an image, or it is damaged"):
            find_image("tiny", tiny.context)

    def test_of_another_lock(self, tiny: TinyProject) -> None:
        store_image(tiny)
        make_tiny(tiny, check=False)
        changed = msgspec.structs.replace(tiny.lock, python=tiny.lock.python[:1])
        write_own_lock(tiny.source, changed, tiny.context)
        found = find_image("tiny", tiny.context)
        assert found.old is not None
        assert found.old.reason == "it was made from another lock than tiny.lock"
        with pytest.raises(StaleLockError) as told:
            refuse_old_image(found, "--stale submits it as it is")
        assert told.value.hint == "envbuild make tiny\n--stale submits it as it is"
