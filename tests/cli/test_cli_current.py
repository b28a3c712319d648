"""An image of an old lock is told, or refused; one with CUDA gets a GPU in its jobs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from envbuild.build.image.metadata import embedded_lock
from envbuild.build.image.origin import DEFINITION, embedded_lock_digest
from envbuild.cli import run_cli
from envbuild.formats.sif_writer import data_object
from envbuild.formats.sif_writer import write_sif as write_image
from envbuild.lock.cuda import cuda_of
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.lock.write import write_lock
from envbuild.shelf.pieces import describe_image
from envbuild.store.layout import Store
from tests.base.siffiles import partition, write_sif

ROOT = Path(__file__).parents[2]
NAME = "torch-mnist"
LOCK = read_lock(ROOT / f"lockfiles/{NAME}.lock")


def made_from(digest: str, path: Path) -> Path:
    """An image with the definition that Apptainer keeps of its build."""
    text = (
        f"Bootstrap: scratch\n\n%labels\n    envbuild.lock {digest}\n    envbuild.recipe {NAME}\n"
    )
    return write_sif(path, [(DEFINITION, text.encode(), b""), partition()])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the recipe torch-mnist, its lock, the image of that lock, and a runtime that says nothing."""
    folder = tmp_path / "project"
    for name in (f"recipes/{NAME}.toml", f"lockfiles/{NAME}.lock"):
        (folder / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "recipes" / NAME, folder / "recipes" / NAME)
    made_from(lock_digest(LOCK), folder / f"{NAME}.sif")
    program = tmp_path / "bin/apptainer"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho apptainer version 1.4.5\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    monkeypatch.delenv("ENVBUILD_SITE", raising=False)
    monkeypatch.chdir(folder)
    return folder


def change_recipe(project: Path) -> None:
    path = project / f"recipes/{NAME}.toml"
    path.write_text(path.read_text().replace("dependencies = [", 'dependencies = [\n  "rich",', 1))


def change_image(project: Path) -> None:
    made_from("sha256:" + "0" * 64, project / f"{NAME}.sif")


CHANGES = {
    "recipe": (
        change_recipe,
        'the recipe was changed: requirement "rich" was added',
        f"envbuild lock {NAME} && envbuild make {NAME}",
    ),
    "image": (
        change_image,
        f"it was made from another lock than {NAME}.lock",
        f"envbuild make {NAME}",
    ),
}
VERBS = (
    ["exec", NAME, "--dry-run", "--", "true"],
    ["run", NAME, "--dry-run"],
    ["shell", NAME, "--dry-run"],
    ["job", NAME, "--on", "local", "--", "true"],
    ["submit", NAME, "--on", "local", "--stale", "--dry-run", "--", "true"],
)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.usefixtures("project")
def test_a_current_image_is_used_without_a_word(
    verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(verb) == 0
    assert "is old" not in capsys.readouterr().err


@pytest.mark.parametrize("change", sorted(CHANGES))
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_an_old_image_is_told(
    project: Path, verb: list[str], change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    apply, reason, remedy = CHANGES[change]
    apply(project)
    assert run_cli(verb) == 0
    told = capsys.readouterr()
    assert f"note: {NAME}.sif is old: {reason}; for a new one: {remedy}\n" in told.err
    assert "is old" not in told.out


@pytest.mark.parametrize(
    ("change", "old"), [({"notes": ("other words",)}, False), ({"system": ("git",)}, True)]
)
def test_an_image_is_not_old_where_its_lock_tells_the_same_in_other_words(
    project: Path, change: dict[str, object], old: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    carried = data_object(0x4007, f"{NAME}.lock", embedded_lock(LOCK).encode())
    label = f"%labels\n    envbuild.lock {lock_digest(LOCK)}\n"
    parts = [carried, data_object(DEFINITION, "definition", label.encode())]
    with (project / f"{NAME}.sif").open("wb") as out:
        write_image(out, parts, machine="x86_64", epoch=0, identity=NAME)
    lock = msgspec.structs.replace(LOCK, **change)
    (project / f"lockfiles/{NAME}.lock").write_text(write_lock(lock))
    assert run_cli(["exec", NAME, "--dry-run", "--", "true"]) == 0
    assert ("is old" in capsys.readouterr().err) == old


@pytest.mark.parametrize(
    ("changed", "told"),
    [("src/lab/model.py", True), ("src/lab/build/old.py", False), ("train.py", False)],
)
def test_code_that_the_image_has_a_copy_of_and_that_was_changed_since(
    project: Path, changed: str, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = msgspec.structs.replace(
        LOCK, python=(msgspec.structs.replace(LOCK.python[0], source="."), *LOCK.python[1:])
    )
    (project / f"lockfiles/{NAME}.lock").write_text(write_lock(lock))
    image = made_from(lock_digest(lock), project / f"{NAME}.sif")
    for name in ("src/lab/__init__.py", "src/lab/model.py", "src/lab/build/old.py", "train.py"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (0, 0))
    exec_verb = ["exec", NAME, "--dry-run", "--", "true"]
    assert run_cli(exec_verb) == 0
    assert "is newer than" not in capsys.readouterr().err
    os.utime(project / changed, (image.stat().st_mtime + 10,) * 2)
    assert run_cli(exec_verb) == 0
    note = f"note: {changed} is newer than {NAME}.sif, which has its own copy"
    assert (note in capsys.readouterr().err) == told


@pytest.mark.usefixtures("project")
def test_the_path_of_an_image_stands_for_itself(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_image(project)
    assert run_cli(["exec", f"./{NAME}.sif", "--dry-run", "--", "true"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_submit_and_verify_refuse_an_old_image(
    project: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    apply, reason, remedy = CHANGES[change]
    apply(project)
    assert run_cli(["submit", NAME, "--on", "local", "--", "true"]) == 4
    told = capsys.readouterr().err
    assert f"{NAME}.sif: the image is old: {reason}\n  what to do: {remedy}\n" in told
    assert "--stale submits it as it is" in told
    assert not (project / ".envbuild").exists()
    assert run_cli(["verify", NAME]) == 4
    assert reason in capsys.readouterr().err


def test_list_and_show_tell_current_from_old(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def image() -> str:
        assert run_cli(["list", "--json"]) == 0
        rows = {row["recipe"]: row for row in json.loads(capsys.readouterr().out)}
        return str(rows[NAME]["image"])

    assert image() == "current"
    change_image(project)
    assert image() == "old"
    assert run_cli(["show", NAME]) == 0
    assert ", old\n" in capsys.readouterr().out
    write_sif(project / f"{NAME}.sif", [partition()])  # as one that was packed by hand
    assert image() == "unknown"
    made_from(lock_digest(LOCK), project / f"{NAME}.sif")
    (project / f"lockfiles/{NAME}.lock").unlink()
    assert image() == "unknown"


def test_a_job_of_an_image_with_cuda_gets_one_gpu(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The accident of the README: a job that nobody gave a GPU, and that said nothing."""
    recipe = project / f"recipes/{NAME}.toml"
    recipe.write_text(recipe.read_text().partition("[job]")[0])
    job = ["job", NAME, "--on", "neuron:gpu1", "--walltime", "1h"]
    assert run_cli([*job, "--", "python", "train.py"]) == 0
    told = capsys.readouterr()
    assert "#SBATCH --gres=gpu:1\n" in told.out
    assert " --nv" in told.out
    assert (
        f"the job gets one GPU, as {NAME}.sif has CUDA 12.4 (--gpus N, or gpus in [job])\n"
        in told.err
    )
    assert run_cli([*job, "--nodes", "2", "--launcher", "torchrun", "--", "train.py"]) == 0
    assert "the job gets 2 GPUs" in capsys.readouterr().err
    for said in (["--gpus", "0"], ["--gpus", "1"]):
        assert run_cli([*job, *said, "--", "python", "train.py"]) == 0
        told = capsys.readouterr()
        assert ("--nv" in told.out, told.err) == (said[1] == "1", "")
    recipe.write_text(recipe.read_text() + "[job]\ngpus = 0\n")
    assert run_cli([*job, "--", "python", "train.py"]) == 0
    assert "--nv" not in capsys.readouterr().out


def test_a_recipe_for_the_cpu_gets_no_gpu(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = project / f"recipes/{NAME}.toml"
    recipe.write_text(
        recipe.read_text().partition("[job]")[0].replace("[base]", "[base]\ncpu = true")
    )
    assert run_cli(["job", NAME, "--on", "neuron:gpu1", "--walltime", "1h", "--", "x"]) == 0
    assert "--nv" not in capsys.readouterr().out


def test_a_site_without_gpus_gives_none_and_says_so(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = project / f"recipes/{NAME}.toml"
    recipe.write_text(recipe.read_text().partition("[job]")[0])
    assert run_cli(["job", NAME, "--on", "openpbs-compose", "--", "x"]) == 0
    told = capsys.readouterr()
    assert (
        "note: torch-mnist.sif has CUDA 12.4, and openpbs-compose has no GPUs: the job gets none\n"
        in told.err
    )
    assert "--nv" not in told.out


def test_a_job_tells_the_lock_of_its_image_and_not_that_of_the_recipe(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_image(project)
    assert run_cli(["job", NAME, "--on", "local", "--", "x"]) == 0
    assert f"\nlock=sha256:{'0' * 64}\n" in capsys.readouterr().out


def test_an_image_that_says_nothing_is_of_no_lock(tmp_path: Path) -> None:
    assert embedded_lock_digest(write_sif(tmp_path / "a.sif", [partition()])) is None
    assert (
        embedded_lock_digest(
            write_sif(tmp_path / "b.sif", [(DEFINITION, b"\xff%labels", b""), partition()])
        )
        is None
    )
    (tmp_path / "c.sif").write_text("no image")
    assert embedded_lock_digest(tmp_path / "c.sif") is None


CUDA = {
    "keras-bert": "12.2",
    "torch-mnist": "12.4",
    "chainer-mnist": "12.4",
    "optuna-mpi": None,
}


@pytest.mark.parametrize("name", sorted(CUDA))
def test_the_cuda_of_a_lock(name: str) -> None:
    assert cuda_of(read_lock(ROOT / f"lockfiles/{name}.lock")) == CUDA[name]


@pytest.mark.parametrize(
    ("name", "version", "cuda"),
    [
        ("torch", "2.1.0+cu118", "11.8"),
        ("torch", "2.5.1+cpu", None),
        ("torch", "1.12.1", "10.2"),
        ("cupy-cuda11x", "13.0", "11"),
        ("mxnet-cu112", "1.9.1", "11.2"),
        ("tensorflow", "2.15.1", None),
    ],
)
def test_the_cuda_that_a_wheel_carries(name: str, version: str, cuda: str | None) -> None:
    assert cuda_of(lock_with(name, version)) == cuda


def lock_with(name: str, version: str) -> Lock:
    from msgspec.structs import replace

    package = replace(LOCK.python[0], name=name, version=version, group="framework")
    return replace(LOCK, python=(package,), base=replace(LOCK.base, cuda=None))


BIG = 64 * 1024 * 1024


def _bytes_read() -> int:
    """Return how many bytes this process has read so far, as the kernel counts them."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_the_verbs_that_look_do_not_read_an_image_again(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label = f"Bootstrap: scratch\n\n%labels\n    envbuild.lock {lock_digest(LOCK)}\n"
    image = write_sif(
        project / f"{NAME}.sif", [(DEFINITION, label.encode(), b""), partition(bytes(BIG))]
    )
    store = Store(tmp_path / "store")

    def read_by(action: Callable[[], object]) -> int:
        before = _bytes_read()
        action()
        capsys.readouterr()
        return _bytes_read() - before

    assert read_by(lambda: run_cli(["list"])) > BIG
    assert read_by(lambda: describe_image(image, lock_digest(LOCK), store)) > BIG  # its sha256
    for action in (
        lambda: run_cli(["list"]),
        lambda: run_cli(["show", NAME]),
        lambda: describe_image(image, lock_digest(LOCK), store),  # as publish does
    ):
        assert read_by(action) < BIG // 4
    os.utime(image)
    assert read_by(lambda: run_cli(["list"])) > BIG
