"""Images put together from the store, for real: same lock, same bytes; many at once; killed; full; read-only."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envbuild.build.image.compare import describe_difference
from envbuild.formats.sif_reader import read_sif
from tests.build.images import TOP, apptainer, copy_of, sha256, signed_and_verified
from tests.project import Project, shared_store, small_project
from tests.support import needs
from tests.tiny_image import AS_READER

pytestmark = [pytest.mark.live, needs("apptainer", "mmdebstrap", "apt-get")]


OTHERWISE = """
import os, sys
os.umask(0o077)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.execv(sys.executable, [sys.executable, "-m", "envbuild", "make", "--no-check", *sys.argv[1:]])
"""


def test_another_user_elsewhere_at_another_time_gets_the_same_bytes(
    first: Project, layered: Project, tmp_path: Path, open_disk: Path
) -> None:
    """Other HOME, store, TMPDIR, file system, umask, locale, time zone, number of cores, date; where root runs it, user."""
    other = copy_of(first, open_disk / "öther user")
    elsewhere = open_disk / "tmp"
    elsewhere.mkdir()
    env = {
        **other.env,
        "TMPDIR": str(elsewhere),
        "LC_ALL": "C",
        "TZ": "Asia/Tokyo",
        "PYTHONHASHSEED": "7",
    }
    prefix = ["faketime", "-f", "+400d"] if shutil.which("faketime") else []
    if os.getuid() == 0:
        prefix = [*AS_READER, *prefix]
        for path in (other.folder, *other.folder.rglob("*"), elsewhere):
            os.chown(path, 65534, 65534, follow_symlinks=False)
    for mode, same in (("flat", first), ("layered", layered)):
        made = subprocess.run(
            [*prefix, sys.executable, "-c", OTHERWISE, "--mode", mode],
            cwd=other.folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
        assert made.returncode == 0, made.stderr
        assert ("compile" in made.stderr) == (mode == "flat"), "the layers were made anew, once"
        one, two = same.folder / "small.sif", other.folder / "small.sif"
        assert sha256(one) == sha256(two), f"{mode}: {describe_difference(one, two)}"


def test_a_comparison_that_fails_names_member_and_layer(layered: Project, tmp_path: Path) -> None:
    whole, image = layered.folder / "small.sif", tmp_path / "changed.sif"
    assert describe_difference(whole, whole) == ""
    shutil.copyfile(whole, image)
    packages = next(item for item in read_sif(image).objects if item.name == "packages")
    with image.open("r+b") as file:
        file.seek(packages.offset)
        at = file.read(packages.size).rindex(b"docopt.py")
        file.seek(packages.offset + at)
        file.write(b"docopt.pz")
    told = describe_difference(whole, image)
    assert told.startswith("layer packages: /usr/local/lib/")
    assert "docopt.py is only in the first" in told


def test_the_image_runs_and_says_what_it_is(first: Project) -> None:
    image = str(first.folder / "small.sif")
    code = "import six, docopt; print(six.__version__, docopt.__version__)"
    assert first.run("exec", "small", "--", "python", "-c", code).stdout == "1.16.0 0.6.2\n"
    assert first.run("exec", "small", "--", "hello").stdout == "Hello, world!\n"
    assert first.run("run", "small").stdout == "the default command\n"
    handed = first.run(
        "exec", "--env", "MINE=x", "small", "--", "sh", "-c", 'echo "$MINE:$LD_LIBRARY_PATH"'
    )
    assert handed.stdout == "x:/.singularity.d/libs\n"
    listed = apptainer(first, "sif", "list", image).stdout
    assert all(
        word in listed
        for word in ("Def.FILE", "SBOM (cyclonedx-json)", "FS (Squashfs/*System/amd64)")
    )
    assert (
        "one wheel, one source package" in apptainer(first, "inspect", "--helpfile", image).stdout
    )
    assert "envbuild.recipe: small" in apptainer(first, "inspect", "--labels", image).stdout
    assert "export PYTHONNOUSERSITE=1" in apptainer(first, "inspect", "--environment", image).stdout
    assert "the default command" in apptainer(first, "inspect", "--runscript", image).stdout
    assert "bootstrap: scratch" in apptainer(first, "inspect", "--deffile", image).stdout.lower()
    assert apptainer(first, "test", "--userns", image).code == 0


def test_bytecode_is_there_and_nothing_is_written_over_it(first: Project) -> None:
    code = (
        "import importlib.util, six, sys; path = importlib.util.cache_from_source(six.__file__);"
        "flags = open(path, 'rb').read()[4:8]; print(flags, six.__cached__ == path)"
    )
    assert (
        first.run("exec", "small", "--", "python", "-c", code).stdout
        == "b'\\x01\\x00\\x00\\x00' True\n"
    )


def test_nothing_changed_takes_no_time(first: Project) -> None:
    first.run("make")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    again = first.run("make")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert again.code == 0
    assert "small.sif is up to date" in again.stderr
    # of the processor, however busy the machine is
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0


def test_verify_says_what_holds(first: Project, tmp_path: Path) -> None:
    same = first.succeed("verify", "small")
    assert "the very bytes that the lock and its packer give" in same.stdout
    bare = Project(tmp_path / "bare")
    carried = bare.succeed("verify", str(first.folder / "small.sif"))
    assert "there is no recipe to compare those with" in carried.stdout


def test_signing_and_verifying_work(first: Project, tmp_path: Path) -> None:
    image = tmp_path / "signed.sif"
    shutil.copyfile(first.folder / "small.sif", image)
    signed_and_verified(image, tmp_path)
    verified = first.run("verify", str(image))
    assert verified.code == 0, verified.stdout


@pytest.fixture(scope="module")
def own_store(first: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project of a user whose store has the downloads and no layers yet, shared by the tests that make some."""
    folder = tmp_path_factory.mktemp("own")
    folder.chmod(0o755)
    return copy_of(first, folder / "p")


def test_eight_at_once_make_it_once(first: Project, own_store: Project) -> None:
    other = own_store
    argv = [sys.executable, "-m", "envbuild", "make"]
    targets = [other.folder / f"{number}.sif" for number in range(8)]
    children = [
        subprocess.Popen(
            [*argv, "-o", str(target)],
            cwd=other.folder,
            env=other.env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for target in targets
    ]
    said = [child.communicate(timeout=1200)[1] for child in children]
    assert [child.returncode for child in children] == [0] * 8, said
    assert sum("compile " in text and "check: " in text for text in said) == 1
    assert sum("waiting for process" in text for text in said) >= 6, said
    assert len({sha256(target) for target in targets}) == 1
    assert sha256(targets[0]) == sha256(first.folder / "small.sif")


def test_killed_at_any_moment_leaves_nothing_that_counts(first: Project, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    other = copy_of(first, tmp_path / "p")
    argv = [sys.executable, "-m", "envbuild", "make", "--no-check"]
    chance = random.Random(5)  # noqa: S311
    for _ in range(6):
        child = subprocess.Popen(
            argv, cwd=other.folder, env=other.env, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(chance.uniform(0.3, 3.0))
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        image = other.folder / "small.sif"
        assert not image.exists() or sha256(image) == sha256(first.folder / "small.sif")
        image.unlink(missing_ok=True)
    other.succeed("make", "--no-check")
    assert sha256(other.folder / "small.sif") == sha256(first.folder / "small.sif")
    assert other.run("store", "verify").code == 0
    assert other.run("store", "gc").code == 0
    left = [path.name for path in (other.store / TOP / "tmp").iterdir()]
    left += [path.name for path in other.folder.iterdir() if path.name.startswith(".")]
    assert left == []


def test_a_damaged_layer_is_made_again(first: Project, own_store: Project) -> None:
    """What somebody wrote to is noticed by its time; what the disk changed, by hashing all again."""
    other = own_store
    assert other.run("make", "--no-check").code == 0
    blob = min((other.store / TOP / "layers").glob("*.blob"), key=lambda path: path.stat().st_size)
    good, before = blob.read_bytes(), blob.stat()
    damaged = bytearray(good)
    damaged[len(damaged) // 2] ^= 1
    for rotten in (False, True):
        blob.chmod(0o644)
        blob.write_bytes(damaged)
        if rotten:
            os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))
            verified = other.run("store", "verify")
            assert (verified.code, "damaged, removed: " in verified.stdout) == (6, True)
            assert not blob.exists()
        (other.folder / "small.sif").unlink()
        assert other.run("make", "--no-check").code == 0
        assert blob.read_bytes() == good
        assert sha256(other.folder / "small.sif") == sha256(first.folder / "small.sif")


@pytest.fixture
def open_disk(tmp_path: Path) -> Iterator[Path]:
    """Lend a folder that every user may enter: in memory where root runs this, so on another kind of file system."""
    folder = Path(tempfile.mkdtemp(prefix="envbuild-other-"))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3g", "tmpfs", str(folder)],
        check=False,
        capture_output=True,
    )
    folder.chmod(0o755)
    yield folder
    if done.returncode == 0:
        subprocess.run(["umount", str(folder)], check=True)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount small memory file systems; skips where that is not allowed."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=False
        )
        if done.returncode:
            pytest.skip("this user may not mount")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_and_leaves_no_image(
    first: Project, tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    tmp_path.chmod(0o755)
    disk = small_disk("40m")
    made = first.run("make", "-o", str(disk / "small.sif"))
    assert made.code == 8, made.stderr
    assert "Traceback" not in made.stderr
    assert str(disk) in made.stderr
    assert list(disk.iterdir()) == []


def test_a_store_below_is_used_and_never_written_to(first: Project, tmp_path: Path) -> None:
    project = small_project(tmp_path / "p", tmp_path / "own")
    shutil.copytree(first.folder / "lockfiles", project.folder / "lockfiles")
    before = {path: path.stat().st_mtime_ns for path in (shared_store() / TOP / "layers").iterdir()}
    made = project.succeed("make", ENVBUILD_STORE_BELOW=str(shared_store()))
    assert "the store has this image already" in made.stderr
    assert sha256(project.folder / "small.sif") == sha256(first.folder / "small.sif")
    assert {
        path: path.stat().st_mtime_ns for path in (shared_store() / TOP / "layers").iterdir()
    } == before
    assert not (project.store / TOP / "layers").exists()


def test_a_read_only_store_is_told(
    first: Project, tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("2g")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    other = small_project(tmp_path / "p", disk / "store")
    shutil.copytree(first.folder / "lockfiles", other.folder / "lockfiles")
    made = other.run("make")
    assert made.code == 7, made.stderr
    assert str(disk) in made.stderr
    assert "Traceback" not in made.stderr
