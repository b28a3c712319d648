"""Images, data and disks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.job.conftest import Project
from tests.job.situations_live.place import NOTHING, NotHereError, Place, situation

UNTIL_GO = ("--", "sh", "-c", "while [ ! -e go ]; do sleep 0.2; done")


@situation
def an_image_that_changes_while_the_job_waits(place: Place) -> None:
    first = place.submit(*UNTIL_GO)
    (place.folder / "swap.sif").hardlink_to(place.folder / "tiny.sif")
    job = place.submit("--after-any", first, "--", "touch", "ran", image="./swap.sif")
    shutil.copy(place.folder / "tiny.sif", place.folder / "new.sif")
    os.utime(place.folder / "new.sif", (1, 1))
    (place.folder / "new.sif").rename(place.folder / "swap.sif")
    (place.folder / "go").touch()
    followed = place.run("logs", job, "-f")
    assert followed.code == 125, followed.stderr
    assert "the image has changed since the job was submitted" in followed.stdout
    assert not (place.folder / "ran").exists()


@situation
def images_that_are_none_and_a_container_that_cannot_start(place: Place) -> None:
    whole = (place.folder / "tiny.sif").read_bytes()
    (place.folder / "bad.sif").write_bytes(b"no image")
    (place.folder / "cut.sif").write_bytes(whole[: len(whole) // 2])
    for name in ("bad.sif", "cut.sif"):
        assert "again" in place.refused(*NOTHING, image=f"./{name}")
    place.add_to_site('\n[runtime]\nflags = ["--bind=/no/such/folder:/mnt"]\n')
    result = place.wait("--", "touch", "ran", code=125)
    assert "envbuild: error: the container did not start" in result.stdout
    assert not (place.folder / "ran").exists()


@situation
def an_image_that_is_gone_when_the_job_starts(place: Place) -> None:
    (place.folder / "gone.sif").hardlink_to(place.folder / "tiny.sif")
    first = place.submit(*UNTIL_GO)
    job = place.submit("--after-any", first, *NOTHING, image="./gone.sif")
    (place.folder / "gone.sif").unlink()
    (place.folder / "go").touch()
    followed = place.run("logs", job, "-f")
    assert followed.code == 125
    assert "the image is not there" in followed.stdout


@situation
def data_is_staged_while_two_ranks_meet(place: Place) -> None:
    """What is collective needs both ranks at the same time, and one copy will do."""
    if shutil.which("mpirun") is None and place.scheduler != "slurm":
        raise NotHereError("not installed: mpirun")
    (place.folder / "data/images").mkdir(parents=True)
    (place.folder / "data/images/one").write_text("image\n")
    (place.folder / "local").mkdir()
    start = "srun" if place.scheduler == "slurm" else "mpirun"
    root = 'OMPI_ALLOW_RUN_AS_ROOT = "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = "1", OMPI_MCA_oob_tcp_if_include = "lo"'
    place.add_to_site(
        f'\n[folders]\nlocal = ["{place.folder}/local"]\n\n[mpi]\nstart = "{start}"\nenvironment = {{ {root} }}\n'
    )
    text = (
        "touch r-$(cat /proc/sys/kernel/random/uuid); i=0; "
        "while [ $i -lt 100 ]; do set -- r-*; [ $# -lt 2 ] || break; sleep 0.2; i=$((i+1)); done; "
        "cat data/images/one; [ $# -lt 2 ] || echo met; sleep 1"
    )
    nodes = () if place.scheduler == "gridengine" else ("--nodes", "1")
    words = ("--launcher", "mpi", *nodes, "--tasks", "2", "--cpus", "1", "--stage", "data/images")
    result = place.shell(text, *words)
    lines = result.stdout.splitlines()
    assert (lines.count("image"), lines.count("met")) == (2, 2), result.stdout
    assert len([line for line in lines if line.startswith("envbuild: data is on")]) == 1
    assert not list((place.folder / "local").iterdir())


@situation
def a_full_disk_leaves_its_receipt(place: Place) -> None:
    small = Path(place.project.environment["SMALL"]) / place.scheduler
    small.mkdir(exist_ok=True)
    if not (small / "sites").exists():
        shutil.copytree(place.folder / "sites", small / "sites")
    project = Project(folder=small, environment=place.project.environment)
    image = str(place.folder / "tiny.sif")
    words = (
        "sh",
        "-c",
        "while echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; do :; done >big 2>/dev/null; exit 5",
    )
    result = project.run(
        "submit", image, "--on", place.scheduler, "--wait", "--", *words, timeout=120
    )
    (small / "big").unlink(missing_ok=True)
    assert result.code == 5, result.stdout + result.stderr


@situation
def the_project_is_removed_while_the_job_waits(place: Place) -> None:
    inner = place.folder / "inner"
    inner.mkdir()
    (inner / "sites").symlink_to(place.folder / "sites")
    project = Project(folder=inner, environment=place.project.environment)
    hold = place.pick(slurm="--hold", gridengine="-h", pbs="-h")
    words = ("submit", str(place.folder / "tiny.sif"), "--on", place.scheduler, f"--option={hold}")
    job = project.run(*words, *NOTHING).stdout.strip()
    inner.rename(place.folder / "moved")
    place.client(
        *place.pick(
            slurm=f"scontrol release {job}", gridengine=f"qrls {job}", pbs=f"qrls {job}"
        ).split()
    )
    moved = Project(folder=place.folder / "moved", environment=place.project.environment)
    followed = moved.run("logs", job, "-f", timeout=150)
    assert followed.code != 0, followed.stdout + followed.stderr
    assert "Traceback" not in followed.stderr
    place.run("cancel", job)


@situation
def a_log_folder_that_is_a_file(place: Place) -> None:
    """It is told at the submission; a job that has waited meanwhile cannot say anything itself."""
    hold = place.pick(
        slurm="--hold", gridengine=None, pbs="-h"
    )  # Grid Engine's job waits with an error
    job = place.submit(f"--option={hold}", *NOTHING)
    (place.folder / "logs").rmdir()
    (place.folder / "logs").touch()
    refused = place.run("submit", "./tiny.sif", "--on", place.scheduler, *NOTHING)
    assert refused.code == 7, refused.stderr
    assert "logs" in refused.stderr
    place.client(*place.pick(slurm=f"scontrol release {job}", pbs=f"qrls {job}").split())
    followed = place.run("logs", job, "-f")
    assert followed.code == 7, followed.stdout + followed.stderr
    assert "logs is no folder" in followed.stderr, followed.stderr


@situation
def the_commit_is_that_of_the_start(place: Place) -> None:
    """What a repository holds may change while a job waits, and the receipt names what ran."""
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "safe.directory=*")
    place.client(*git, "init", "-q")
    place.client(*git, "commit", "-q", "--allow-empty", "-m", "one")
    hold = place.pick(slurm="--hold", gridengine="-h", pbs="-h")
    job = place.submit(f"--option={hold}", *NOTHING)
    place.client(*git, "commit", "-q", "--allow-empty", "-m", "two")
    head = place.client(*git, "rev-parse", "HEAD").strip()
    place.client(
        *place.pick(
            slurm=f"scontrol release {job}", gridengine=f"qrls {job}", pbs=f"qrls {job}"
        ).split()
    )
    followed = place.succeed("logs", job, "-f")
    [receipt] = place.receipts()
    assert receipt["commit"] == head
    assert "the commit has changed since the job was submitted" in followed.stdout
