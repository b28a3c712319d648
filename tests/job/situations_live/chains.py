"""Arrays, tables, and one job after another."""

from __future__ import annotations

import concurrent.futures
import json
import re

from tests.job.situations_live.place import NOTHING, Place, situation


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


@situation
def after_an_array_by_the_id_that_was_printed(place: Place) -> None:
    first = place.submit(
        "--array",
        "1-2",
        "--",
        "sh",
        "-c",
        "sleep 2; touch first-$(cat /proc/sys/kernel/random/uuid)",
    )
    result = place.shell("ls first-*; exit 4", "--after", first, code=4)
    assert result.stdout.count("first-") == 2


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


@situation
def after_a_job_that_nobody_knows(place: Place) -> None:
    """PBS takes such a job, and deletes it at once."""
    words = ("--after", "99999", "--", "touch", "ran")
    if place.scheduler == "pbs":
        followed = place.run("logs", place.submit(*words), "-f")
        assert followed.code == 7, followed.stdout + followed.stderr
        assert "ended without a receipt" in followed.stderr
    else:
        assert "99999" in place.refused(*words)
    assert not (place.folder / "ran").exists()


@situation
def ten_submissions_at_the_same_time(place: Place) -> None:
    """Of one folder: each has an id, a record, a log and a code of its own."""
    codes = range(1, 11)
    with concurrent.futures.ThreadPoolExecutor(len(codes)) as pool:
        jobs = list(pool.map(lambda code: place.submit("--", "sh", "-c", f"exit {code}"), codes))
    assert len(set(jobs)) == len(codes)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        followed = list(pool.map(lambda job: place.run("logs", job, "-f").code, jobs))
    assert followed == list(codes)
    rows = json.loads(place.run("status", "--json").stdout)
    assert {row["job"] for row in rows} == set(jobs)


@situation
def a_chain_of_three_is_submitted_at_once(place: Place) -> None:
    first = place.submit("--", "sh", "-c", "sleep 1; echo 1 >>order")
    second = place.submit("--after", first, "--", "sh", "-c", "echo 2 >>order")
    more = ("--after", second, "--after-any", second, "--after-any", first)
    place.shell("echo 3 >>order; exit 5", "--after", second, *more, code=5)
    assert (place.folder / "order").read_text().split() == ["1", "2", "3"]


@situation
def what_follows_a_job_that_is_cancelled(place: Place) -> None:
    first = place.submit("--", "sh", "-c", "touch up; sleep 60")
    second = place.submit("--after", first, "--", "touch", "ran")
    place.wait_for("up")
    assert place.run("cancel", first).code == 0
    followed = place.run("logs", second, "-f")
    assert followed.code != 0, followed.stdout + followed.stderr
    assert re.search(
        "follows|waits for has failed|did not succeed", followed.stderr + followed.stdout
    ), followed.stderr
    assert not (place.folder / "ran").exists()


@situation
def after_an_array_of_which_one_task_fails(place: Place) -> None:
    variable = place.pick(
        slurm="SLURM_ARRAY_TASK_ID", gridengine="SGE_TASK_ID", pbs="PBS_ARRAY_INDEX"
    )
    first = place.submit("--array", "1-3", "--", "sh", "-c", f"sleep 2; [ ${variable} != 2 ]")
    result = place.wait("--after", first, "--", "touch", "ran", code=None)
    assert result.code != 0, result.stdout
    place.shell("exit 4", "--after-any", first, code=4)
    assert not (place.folder / "ran").exists()


@situation
def an_array_is_cancelled_while_some_of_it_waits(place: Place) -> None:
    job = place.submit("--array", "1-4%1", "--", "sh", "-c", "touch up; sleep 60")
    place.wait_for("up")
    assert place.run("cancel", job).code == 0
    followed = place.run("logs", job, "-f")
    assert followed.code in (7, 143), followed.stdout + followed.stderr
    assert "cancelled" in followed.stderr, followed.stderr
    [row] = json.loads(place.run("status", job, "--json").stdout)
    assert row["state"] == "cancelled", row
