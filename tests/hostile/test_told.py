"""What is told of hostile or unlucky inputs that are no damage: overlaps, full disks, names, locales."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from envbuild.base.debian.apt_failure import install_error, update_error
from envbuild.base.debian.distribution import DEBIAN
from envbuild.base.facts import is_day, iso_day
from envbuild.base.oci.image import _creation_day
from envbuild.build.packages.overlaps import find_overlaps
from envbuild.cli import run_cli
from envbuild.errors import SpaceError, ToolFailedError, UsageError
from envbuild.formats.file_tree import Part, TreeEntry
from envbuild.formats.oci import OciConfig
from envbuild.lock.model import LockedBase
from envbuild.lock.read import parse_lock, read_lock
from envbuild.lock.staleness import stale_reasons
from envbuild.lock.write import write_lock
from envbuild.parts.cache import CachedPart
from envbuild.recipe.read import read_recipe

ROOT = Path(__file__).parents[2]
LOCK = read_lock(ROOT / "lockfiles/torch-mnist.lock")


def wheel(name: str, **files: str) -> tuple[str, CachedPart]:
    entries = tuple(
        TreeEntry(f"site/{path}.py", "f", 0o644, sha256=sha256) for path, sha256 in files.items()
    )
    part = Part(key="k", entries=entries, fragments=(), size=0, sha256="")
    return name, CachedPart(part=part, blob=Path(name))


class TestOverlaps:
    def test_other_bytes_under_one_path_are_told_with_the_winner(self) -> None:
        told = list(
            find_overlaps([wheel("six.whl", six="a", x="c"), wheel("evil.whl", six="b", x="d")])
        )
        assert told == [
            "six.whl and evil.whl both hold /site/six.py and 1 more, with other content: that of evil.whl is in the image"
        ]

    def test_the_same_bytes_are_nothing_to_tell(self) -> None:
        assert list(find_overlaps([wheel("one.whl", x="a"), wheel("two.whl", x="a", y="b")])) == []

    def test_links_to_other_places_are_told_and_equal_ones_are_not(self) -> None:
        def linked(name: str, target: str) -> tuple[str, CachedPart]:
            entries = (TreeEntry("lib/x.so", "l", 0o777, target=target),)
            part = Part(key="k", entries=entries, fragments=(), size=0, sha256="")
            return name, CachedPart(part=part, blob=Path(name))

        assert list(find_overlaps([linked("a", "x.so.1"), linked("b", "x.so.1")])) == []
        (told,) = find_overlaps([linked("a", "x.so.1"), linked("b", "x.so.2")])
        assert told == (
            "a and b both hold /lib/x.so, with other content: that of b is in the image"
        )

    def test_a_folder_in_the_place_of_a_link_is_told(self) -> None:
        link = TreeEntry("lib64", "l", 0o777, target="lib")
        parts = (
            Part(key="k", entries=(entry,), fragments=(), size=0, sha256="")
            for entry in (link, TreeEntry("lib64", "d", 0o755))
        )
        named = [
            (name, CachedPart(part=part, blob=Path(name)))
            for name, part in zip("ab", parts, strict=True)
        ]
        assert len(list(find_overlaps(named))) == 1

    def test_no_more_than_a_few_lines(self) -> None:
        wheels = [wheel(f"{number}.whl", x=str(number)) for number in range(30)]
        assert len(list(find_overlaps(wheels))) == 9


class TestFullDisk:
    SAID = "E: Write error - write (28: No space left on device)"

    def test_while_apt_reads_or_chooses(self) -> None:
        error = ToolFailedError("apt-get failed", stderr=self.SAID)
        told = update_error(error, "bookworm", "https://mirror.invalid/debian", DEBIAN)
        assert isinstance(told, SpaceError)
        assert isinstance(install_error(error, ["x"], "bookworm"), SpaceError)
        assert told.code == 8


class TestLocks:
    @pytest.mark.parametrize(
        "change",
        [
            {"python_path": "/usr/../../etc/python3"},
            {"python_path": "/usr/./python3"},
            {"python_path": "/usr/bin/python3\n"},
            {"created": "2024-01-01\n"},
        ],
    )
    def test_a_value_that_is_almost_right(self, change: dict[str, str]) -> None:
        base: LockedBase = msgspec.structs.replace(LOCK.base, **change)
        with pytest.raises(UsageError, match="base"):
            parse_lock(write_lock(msgspec.structs.replace(LOCK, base=base)), "lock")

    @pytest.mark.parametrize("field", ["file", "sha256", "name", "version"])
    def test_a_newline_at_the_end_of_a_word(self, field: str) -> None:
        package = LOCK.python[0]
        changed = msgspec.structs.replace(package, **{field: getattr(package, field) + "\n"})
        with pytest.raises(UsageError, match=field):
            parse_lock(write_lock(msgspec.structs.replace(LOCK, python=(changed,))), "lock")

    def test_a_lock_of_another_recipe(self) -> None:
        recipe, _ = read_recipe(ROOT / "recipes/torch-mnist.toml")
        assert stale_reasons(recipe, LOCK) == ()
        assert stale_reasons(recipe, msgspec.structs.replace(LOCK, name="evil")) == (
            "it is the lock of evil",
        )


class TestDates:
    @pytest.mark.parametrize(
        "told", ["9999-12-31T00:00:00Z", "2024-99-99", "2024-02-30", "0000-00-00", ""]
    )
    def test_of_an_image_that_cannot_be(self, told: str) -> None:
        assert _creation_day(OciConfig(architecture="amd64", created=told)) is None

    def test_of_files(self) -> None:
        assert iso_day(1 << 60) is None
        assert iso_day(253402300799) is None
        assert iso_day(1_700_000_000) == "2023-11-14"
        assert not is_day("2024-01-01\n")


def test_names_are_utf_8_in_any_locale(tmp_path: Path) -> None:
    """A machine whose locale is another one reads the same tree: tarfile would take the locale's encoding."""
    code = """
import hashlib, sys, tarfile
from pathlib import Path
from envbuild.parts.from_tar import tar_contents
path = Path(sys.argv[1])
print([ascii(entry.path) for entry, _ in tar_contents(path, hashlib.sha256(path.read_bytes()).hexdigest())])
"""
    import tarfile

    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar:
        tar.addfile(tarfile.TarInfo("Főtanúsítvány"))
    env = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
    }
    argv = [sys.executable, "-X", "utf8=0", "-c", code, str(tmp_path / "a.tar")]
    found = subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout
    assert found == str([ascii("Főtanúsítvány")]) + "\n"


def test_too_little_memory_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from envbuild.cli import main_group

    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(main_group, "main", exhausted)
    assert run_cli(["list"]) == 7
    told = "this machine's memory, or what is left of it to you, is not enough"
    assert capsys.readouterr().err == f"envbuild: error: {told}\n"


def test_files_that_apt_may_not_open_are_no_matter_of_the_mirror() -> None:
    error = ToolFailedError(
        "apt-get failed",
        stderr="E: Failed to create IPC pipe to subprocess - pipe (24: Too many open files)",
    )
    told = update_error(error, "bookworm", "https://mirror.invalid/debian", DEBIAN)
    assert (told.code, told.what) == (7, "apt may not open as many files as it needs")
    assert "ulimit -n" in (told.hint or "")


def test_threads_that_may_not_be_started_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As under a small limit of processes: Python raises RuntimeError."""
    from envbuild.cli import main_group

    def start(**_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(main_group, "main", start)
    assert run_cli(["make"]) == 7
    assert "allows no more threads" in capsys.readouterr().err


def test_words_that_the_locale_lacks_are_no_traceback() -> None:
    code = r"""
import sys
from envbuild.cli import run_cli
from envbuild.run import Command, LocalRunner
print(LocalRunner()(Command(argv=("printf", "%s", "\u2026"))).stdout == "\u2026")
sys.exit(run_cli(["show", "\u2026"]))
"""
    env = {"LC_ALL": "C", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"}
    argv = [sys.executable, "-X", "utf8=0", "-c", code]
    env["PYTHONCOERCECLOCALE"] = "0"
    ran = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "True\n"), ran.stderr
    assert "Traceback" not in ran.stderr
