"""One table of situations, the same for every scheduler that is installed: what users do, and what clusters do to jobs.

Jobs mostly wait, so all situations of a scheduler run side by side, each in a folder of its own; the tests look at
what became of them.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner, Result
from tests.job.conftest import PBS, Project, make_project
from tests.support import needs
from tests.tiny_image import tiny_image

pytestmark = [
    pytest.mark.live,
    needs("apptainer", "sbatch", "qsub", "ip", "nsenter"),
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root can give the schedulers a network of their own"
    ),
]
AT_ONCE = 6
HAS_PBS = (PBS / "bin/qsub").is_file()
NOTHING = ("--", "sh", "-c", ":")
"""A command that does nothing; the image has a shell, and little else."""
DOWN = {
    "slurm": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "gridengine": "error: commlib error: got select error (Connection refused)\n"
    'error: unable to send message to qmaster using port 6444 on host "localhost": got send error',
    "pbs": "Connection refused\nqstat: cannot connect to server pbs1 (errno=111)",
}
"""What the clients say when their server is stopped."""


class NotHereError(Exception):
    """A situation that this scheduler does not have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A project folder of one situation, at one scheduler."""

    scheduler: str
    project: Project

    @property
    def folder(self) -> Path:
        return self.project.folder

    def run(self, *words: str, timeout: float = 200, path: str | None = None) -> Result:
        variables = {"PATH": path} if path else {}
        return self.project.run(*words, timeout=timeout, variables=variables)

    def submit(self, *words: str, image: str = "./tiny.sif") -> str:
        result = self.run("submit", image, "--on", self.scheduler, *words)
        assert result.code == 0, result.stderr
        return result.stdout.strip()

    def wait(
        self,
        *words: str,
        image: str = "./tiny.sif",
        code: int | None = 0,
        timeout: float = 200,
    ) -> Result:
        line = ("submit", image, "--on", self.scheduler, "--wait", *words)
        result = self.run(*line, timeout=timeout)
        if code is not None:
            assert result.code == code, result.stdout + result.stderr
        return result

    def shell(
        self, text: str, *words: str, image: str = "./tiny.sif", code: int | None = 0
    ) -> Result:
        return self.wait(*words, "--", "sh", "-c", text, image=image, code=code)

    def refused(self, *words: str, code: int = 2, image: str = "./tiny.sif") -> str:
        result = self.run("submit", image, "--on", self.scheduler, *words)
        assert result.code == code, result.stdout + result.stderr
        assert not list((self.folder / ".envbuild/jobs").glob(f"{self.scheduler}-*.json"))
        return result.stderr

    def client(self, *argv: str) -> str:
        command = Command(
            argv=argv, env=self.project.environment, timeout=20, cwd=self.project.folder
        )
        result = LocalRunner()(command, check=False)
        return result.stdout + result.stderr

    def receipts(self) -> list[dict[str, object]]:
        files = sorted((self.folder / ".envbuild/jobs").glob("*.receipt*.json"))
        return [json.loads(path.read_text()) for path in files]

    def wait_for(self, path: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not (self.folder / path).exists():
            assert time.monotonic() < end, f"{path} did not come"
            time.sleep(0.2)

    def add_to_site(self, text: str) -> None:
        site = self.folder / f"sites/{self.scheduler}.toml"
        site.write_text(site.read_text() + text)

    def pick(self, **words: str | None) -> str:
        found = words[self.scheduler]
        if found is None:
            raise NotHereError(f"not a matter of {self.scheduler}")
        return found


SITUATIONS: dict[str, Callable[[Place], None]] = {}


def situation(function: Callable[[Place], None]) -> Callable[[Place], None]:
    SITUATIONS[function.__name__] = function
    return function


# names and paths


@situation
def a_code_comes_back(place: Place) -> None:
    place.shell("echo hello; exit 7", code=7)
    [receipt] = place.receipts()
    assert (receipt["code"], receipt["signal"], receipt["site"]) == (7, "", place.scheduler)


@situation
def a_program_that_is_not_there(place: Place) -> None:
    result = place.wait("--", "no-such-program", code=None)
    # the shell that ignores signals for Grid Engine says 127, the runtime 255
    assert result.code == (127 if place.scheduler == "gridengine" else 255)
    assert "no-such-program" in result.stdout


@situation
def names_that_would_run_code_are_refused(place: Place) -> None:
    for name in (
        "a$(id)b",
        "x\ntouch pwned #",
        "../up",
        'a"b',
        "a\\qb",
        "a:b",
        "my image",
        "-x",
        "",
    ):
        told = place.refused("--name", name, *NOTHING)
        assert "is no name of a job" in told, name


@situation
def an_image_that_somebody_named(place: Place) -> None:
    for name in ("x$(touch pwned).sif", "my image.sif", "ünï.sif", "12;ls.sif"):
        (place.folder / name).hardlink_to(place.folder / "tiny.sif")
        place.wait(*NOTHING, image=f"./{name}")
    assert not (place.folder / "pwned").exists()
    names = {receipt["name"] for receipt in place.receipts()}
    assert names == {"x-touch-pwned", "my-image", "uni", "12-ls"}


@situation
def names_of_all_lengths(place: Place) -> None:
    for name in ("1", "a" * 64, "a.b-c_d"):
        place.wait("--name", name, *NOTHING)
        assert list((place.folder / "logs").glob(f"{name}-*.log"))


@situation
def a_folder_with_blanks(place: Place) -> None:
    folder = place.folder / "it is (my) folder & more"
    folder.mkdir()
    for name in ("tiny.sif", "sites"):
        (folder / name).symlink_to(place.folder / name)
    inner = Place(
        scheduler=place.scheduler,
        project=Project(folder=folder, environment=place.project.environment),
    )
    inner.shell("touch here", image=str(place.folder / "tiny.sif"))
    assert (folder / "here").exists()


@situation
def folders_that_a_scheduler_would_read_otherwise(place: Place) -> None:
    for name in ("a%j", "quote'd", "trailing ", "co,mma"):
        folder = place.folder / name
        folder.mkdir()
        (folder / "sites").symlink_to(place.folder / "sites")
        project = Project(folder=folder, environment=place.project.environment)
        result = project.run(
            "submit", str(place.folder / "tiny.sif"), "--on", place.scheduler, *NOTHING
        )
        assert result.code == 2, name
        assert "jobs cannot run in a folder with such a name" in result.stderr


@situation
def a_log_of_ones_own_and_a_folder_by_a_link(place: Place) -> None:
    place.wait("--output", "out/{name}.{id}.txt", "--", "sh", "-c", "echo hello")
    [log] = (place.folder / "out").glob("tiny.*.txt")
    assert "hello" in log.read_text()


# arguments and the environment


@situation
def arguments_arrive_as_they_are(place: Place) -> None:
    words = (
        "a b",
        "it's",
        'q"q',
        "$HOME",
        "\\n",
        "x\n#$ -q nosuch\n#SBATCH --hold\n#PBS -h\ny",
        "日本",
        "",
        "*",
        "`id`",
    )
    result = place.wait("--", "sh", "-c", 'for w; do printf "<%s>" "$w"; done; echo', "sh", *words)
    assert "".join(f"<{word}>" for word in words) in result.stdout


@situation
def long_arguments(place: Place) -> None:
    result = place.wait("--", "sh", "-c", "echo ${#1} ${#2}", "sh", "x" * 100_000, "y" * 30_000)
    assert "100000 30000" in result.stdout.splitlines()


@situation
def variables_that_are_handed_on(place: Place) -> None:
    value = "a,b 'c' \"d\"\nsecond $HOME"
    text = 'printf "%s\\n" "$TOKEN"; echo "caller=${TOKEN_OF_CALLER:-none}"'
    result = place.shell(text, "--env", f"TOKEN={value}")
    assert f"{value}\ncaller=none\n" in result.stdout
    [secrets] = (place.folder / ".envbuild/jobs").glob("*.env")
    assert secrets.stat().st_mode & 0o777 == 0o600
    place.wait(*NOTHING)
    assert not secrets.exists(), "removed when the next job is submitted"


@situation
def cores_become_threads(place: Place) -> None:
    result = place.shell('echo "threads=$OMP_NUM_THREADS"', "--cpus", "2")
    assert "threads=2" in result.stdout.splitlines()


@situation
def threads_of_one_process_among_several(place: Place) -> None:
    # torchrun starts two processes of one core each; the image has no Python, and the script is what counts
    place.add_to_site("")
    text = place.run(
        *("job", "./tiny.sif", "--on", place.scheduler, "--launcher", "torchrun", "--tasks", "2"),
        *("--cpus", "1", *NOTHING),
    ).stdout
    assert 'OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"' in text
    if place.scheduler == "pbs":
        assert "#PBS -l select=1:ncpus=2:ompthreads=1" in text


@situation
def files_have_the_users_mode(place: Place) -> None:
    place.shell("touch made; mkdir sub")
    [log] = (place.folder / "logs").glob("*.log")
    modes = [
        path.stat().st_mode & 0o777 for path in (place.folder / "made", place.folder / "sub", log)
    ]
    assert modes == [0o644, 0o755, 0o644]


@situation
def scratch_that_is_not_set_on_the_node(place: Place) -> None:
    place.add_to_site('\n[folders]\nscratch = "$NO_SUCH_SCRATCH"\n')
    result = place.wait("--", "touch", "ran", code=125)
    assert "NO_SUCH_SCRATCH is not set on this node" in result.stdout


# arrays and tables


@situation
def an_array_with_steps_and_a_limit(place: Place) -> None:
    variable = place.pick(
        slurm="SLURM_ARRAY_TASK_ID", gridengine="SGE_TASK_ID", pbs="PBS_ARRAY_INDEX"
    )
    result = place.shell(
        f'echo "task ${variable}"; [ ${variable} != 3 ] || exit 9', "--array", "1-5:2%2", code=9
    )
    assert {"task 1", "task 3", "task 5"} <= set(result.stdout.splitlines())
    codes = {receipt["task"]: receipt["code"] for receipt in place.receipts()}
    assert codes == {"1": 0, "3": 9, "5": 0}


@situation
def a_table_of_parameters(place: Place) -> None:
    (place.folder / "p.csv").write_text(
        "\ufeffbatch-size,n.layers\r\n8,one two\r\n16,$(touch pwned)\r\n"
    )
    words = (
        "--each",
        "p.csv",
        "--",
        "sh",
        "-c",
        'echo "$@"',
        "sh",
        "bs={batch-size}",
        "{n.layers}",
        "{{kept}}",
    )
    result = place.wait(*words)
    lines = result.stdout.splitlines()
    assert {"bs=8 one two {kept}", "bs=16 $(touch pwned) {kept}"} <= set(lines)
    assert not (place.folder / "pwned").exists()


@situation
def a_table_of_one_row(place: Place) -> None:
    (place.folder / "p.csv").write_text("lr\n0.1\n")
    assert (
        "lr=0.1"
        in place.wait("--each", "p.csv", "--", "sh", "-c", 'echo "$1"', "sh", "lr={lr}").stdout
    )


@situation
def tables_that_do_not_fit_the_command(place: Place) -> None:
    (place.folder / "p.csv").write_text("lr,seed\n0.1,1\n")
    assert "does not use the column 'seed'" in place.refused(
        "--each", "p.csv", "--", "echo", "{lr}"
    )
    assert "has no column 'bs'" in place.refused("--each", "p.csv", "--", "echo", "{lr}{seed}{bs}")


# one job after another


@situation
def after_an_array_by_the_id_that_was_printed(place: Place) -> None:
    first = place.submit("--array", "1-2", "--", "sh", "-c", "sleep 2; touch first-$$")
    place.shell("ls first-* | wc -l; exit 4", "--after", first, code=4)


@situation
def after_a_job_that_has_succeeded_and_is_forgotten(place: Place) -> None:
    first = place.wait(*NOTHING).stderr
    number = re.findall(r"submitted job (\d+)", first)[0]
    place.shell("exit 5", "--after", number, "--after-any", number, code=5)


@situation
def after_a_job_that_fails(place: Place) -> None:
    bad = place.submit("--", "sh", "-c", "sleep 3; exit 9")
    result = place.wait("--after", bad, "--", "touch", "ran", code=125)
    assert re.search(
        "follows|waits for has failed|did not succeed", result.stderr + result.stdout
    ), result.stderr
    assert (
        "has failed already"
        in place.run(
            "submit", "./tiny.sif", "--on", place.scheduler, "--after", bad, *NOTHING
        ).stderr
    )
    place.shell("exit 6", "--after-any", bad, code=6)
    assert not (place.folder / "ran").exists()


# signals, limits, kills


@situation
def a_handler_of_term_has_its_time_when_a_job_is_cancelled(place: Place) -> None:
    text = 'trap "echo saved; touch saved; exit 9" TERM; touch up; while :; do sleep 0.2; done'
    job = place.submit("--", "sh", "-c", text)
    place.wait_for("up")
    assert place.run("cancel", job).code == 0
    assert place.run("logs", job, "-f").code == 9
    assert (place.folder / "saved").exists()


@situation
def a_command_that_ends_with_0_when_it_is_stopped_has_not_succeeded(place: Place) -> None:
    job = place.submit(
        "--", "sh", "-c", 'trap "exit 0" TERM; touch up; while :; do sleep 0.2; done'
    )
    place.wait_for("up")
    assert place.run("cancel", job).code == 0
    assert place.run("logs", job, "-f").code == 143
    [row] = json.loads(place.run("status", job, "--json").stdout)
    assert row["state"] == "failed"


@situation
def a_job_that_waits_is_cancelled(place: Place) -> None:
    hold = place.pick(slurm="--hold", gridengine="-h", pbs="-h")
    job = place.submit(f"--option={hold}", "--", "touch", "ran")
    [row] = json.loads(place.run("status", job, "--json").stdout)
    assert row["state"] == "queued", row
    assert place.run("cancel", job).code == 0
    followed = place.run("logs", job, "-f", timeout=60)
    assert followed.code == 7, followed.stderr
    assert "cancelled" in followed.stderr, followed.stderr
    assert not (place.folder / "ran").exists()


@situation
def one_task_of_an_array_is_cancelled(place: Place) -> None:
    job = place.submit(
        "--array", "1-2", "--", "sh", "-c", "touch up-$(cat /proc/sys/kernel/random/uuid); sleep 15"
    )
    end = time.monotonic() + 60
    while len(list(place.folder.glob("up-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.2)
    assert place.run("cancel", f"{job}[2]").code == 0
    assert place.run("cancel", f"{job}[7]").code == 2
    assert place.run("logs", job, "-f").code == 143
    codes = {receipt["task"]: receipt["code"] for receipt in place.receipts()}
    assert codes == {"1": 0, "2": 143}


@situation
def the_time_limit_is_named(place: Place) -> None:
    limit = place.pick(slurm="1m", gridengine="5s", pbs="5s")
    result = place.shell("sleep 300", "--walltime", limit, code=None)
    # on a busy machine PBS may kill before the receipt is written, and its word counts then
    assert result.code != 0, result.stderr
    assert "it reached its time limit" in result.stdout + result.stderr, (
        result.stdout + result.stderr
    )


@situation
def too_much_memory_is_named(place: Place) -> None:
    if place.scheduler == "gridengine":
        raise NotHereError("h_vmem lets the allocation fail, and nobody is killed")
    if place.scheduler == "pbs":
        raise NotHereError("this PBS measures nothing of root's jobs (resources_used.mem = 0kb)")
    hog = (
        "a=aaaaaaaa; i=0; while [ $i -lt 25 ]; do a=$a$a; i=$((i+1)); done; sleep 40; echo survived"
    )
    result = place.shell(hog, "--memory", "60MiB", code=None)
    assert result.code != 0
    assert "survived" not in result.stdout
    assert "memory" in result.stderr + result.stdout


@situation
def a_job_that_is_killed_outright(place: Place) -> None:
    text = "touch up; sleep 60"
    job = place.submit("--", "sh", "-c", text)
    place.wait_for("up")
    # all nodes are this machine; the script is the shell that stands in the project folder
    shells = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            folder, words = (
                process.joinpath("cwd").readlink(),
                process.joinpath("cmdline").read_bytes(),
            )
        except OSError:
            continue
        if folder == place.folder and b"bash" in words.split(b"\0")[0]:
            shells.append(int(process.name))
    assert shells
    for shell in shells:
        os.kill(shell, 9)
    followed = place.run("logs", job, "-f", timeout=120)
    assert followed.code == 7, followed.stdout + followed.stderr
    assert "ended without a receipt" in followed.stderr
    assert "used more memory" not in followed.stderr


@situation
def usr1_arrives_as_usr1(place: Place) -> None:
    job = place.submit(
        "--", "sh", "-c", 'trap "echo warned; exit 3" USR1; touch up; while :; do sleep 0.2; done'
    )
    place.wait_for("up")
    number = job
    place.client(
        *place.pick(
            slurm=f"scancel --batch --signal=USR1 {number}",
            gridengine=None,
            pbs=f"qsig -s USR1 {number}",
        ).split()
    )
    assert place.run("logs", job, "-f").code == 3


@situation
def a_job_that_runs_again(place: Place) -> None:
    text = "if [ -e ran ]; then exit 6; fi; touch ran; sleep 60"
    job = place.submit("--", "sh", "-c", text)
    place.wait_for("ran")
    time.sleep(1)
    place.client(
        *place.pick(slurm=f"scontrol requeue {job}", gridengine=None, pbs=f"qrerun {job}").split()
    )
    if place.scheduler == "slurm":
        end = time.monotonic() + 30
        while (
            "PENDING" not in place.client("squeue", "-h", "-j", job, "-o", "%T")
            and time.monotonic() < end
        ):
            time.sleep(0.3)
        # slurmd clears the first run away; a second one in the same second loses its script with it
        time.sleep(4)
        place.client("scontrol", "update", f"jobid={job}", "starttime=now")
    assert place.run("logs", job, "-f").code == 6


# images, data, disks


@situation
def an_image_that_changes_while_the_job_waits(place: Place) -> None:
    first = place.submit("--", "sleep", "3")
    (place.folder / "swap.sif").hardlink_to(place.folder / "tiny.sif")
    job = place.submit("--after-any", first, "--", "touch", "ran", image="./swap.sif")
    shutil.copy(place.folder / "tiny.sif", place.folder / "new.sif")
    os.utime(place.folder / "new.sif", (1, 1))
    (place.folder / "new.sif").rename(place.folder / "swap.sif")
    followed = place.run("logs", job, "-f")
    assert followed.code == 125, followed.stderr
    assert "the image has changed since the job was submitted" in followed.stdout
    assert not (place.folder / "ran").exists()


@situation
def an_image_that_is_gone_when_the_job_starts(place: Place) -> None:
    (place.folder / "gone.sif").hardlink_to(place.folder / "tiny.sif")
    first = place.submit("--", "sleep", "3")
    job = place.submit("--after-any", first, *NOTHING, image="./gone.sif")
    (place.folder / "gone.sif").unlink()
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
    text = 'touch "r$$"; for i in $(seq 100); do [ "$(ls r* | wc -l)" -lt 2 ] || break; sleep 0.2; done; cat data/images/one; ls r* | wc -l; sleep 1'
    nodes = () if place.scheduler == "gridengine" else ("--nodes", "1")
    words = ("--launcher", "mpi", *nodes, "--tasks", "2", "--cpus", "1", "--stage", "data/images")
    result = place.shell(text, *words)
    lines = result.stdout.splitlines()
    assert lines.count("image") == 2, result.stdout
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


# schedulers that are away, and what they refuse


@situation
def a_scheduler_that_does_not_answer_is_waited_for(place: Place) -> None:
    bin_folder = place.folder / "bin"
    bin_folder.mkdir()
    for name in ("squeue", "sacct", "scontrol", "qstat", "qacct"):
        real = shutil.which(name, path=place.project.environment["PATH"])
        (bin_folder / name).write_text(
            f'#!/bin/sh\nif [ -e {place.folder}/down ]; then cat >&2 <<"END"\n{DOWN[place.scheduler]}\nEND\nexit 255\nfi\nexec {real} "$@"\n'
        )
        (bin_folder / name).chmod(0o755)
    path = f"{bin_folder}:{place.project.environment['PATH']}"
    job = place.submit("--", "sh", "-c", "sleep 75; exit 3")
    (place.folder / "down").touch()
    followed = place.run("logs", job, "-f", path=path)
    assert followed.code == 3, followed.stdout + followed.stderr
    assert "the scheduler does not answer" in followed.stderr
    assert "waiting goes on" in followed.stderr


@situation
def an_unknown_queue_is_refused(place: Place) -> None:
    result = place.run("submit", "./tiny.sif", "--on", f"{place.scheduler}:nosuch", *NOTHING)
    assert result.code == 7
    assert "no queue can ever run this job" in result.stderr


@situation
def what_can_never_run_is_told(place: Place) -> None:
    result = place.wait("--gpus", "9", *NOTHING, code=None)
    assert result.code in (7, 125), result.stderr
    assert re.search("will never start|can ever run|no node has", result.stderr), result.stderr
    if found := re.findall(r"envbuild cancel (\d+)", result.stderr):
        assert place.run("cancel", found[0]).code == 0


@situation
def options_as_they_are_and_those_that_envbuild_owns(place: Place) -> None:
    assert "quote that does not close" in place.refused("--option=--comment=it's", *NOTHING)
    owned = place.pick(
        slurm="--array=1-3 --output=x -ox -Jx",
        gridengine="-t -o -N -pe",
        pbs="-J1-3 -o -N -lselect=2",
    )
    for option in owned.split():
        told = place.refused(f"--option={option}", *NOTHING)
        assert "is an option that envbuild itself gives" in told, option
    option = place.pick(slurm="--comment='two words'", gridengine="-ac 'a=two words'", pbs="-m n")
    place.wait(f"--option={option}", *NOTHING)
    if place.scheduler == "slurm":
        job = place.submit("--option=--comment='two words'", "--option=--hold", *NOTHING)
        assert "Comment=two words" in place.client("scontrol", "show", "job", job)
        place.run("cancel", job)


@situation
def a_job_is_held_and_released(place: Place) -> None:
    hold = place.pick(slurm="--hold", gridengine="-h", pbs="-h")
    job = place.submit(f"--option={hold}", "--", "sh", "-c", "exit 8")
    place.client(
        *place.pick(
            slurm=f"scontrol release {job}", gridengine=f"qrls {job}", pbs=f"qrls {job}"
        ).split()
    )
    assert place.run("logs", job, "-f").code == 8


@situation
def a_running_job_is_shown(place: Place) -> None:
    job = place.submit("--", "sh", "-c", "echo started; touch up; sleep 6")
    place.wait_for("up")
    [row] = json.loads(place.run("status", job, "--json").stdout)
    assert row["state"] == "running", row
    assert "started" in place.run("logs", job).stdout
    assert place.run("logs", job, "-f").code == 0


@situation
def a_command_on_a_node_with_this_terminal(place: Place) -> None:
    command = place.project.command(
        "submit",
        "./tiny.sif",
        "--on",
        place.scheduler,
        "--interactive",
        "--",
        "sh",
        "-c",
        "echo from=$FROM_IMAGE",
    )
    line = shlex.join(command.argv)
    # somebody sits there: qsub goes when its terminal ends
    typing = f"sleep 20 | script -qec {shlex.quote(line)} /dev/null"
    inner = Command(argv=("sh", "-c", typing), cwd=command.cwd, env=command.env, timeout=60)
    result = LocalRunner()(inner, check=False)
    assert "from=yes" in result.stdout, result.stdout + result.stderr


@situation
def a_second_command_beside_a_running_job(place: Place) -> None:
    job = place.submit("--", "sh", "-c", "touch up; sleep 8")
    place.wait_for("up")
    result = place.run("attach", job, "--", "sh", "-c", "exit 4")
    if place.scheduler == "slurm":
        assert result.code == 4, result.stderr
    else:
        assert result.code == 2
        assert "lets nobody into a job that runs" in result.stderr
    place.run("cancel", job)


@situation
def a_site_describes_itself_and_is_probed(place: Place) -> None:
    made = place.run("site", "init", "mine", "--scheduler", place.scheduler)
    assert made.code == 0, made.stderr
    text = (place.folder / "sites/mine.toml").read_text()
    assert re.search(r"^array = \d+$", text, re.MULTILINE), text
    assert "[[partition]]" in text
    probed = place.run("site", "probe", "--on", "mine")
    assert probed.code == 0, probed.stdout + probed.stderr
    assert re.search(
        r'^glibc = "\d\.\d+"$', (place.folder / "sites/mine.toml").read_text(), re.MULTILINE
    )
    ran = place.run(
        "submit",
        "./tiny.sif",
        "--on",
        "mine",
        "--memory",
        "1GiB",
        "--wait",
        "--",
        "sh",
        "-c",
        "exit 3",
    )
    assert ran.code == 3, ran.stdout + ran.stderr


@situation
def several_nodes_are_several(place: Place) -> None:
    if place.scheduler == "gridengine":
        raise NotHereError("a job gets one node where the site has no node types")
    result = place.run(
        "job",
        "./tiny.sif",
        "--on",
        place.scheduler,
        "--nodes",
        "2",
        "--launcher",
        "mpi",
        "--tasks",
        "2",
        *NOTHING,
    )
    lines = [
        line
        for line in result.stdout.splitlines()
        if line.startswith(("#PBS", "#SBATCH", "mapfile", '[ "${#hosts'))
    ]
    (place.folder / "logs").mkdir()
    script = place.folder / "two.sh"
    text = result.stdout.partition("program=$(")[0]
    script.write_text(text + 'printf "%s\\n" "${hosts[@]}" >hosts\nexit\n')
    assert lines
    number = place.client(
        *place.pick(slurm="sbatch --parsable two.sh", gridengine=None, pbs="qsub two.sh").split()
    )
    assert re.match(r"\d+", number), number
    place.wait_for("hosts", 150)
    time.sleep(0.5)
    assert len(set((place.folder / "hosts").read_text().split())) == 2


Outcomes = dict[str, "concurrent.futures.Future[None]"]
KINDS = ("slurm", "gridengine", "pbs")
FIRST = (
    "several_nodes_are_several",
    "a_scheduler_that_does_not_answer_is_waited_for",
    "the_time_limit_is_named",
)
"""Two nodes are hard to get while others run; the rest take longest."""


def attempt(scheduler: str, name: str, clients: Path, parent: Path) -> None:
    folder = parent / f"{scheduler}-{name}"
    folder.mkdir()
    project = make_project(folder, clients)
    project.environment["SMALL"] = str(clients.parents[1 if scheduler == "pbs" else 0] / "small")
    SITUATIONS[name](Place(scheduler=scheduler, project=project))


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Outcomes]]:
    """Run the situations that are asked for at all schedulers at the same time, a few of each."""
    tiny_image()  # made once, before many want it at the same time
    found: dict[str, Outcomes] = {}
    pools = []
    for scheduler in KINDS:
        mine = f"test_a_situation[{scheduler}-"
        own = [item.name for item in request.session.items if item.name.startswith(mine)]
        if not own or (scheduler == "pbs" and not HAS_PBS):
            continue
        clients = request.getfixturevalue("pbs_clients" if scheduler == "pbs" else "clients")
        pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
        pools.append(pool)
        names = sorted((name[len(mine) : -1] for name in own), key=lambda name: name not in FIRST)
        parent = tmp_path_factory.getbasetemp()
        found[scheduler] = {
            name: pool.submit(attempt, scheduler, name, clients, parent) for name in names
        }
    yield found
    for pool in pools:
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("scheduler", KINDS)
def test_a_situation(scheduler: str, name: str, outcomes: dict[str, Outcomes]) -> None:
    if scheduler not in outcomes:
        pytest.skip(f"not installed: OpenPBS in {PBS} (scripts/setup-schedulers.sh install SOURCE)")
    try:
        outcomes[scheduler][name].result()
    except NotHereError as error:
        pytest.skip(str(error))


def test_pbs_without_job_history(pbs_clients: Path, tmp_path: Path) -> None:
    """It is the default of a fresh server: -x shows nothing then, and a job that has ended is unknown at once."""
    place = Place(scheduler="pbs", project=make_project(tmp_path, pbs_clients))
    place.client("qmgr", "-c", "set server job_history_enable = false")
    try:
        job = place.submit("--", "sh", "-c", "touch up; sleep 65; exit 3")
        place.wait_for("up")
        [row] = json.loads(place.run("status", job, "--json").stdout)
        assert row["state"] == "running", row
        good = place.submit(*NOTHING)
        assert place.run("logs", good, "-f").code == 0
        place.shell("exit 5", "--after", good, code=5)
        assert place.run("logs", job, "-f").code == 3
        killed = place.submit("--option=-h", *NOTHING)
        place.client("qdel", killed)
        followed = place.run("logs", killed, "-f")
        assert followed.code == 7
        assert "PBS keeps no history" in followed.stderr
    finally:
        place.client("qmgr", "-c", "set server job_history_enable = true")
