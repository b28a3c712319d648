"""The proof by import: a bounded search over versions and dates, on stories, and once for real with tiny wheels."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from envbuild.cli import run_cli
from envbuild.errors import NoSolutionError, ToolFailedError
from envbuild.lock.decide.import_search import (
    Failure,
    ImportSearch,
    SearchBounds,
    carry_proof,
    older_releases,
    step_indexes,
    suspects,
)
from envbuild.lock.model import Lock, LockedBase, Packer, PythonPackage
from tests.project import Project
from tests.support import needs

ZERO = "sha256:" + "0" * 64


def lock_of(**versions: str) -> Lock:
    """A lock of the project's packages, on TensorFlow 2.1."""
    python = tuple(
        PythonPackage(
            name=name.replace("_", "-"), version=version, group="project",
            file=f"{name}-{version}-py3-none-any.whl", size=1, sha256="0" * 64,
        )
        for name, version in sorted(versions.items())
    )  # fmt: skip
    base = LockedBase(
        reference="base.sif", digest=ZERO, facts=ZERO, python="3.6.9", machine="x86_64", glibc="2.27",
        created="2020-01-08", epoch=0, framework="tensorflow-gpu 2.1.0",
    )  # fmt: skip
    packer = Packer(name="mksquashfs", version="4.5", compressor="zstd", level=3)
    return Lock(
        schema=1, name="story", platform="linux/amd64", recipe_digest=ZERO, proof="not run", direct=("course",),
        base=base, packer=packer, python=python,
    )  # fmt: skip


class Story:
    """A world in which imports fail by a rule; ``ticks`` seconds pass with every build."""

    def __init__(
        self,
        releases: dict[str, tuple[str, ...]],
        fails: Callable[[dict[str, str]], tuple[Failure, ...]],
    ) -> None:
        self.known = releases
        self.fails = fails
        self.now = 0.0
        self.ticks = 10.0
        self.dated: dict[str, dict[str, str]] = {}
        self.unsolvable: set[str] = set()

    def clock(self) -> float:
        return self.now

    def relock(self, bounds: SearchBounds, old: Lock) -> Lock:
        versions = {p.name: p.version for p in old.python}
        if bounds.as_of:
            versions |= self.dated[bounds.as_of]
        for constraint in bounds.constraints:
            name, _, limit = constraint.partition("<=")
            if constraint in self.unsolvable:
                raise NoSolutionError(
                    f"the requirements have no solution on this base\n- {constraint} clashes"
                )
            allowed = [v for v in self.known[name] if number(v) <= number(limit)]
            versions[name] = (
                max(allowed, key=number)
                if number(versions[name]) > number(limit)
                else versions[name]
            )
        return lock_of(**{name.replace("-", "_"): version for name, version in versions.items()})

    def imports(self, lock: Lock) -> tuple[Failure, ...]:
        self.now += self.ticks
        return self.fails({p.name: p.version for p in lock.python})

    def releases(self, package: PythonPackage) -> tuple[str, ...]:
        return self.known[package.name]


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def minors(count: int) -> tuple[str, ...]:
    return tuple(f"1.{minor}" for minor in range(count))


def broken_from(
    limit: int, error: str = "ImportError: needs TensorFlow 2.2"
) -> Callable[[dict[str, str]], tuple[Failure, ...]]:
    """course imports engine, which fails from a release on."""

    def fails(versions: dict[str, str]) -> tuple[Failure, ...]:
        bad = number(versions["engine"])[1] >= limit
        return (Failure(module="course", error=error, blame=("engine", "course")),) if bad else ()

    return fails


def search(story: Story, **given: object) -> ImportSearch:
    return ImportSearch(lab=story, clock=story.clock, **given)  # type: ignore[arg-type]


def test_a_lock_that_imports_is_proved_at_once() -> None:
    story = Story({}, lambda _: ())
    hunt = search(story)
    lock = hunt.run(lock_of(course="1.0", engine="1.3"))
    assert lock.proof == "imported"
    assert [str(trial) for trial in hunt.trials] == ["as resolved: all imported (10 s)"]


def test_the_culprit_is_walked_back_to_its_newest_release_that_imports() -> None:
    story = Story({"engine": minors(10), "course": ("1.0",)}, broken_from(5))
    hunt = search(story)
    lock = hunt.run(lock_of(course="1.0", engine="1.9"))
    assert {p.name: p.version for p in lock.python} == {"course": "1.0", "engine": "1.4"}
    assert [str(trial.bounds) for trial in hunt.trials] == [
        "as resolved", "engine<=1.8", "engine<=1.6", "engine<=1.2", "engine<=1.4", "engine<=1.5",
    ]  # fmt: skip
    assert lock.notes == (
        "engine 1.4: newer ones fail to import on tensorflow-gpu 2.1.0 (course: ImportError: needs TensorFlow 2.2)",
    )
    (hold,) = lock.held_back
    assert (hold.name, hold.version, hold.newest) == ("engine", "1.4", "1.9")


@given(st.integers(2, 40), st.data())
def test_any_single_culprit_is_found_at_its_newest_good_release(
    count: int, data: st.DataObject
) -> None:
    """Law: where old releases import and new ones do not, the newest that imports is locked, in few builds."""
    limit = data.draw(st.integers(1, count - 1))
    story = Story({"engine": minors(count), "course": ("1.0",)}, broken_from(limit))
    hunt = search(story)
    lock = hunt.run(lock_of(course="1.0", engine=f"1.{count - 1}"))
    assert next(p.version for p in lock.python if p.name == "engine") == f"1.{limit - 1}"
    assert len(hunt.trials) <= 2 + 2 * count.bit_length()


def test_two_culprits_one_after_the_other() -> None:
    def fails(versions: dict[str, str]) -> tuple[Failure, ...]:
        found = broken_from(3)(versions)
        if number(versions["keras"])[1] >= 2:
            found += (
                Failure(
                    module="keras",
                    error="ImportError: Keras requires TensorFlow 2.2",
                    blame=("keras",),
                ),
            )
        return found

    story = Story({"engine": minors(5), "keras": minors(4), "course": ("1.0",)}, fails)
    lock = search(story).run(lock_of(course="1.0", engine="1.4", keras="1.3"))
    assert {p.name: p.version for p in lock.python} == {
        "course": "1.0",
        "engine": "1.2",
        "keras": "1.1",
    }
    assert [note.split(":")[0] for note in lock.notes] == ["engine 1.2", "keras 1.1"]


def test_the_next_in_the_traceback_is_tried_when_the_nearest_does_not_help() -> None:
    def fails(versions: dict[str, str]) -> tuple[Failure, ...]:
        bad = number(versions["course"])[1] >= 2
        return (
            (Failure(module="course", error="TypeError", blame=("engine", "course")),)
            if bad
            else ()
        )

    story = Story({"engine": minors(3), "course": minors(4)}, fails)
    lock = search(story).run(lock_of(course="1.3", engine="1.2"))
    assert {p.name: p.version for p in lock.python} == {"course": "1.1", "engine": "1.2"}


def test_a_date_where_no_version_helps() -> None:
    def fails(versions: dict[str, str]) -> tuple[Failure, ...]:
        both = versions["engine"] == "1.0" and versions["course"] == "1.0"
        return () if both else (Failure(module="course", error="no", blame=("engine", "course")),)

    story = Story({"engine": minors(2), "course": minors(2)}, fails)
    story.dated = {
        "2020-04-07": {"engine": "1.1"},
        "2020-02-07": {"engine": "1.0", "course": "1.0"},
    }
    lock = search(story, dates=("2020-04-07", "2020-02-07")).run(
        lock_of(course="1.1", engine="1.1")
    )
    assert {p.name: p.version for p in lock.python} == {"course": "1.0", "engine": "1.0"}
    assert lock.notes == ("resolved as of 2020-02-07: later packages fail to import (course: no)",)


def test_what_was_tried_is_told_when_nothing_helps() -> None:
    story = Story({"engine": minors(2), "course": ("1.0",)}, broken_from(0))
    with pytest.raises(NoSolutionError) as caught:
        search(story).run(lock_of(course="1.0", engine="1.1"))
    assert caught.value.what == (
        "no lock was found whose dependencies import (course: ImportError: needs TensorFlow 2.2); 2 tried in 20 s\n"
        "- as resolved: course: ImportError: needs TensorFlow 2.2 (10 s)\n"
        "- engine<=1.0: course: ImportError: needs TensorFlow 2.2 (10 s)"
    )
    assert caught.value.code == 3


def test_the_budget_ends_a_search() -> None:
    story = Story({"engine": minors(200), "course": ("1.0",)}, broken_from(1))
    with pytest.raises(NoSolutionError, match=r"3 tried in 30 s; the budget of 25 s is used up"):
        search(story, seconds=25).run(lock_of(course="1.0", engine="1.199"))


def test_the_budget_takes_what_is_good_enough() -> None:
    """Once a release imports, a spent budget ends the halving, not the search."""
    story = Story({"engine": minors(10), "course": ("1.0",)}, broken_from(5))
    lock = search(story, seconds=40).run(lock_of(course="1.0", engine="1.9"))
    assert next(p.version for p in lock.python if p.name == "engine") == "1.2"


def test_no_solution_ends_the_walk_of_one_culprit() -> None:
    story = Story({"engine": minors(9), "course": minors(2)}, broken_from(1))
    story.unsolvable = {"engine<=1.5"}
    hunt = search(story)
    with pytest.raises(NoSolutionError, match=r"engine<=1\.5: engine<=1\.5 clashes"):
        hunt.run(lock_of(course="1.1", engine="1.8"))
    assert not [
        trial
        for trial in hunt.trials
        if "1.1" in str(trial.bounds) and "engine" in str(trial.bounds)
    ]


def test_only_the_projects_packages_are_culprits() -> None:
    lock = lock_of(course="1.0", engine="1.0")
    failure = Failure(
        module="course", error="", blame=("tensorflow-gpu", "engine", "engine", "course")
    )
    assert [p.name for p in suspects(failure, lock)] == ["engine", "course"]
    assert suspects(Failure(module="course", error="killed"), lock) == ()


def test_of_a_frameworks_packages_those_without_gpu_code_are_culprits() -> None:
    lock = lock_of(fsspec="2026.1", torch="2.5.1", triton="3.1", course="1.0")
    brought = {"fsspec": ("torch",), "triton": ("torch",), "torch": ("(direct)",)}
    python = tuple(
        msgspec.structs.replace(package, group="framework", via=brought[package.name])
        if package.name in brought
        else package
        for package in lock.python
    )
    failure = Failure(module="course", error="", blame=("triton", "fsspec", "torch", "course"))
    found = suspects(failure, msgspec.structs.replace(lock, python=python))
    assert [package.name for package in found] == ["fsspec", "course"]


def test_older_releases() -> None:
    assert older_releases("2.0", ("2.1", "2.0", "1.9", "1.10", "2.0rc1", "what", "1.9.post1")) == (
        "1.10",
        "1.9.post1",
        "1.9",
    )


@given(st.integers(0, 500))
def test_steps_begin_at_the_newest_and_end_at_the_oldest(count: int) -> None:
    found = list(step_indexes(count))
    assert found == sorted(set(found))
    assert found[:1] == ([0] if count else [])
    assert found[-1:] == ([count - 1] if count else [])


def test_a_proof_is_carried_over_only_to_the_same_files() -> None:
    old = msgspec.structs.replace(
        lock_of(engine="1.4"), proof="imported", notes=("engine 1.4: newer ones fail",)
    )
    assert carry_proof(old, lock_of(engine="1.4")) == old
    assert carry_proof(old, lock_of(engine="1.5")).proof == "not run"
    assert (
        carry_proof(msgspec.structs.replace(old, proof="not run"), lock_of(engine="1.4")).notes
        == ()
    )


def wheel(folder: Path, name: str, version: str, code: str, requires: str = "") -> None:
    """Write a wheel with one module into a PEP 503 index."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    members = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    members[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*members, f"{info}/RECORD"))
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in members.items():
            archive.writestr(zipfile.ZipInfo(path, (2024, 1, 1, 0, 0, 0)), text)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with (place / "index.html").open("a") as page:
        page.write(f'<a href="{file.name}#sha256={digest}">{file.name}</a>\n')


RECIPE = """\
[recipe]
name = "story"

[base]
bootstrap = "debian:bookworm"

[python]
dependencies = ["course"]
indexes = ["lab"]
"""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["lock", "x", "--prove", "--facts", "f.json"],
            "--prove builds the image, which --facts does without",
        ),
        (["lock", "x", "--budget", "60"], "--budget bounds a proof, and none is asked for"),
        (
            ["lock", "x", "--no-proof", "--budget", "60"],
            "--budget bounds a proof, and none is asked for",
        ),
        (
            ["make", "x", "--no-proof", "--budget", "60"],
            "--budget bounds a proof, and --no-proof leaves it out",
        ),
        (["make", "x", "--budget", "-1"], "-1.0 is not in the range x>0"),
    ],
)
def test_options_that_contradict_each_other(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.live
@needs("apptainer", "mmdebstrap", "mksquashfs")
def test_tiny_wheels_that_fail_to_import(tmp_path: Path) -> None:
    """engine fails from 1.3 on, which no metadata says: make finds 1.2, locks it, and says why."""
    project = Project(tmp_path / "p")
    index = tmp_path / "index"
    wheel(index, "course", "1.0", "import engine\n", "engine>=1.0")
    for minor in range(5):
        sick = (
            "raise ImportError('Keras requires TensorFlow 2.2 or higher')\n"
            if minor >= 3
            else "fine = True\n"
        )
        wheel(index, "engine", f"1.{minor}", sick)
    project.write("home/.config/envbuild/config.toml", f'[indexes]\nlab = "{index.as_uri()}"\n')
    project.write("recipes/story.toml", RECIPE)

    unproved = project.succeed("lock", "story", "--no-proof")
    assert (
        "proof: not run (envbuild lock --prove, or the check of envbuild make)" in unproved.stderr
    )
    lock = project.folder / "lockfiles/story.lock"
    assert tomli.loads(lock.read_text())["proof"] == "not run"
    failed = project.run("make", "story")
    assert failed.code == 1
    assert "direct-imports" in failed.stderr
    assert "envbuild lock --prove story" in failed.stderr

    lock.unlink()
    made = project.succeed("make", "story")
    text = lock.read_text()
    data = tomli.loads(text)
    assert data["proof"] == "imported"
    assert {row["name"]: row["version"] for row in data["python"]}["engine"] == "1.2"
    assert any(
        note.startswith(
            "engine 1.2: newer ones fail to import (course: ImportError: Keras requires"
        )
        for note in data["notes"]
    )
    tries = re.findall(r"^try \d+: .*$", made.stderr, re.MULTILINE)
    assert len(tries) == 4, made.stderr
    project.succeed("lock", "story")
    assert lock.read_text() == text, "a lock that is proved stays proved"


def test_what_only_the_source_imports_is_mended_where_it_can_be() -> None:
    used = Failure(
        module="engine.parts",
        error="ImportError: cannot import name 'gear'",
        blame=("engine",),
        used=True,
    )
    story = Story(
        {"engine": minors(10), "course": ("1.0",)},
        lambda versions: (used,) if number(versions["engine"])[1] >= 7 else (),
    )
    lock = search(story).run(lock_of(course="1.0", engine="1.9"))
    assert {p.name: p.version for p in lock.python}["engine"] == "1.6"
    assert lock.proof == "imported"


def test_what_only_the_source_imports_is_told_where_nothing_mends_it() -> None:
    used = Failure(
        module="engine.parts", error="ImportError: no gear", blame=("engine",), used=True
    )
    story = Story({"engine": minors(4), "course": ("1.0",)}, lambda _: (used,))
    lock = search(story).run(lock_of(course="1.0", engine="1.3"))
    assert {p.name: p.version for p in lock.python} == {"course": "1.0", "engine": "1.3"}
    assert lock.notes == (
        "the project's source imports engine.parts, which fails: ImportError: no gear",
    )
    story.ticks = 10_000.0
    assert search(story).run(lock_of(course="1.0", engine="1.3")).notes == lock.notes


def test_a_failure_of_a_dependency_is_not_hidden_by_one_of_the_source() -> None:
    hard = Failure(module="course", error="ImportError: no engine", blame=("course",))
    used = Failure(
        module="engine.parts", error="ImportError: no gear", blame=("engine",), used=True
    )
    story = Story({"engine": minors(2), "course": ("1.0",)}, lambda _: (hard, used))
    with pytest.raises(NoSolutionError, match="no engine"):
        search(story).run(lock_of(course="1.0", engine="1.1"))


def test_the_next_reason_of_the_same_module_is_a_step_further() -> None:
    """flask 1.1.2 needs older releases of three packages, and says so one after the other."""

    def fails(versions: dict[str, str]) -> tuple[Failure, ...]:
        for name, limit in (("engine", 3), ("gear", 1)):
            if number(versions[name])[1] > limit:
                error = f"ImportError: cannot import name 'x' from '{name}' (/tmp/{versions[name]})"
                return (Failure(module="course", error=error, blame=(name, "course")),)
        return ()

    story = Story({"engine": minors(6), "gear": minors(6), "course": ("1.0",)}, fails)
    lock = search(story).run(lock_of(course="1.0", engine="1.5", gear="1.5"))
    assert {p.name: p.version for p in lock.python} == {
        "course": "1.0",
        "engine": "1.3",
        "gear": "1.1",
    }
    assert {hold.name for hold in lock.held_back} == {"engine", "gear"}


def test_releases_that_cannot_be_built_are_too_old() -> None:
    """The doubling step may land on a source archive of 2013; what works lies between."""

    def fails(versions: dict[str, str]) -> tuple[Failure, ...]:
        minor = number(versions["engine"])[1]
        if minor < 4:
            raise ToolFailedError(
                f"engine-1.{minor}.tar.gz could not be built: no Feature in setuptools"
            )
        return (
            (Failure(module="course", error="ImportError: x", blame=("engine",)),)
            if minor > 5
            else ()
        )

    hunt = search(Story({"engine": minors(14), "course": ("1.0",)}, fails))
    lock = hunt.run(lock_of(course="1.0", engine="1.13"))
    assert {p.name: p.version for p in lock.python}["engine"] == "1.5"
    assert "engine<=1.0: engine-1.0.tar.gz could not be built" in "".join(map(str, hunt.trials))


def test_what_cannot_be_built_at_first_is_told_as_it_is() -> None:
    def fails(_: dict[str, str]) -> tuple[Failure, ...]:
        raise ToolFailedError("engine-1.3.tar.gz could not be built")

    with pytest.raises(ToolFailedError, match=r"engine-1\.3"):
        search(Story({"engine": minors(4)}, fails)).run(lock_of(course="1.0", engine="1.3"))
