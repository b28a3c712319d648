"""What a node lacks, what is taken away while a job runs, and submissions of unusual size or origin."""

from __future__ import annotations

import shutil

from tests.job.situations_live.changes import hold_option, release, submit_held
from tests.job.situations_live.place import NOTHING, Place, situation

ROWS = 10_000
FROM_A_JOB = {
    "SLURM_JOB_ID": "99999", "SLURM_JOBID": "99999", "SLURM_MEM_PER_CPU": "1", "SLURM_NTASKS": "7",
    "SLURM_CPU_BIND": "none", "SBATCH_PARTITION": "nosuch", "SLURM_EXPORT_ENV": "NONE",
    "PBS_JOBID": "99999.nowhere", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_O_WORKDIR": "/nowhere",
    "JOB_ID": "99999", "SGE_TASK_ID": "7", "SGE_O_WORKDIR": "/nowhere", "ENVIRONMENT": "BATCH",
    "SLURM_ARRAY_TASK_ID": "7", "SLURM_SUBMIT_DIR": "/nowhere", "PBS_ARRAY_INDEX": "7",
}  # fmt: skip
"""What a shell has that runs in a job of its own."""


@situation
def a_module_that_the_node_has_not(place: Place) -> None:
    # scripts of modules use variables that are not set
    text = 'module() { echo "loading $2 $NOT_SET"; [ "$2" != gone ]; }\n'
    (place.folder / "modules.sh").write_text(text)
    init = place.folder / "modules.sh"
    place.add_to_site(f'\n[modules]\ninit = "source {init}"\nload = ["there", "gone"]\n')
    result = place.wait("--", "touch", "ran", code=125)
    assert "loading there" in result.stdout
    assert "envbuild: error: module load gone failed" in result.stdout
    assert not (place.folder / "ran").exists()


@situation
def a_log_at_an_absolute_path(place: Place) -> None:
    pattern = str(place.folder / "out" / "{name}.{id}.txt")
    place.shell("echo here; exit 4", "--output", pattern, code=4)
    [log] = (place.folder / "out").glob("tiny.*.txt")
    assert "here" in log.read_text().splitlines()


@situation
def several_options_of_one_letter(place: Place) -> None:
    """PBS has -W for many things: what envbuild says by it, and what the user does, both count."""
    first = submit_held(place, *NOTHING)
    more = place.pick(slurm=None, gridengine=None, pbs="-W run_count=3")
    job = place.submit("--after", first, f"--option={more}", "--", "sh", "-c", "touch made; exit 4")
    shown = place.client("qstat", "-f", job)
    assert "run_count = 3" in shown
    assert f"afterok:{first}." in shown
    release(place, first)
    assert place.run("logs", job, "-f").code == 4
    assert (place.folder / "made").stat().st_mode & 0o777 == 0o644


@situation
def a_table_of_ten_thousand_rows(place: Place) -> None:
    rows = "".join(f"{number}\n" for number in range(ROWS))
    (place.folder / "p.csv").write_text(f"lr\n{rows}")
    words = (f"--option={hold_option(place)}", "--each", "p.csv", "--", "echo", "{lr}")
    if place.scheduler == "slurm":
        told = place.refused(*words, code=7)
        assert "the array has more tasks than the scheduler takes" in told
        return
    job = place.submit(*words)
    place.wait_for_state(job, "queued")
    assert place.run("cancel", job).code == 0


@situation
def an_array_of_one_task(place: Place) -> None:
    words = ("--array", "5-5", "--", "sh", "-c", "exit 4")
    if place.scheduler == "pbs":
        assert "array" in place.refused(*words)
    else:
        place.wait(*words, code=4)


@situation
def a_job_is_submitted_by_another_job(place: Place) -> None:
    line = ("submit", "./tiny.sif", "--on", place.scheduler, "--wait", "--", "sh", "-c")
    done = place.run(*line, "pwd; exit 4", variables=FROM_A_JOB)
    assert done.code == 4, done.stdout + done.stderr
    assert str(place.folder) in done.stdout.splitlines()


@situation
def the_folder_of_logs_is_removed_while_the_job_runs(place: Place) -> None:
    job = place.submit("--", "sh", "-c", "touch up; while [ ! -e go ]; do sleep 0.2; done; exit 4")
    place.wait_for("up")
    shutil.rmtree(place.folder / "logs")
    (place.folder / "go").touch()
    followed = place.run("logs", job, "-f")
    assert followed.code == 4, followed.stdout + followed.stderr


@situation
def what_envbuild_keeps_is_removed_while_the_job_runs(place: Place) -> None:
    """There is no receipt then; nobody is told that it succeeded."""
    job = place.submit("--", "sh", "-c", "touch up; while [ ! -e go ]; do sleep 0.2; done; exit 4")
    place.wait_for("up")
    for path in (place.folder / ".envbuild/jobs").glob("*.receipt*"):
        path.unlink()
    (place.folder / "go").touch()
    followed = place.run("logs", job, "-f")
    assert followed.code in (4, 7), followed.stdout + followed.stderr
    assert followed.code == 4 or "without a receipt" in followed.stderr


@situation
def a_name_of_two_hundred_letters(place: Place) -> None:
    assert "is not a valid job name" in place.refused("--name", "a" * 200, *NOTHING)


@situation
def a_home_that_cannot_be_written(place: Place) -> None:
    """It holds the store: that is told before anything is submitted."""
    home = place.folder / "home"
    shutil.rmtree(home)
    home.symlink_to("/proc/nowhere")
    assert "home/.cache/envbuild" in place.refused(*NOTHING, code=7)
