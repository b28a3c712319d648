"""What clients print, recorded from real ones, and what it means."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from envbuild.errors import ToolFailedError
from envbuild.job.model import Status
from envbuild.job.schedulers import SCHEDULERS
from envbuild.run import Result

RECORDED = Path(__file__).parents[1] / "recorded"


def result(text: str, code: int = 0) -> Result:
    return Result(argv=("client",), code=code, stdout=text, stderr="", seconds=0)


def read(scheduler: str, question: int, file: str, job: str) -> Status | None:
    text = (RECORDED / scheduler / file).read_text()
    return SCHEDULERS[scheduler].questions(job)[question].read(result(text), job)


NEVER = "the job it waits for has failed"
OUTPUT = 'error: can\'t open output file "/nonexistent/x": No such file or directory'


@pytest.mark.parametrize(
    ("scheduler", "question", "file", "job", "expected"),
    [
        ("slurm", 0, "squeue-running.txt", "7", Status(phase="running", node="vm")),
        ("slurm", 0, "squeue-array-pending.txt", "8", Status(phase="queued")),
        ("slurm", 0, "squeue-dependency.txt", "9", Status(phase="queued", reason="Dependency")),
        ("slurm", 0, "squeue-never.txt", "9", Status(phase="queued", reason=NEVER, stuck=True)),
        ("slurm", 0, "squeue-ended.txt", "7", None),
        ("slurm", 1, "sacct-disabled.txt", "7", None),
        ("slurm", 2, "scontrol-running.txt", "7", Status(phase="running", node="vm")),
        (
            "slurm",
            2,
            "scontrol-cancelled.txt",
            "7",
            Status(phase="ended", reason="it was cancelled", node="vm"),
        ),
        (
            "slurm",
            2,
            "scontrol-failed.txt",
            "10",
            Status(phase="ended", reason="it failed", code=3, node="vm"),
        ),
        (
            "slurm",
            2,
            "scontrol-array.txt",
            "8",
            Status(phase="ended", reason="it failed", code=3, node="vm"),
        ),
        ("gridengine", 0, "qstat-running.txt", "15", Status(phase="running")),
        ("gridengine", 0, "qstat-mixed.txt", "17", Status(phase="running")),
        ("gridengine", 0, "qstat-mixed.txt", "18", Status(phase="queued")),
        (
            "gridengine",
            0,
            "qstat-mixed.txt",
            "16",
            Status(phase="queued", reason="it is in the error state Eqw", stuck=True),
        ),
        ("gridengine", 0, "qstat-later.txt", "1", None),
        (
            "gridengine",
            1,
            "qacct-array.txt",
            "17",
            Status(phase="ended", code=0, node="localhost"),
        ),
        (
            "gridengine",
            1,
            "qacct-time.txt",
            "19",
            Status(
                phase="ended",
                reason="it reached a limit of time or memory",
                code=137,
                node="localhost",
            ),
        ),
        ("gridengine", 1, "qacct-unknown.txt", "99999", None),
        ("pbs", 0, "qstat-running.json", "3.pbs1", Status(phase="running", node="pbs2")),
        (
            "pbs",
            2,
            "qstat-failed.json",
            "0.pbs1",
            Status(phase="ended", reason="it failed", code=3, node="pbs1"),
        ),
        (
            "pbs",
            0,
            "qstat-never.json",
            "2.pbs1",
            Status(
                phase="queued",
                reason="Can Never Run: Insufficient amount of resource: ngpus (R: 5 A: 2 T: 2)",
                stuck=True,
            ),
        ),
        ("pbs", 0, "qstat-held.json", "7.pbs1", Status(phase="queued", reason="held")),
        (
            "pbs",
            2,
            "qstat-deleted.json",
            "4.pbs1",
            Status(phase="ended", reason="it was cancelled", node="pbs2"),
        ),
        (
            "pbs",
            2,
            "qstat-array-deleted.json",
            "8[].pbs1",
            Status(phase="ended", reason="it was cancelled before it ran"),
        ),
        (
            "pbs",
            2,
            "qstat-time.json",
            "11.pbs1",
            Status(phase="ended", reason="it reached its time limit", node="pbs1"),
        ),
        (
            "pbs",
            2,
            "qstat-dependency.json",
            "6.pbs1",
            Status(phase="ended", reason="it ended without having run"),
        ),
        ("pbs", 0, "qstat-empty.json", "9.pbs1", None),
        ("pbs", 0, "qstat-broken.json", "0.vm", None),
        ("pbs", 1, "qstat-text.txt", "3.pbs1", Status(phase="running", node="pbs2")),
    ],
)
def test_states(
    scheduler: str, question: int, file: str, job: str, expected: Status | None
) -> None:
    assert read(scheduler, question, file, job) == expected


@pytest.mark.parametrize(
    ("file", "known"),
    [("finished", True), ("unknown", True), ("down", False)],
)
def test_what_pbs_says_of_a_job_that_it_does_not_know(file: str, known: bool) -> None:
    """A server that cannot be reached says something else, and that is no answer."""
    text = (RECORDED / f"pbs/qstat-{file}.err").read_text()
    assert bool(re.search(SCHEDULERS["pbs"].features.unknown, text)) == known


@pytest.mark.parametrize(
    ("why", "stuck"),
    [
        ("ncpus (R: 1 A: 0 T: 0)", False),  # the server was started a second ago
        ("ncpus (R: 9 A: 2 T: 2)", True),
        ("ngpus (R: 1 A: 0 T: 0)", True),
    ],
)
def test_a_pbs_whose_nodes_are_all_away_may_run_the_job_later(why: str, stuck: bool) -> None:
    comment = f"Can Never Run: Insufficient amount of resource: {why}"
    text = f'{{"Jobs": {{"1.pbs1": {{"job_state": "Q", "comment": "{comment}"}}}}}}'
    status = SCHEDULERS["pbs"].questions("1.pbs1")[0].read(result(text), "1.pbs1")
    assert status == Status(phase="queued", reason=comment, stuck=stuck)


def test_pbs_without_history_says_so() -> None:
    said = replace(result(""), stderr=(RECORDED / "pbs/qstat-no-history.err").read_text())
    found = SCHEDULERS["pbs"].questions("3.pbs1")[2].read(said, "3.pbs1")
    assert found is not None
    assert (found.phase, found.reason[:24]) == ("unknown", "PBS keeps no history (jo")


def test_grid_engine_says_why_a_job_is_stuck() -> None:
    why = SCHEDULERS["gridengine"].questions("16")[0].why
    assert why is not None
    found = why.read(result((RECORDED / "gridengine/qstat-error.txt").read_text()), "16")
    assert found is not None
    assert (found.phase, found.reason.endswith(OUTPUT)) == ("queued", True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "5|TIMEOUT|0:0|None|n1",
            Status(phase="ended", reason="it reached its time limit", code=0, node="n1"),
        ),
        (
            "5|CANCELLED by 1000|0:15|None|n1",
            Status(phase="ended", reason="it was cancelled", node="n1"),
        ),
        (
            "5|OUT_OF_MEMORY|0:125|None|n1",
            Status(phase="ended", reason="it used more memory than it had asked for", node="n1"),
        ),
        ("5|NODE_FAIL|0:0|None|n1", Status(phase="ended", reason="its node failed", node="n1")),
        ("5|COMPLETED|0:0|None|n1", Status(phase="ended", code=0, node="n1")),
        (
            "5|FAILED|0:9|NonZeroExitCode|n1",
            Status(phase="ended", reason="it failed", code=137, node="n1"),
        ),
        ("5|FAILED|0:53|JobLaunchFailure|n1", None),
        (
            "5|FAILED|0:9|JobLaunchFailure|n1",
            Status(
                phase="ended",
                reason="it was killed by signal 9, as by a node that watches over memory",
                node="n1",
            ),
        ),
        ("5|PENDING|0:0|Priority|", Status(phase="queued", reason="Priority")),
        ("5|FAILED|1:0|None|n1\n6|RUNNING|0:0|None|n2", Status(phase="running", node="n2")),
    ],
)
def test_accounting_of_slurm(line: str, expected: Status | None) -> None:
    """Killed states carry no code of the command's, whatever the field says."""
    found = SCHEDULERS["slurm"].questions("5")[1].read(result(line + "\n"), "5")
    assert found is not None
    if expected is None:
        assert found.reason.startswith("it could not be started on its node")
    else:
        assert (found.phase, found.reason, found.node) == (
            expected.phase,
            expected.reason,
            expected.node,
        )
        assert found.code == (None if line.startswith("5|TIMEOUT") else expected.code)


@pytest.mark.parametrize(
    ("scheduler", "printed", "expected"),
    [
        ("slurm", "12\n", "12"),
        ("slurm", "Welcome!\n12;cluster\n", "12"),
        ("gridengine", "4\n", "4"),
        ("gridengine", "You have 12 points\n10.1-3:1\n", "10"),
        ("pbs", "123.server.site\n", "123.server.site"),
        ("pbs", "note\n2[].vm\n", "2[].vm"),
        ("local", "4711\n", "4711"),
    ],
)
def test_ids(scheduler: str, printed: str, expected: str) -> None:
    assert SCHEDULERS[scheduler].read_id(result(printed)) == expected


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("printed", ["", "garbage\n", "\x1b[31mred 5\n", "12 13\n"])
def test_no_id(scheduler: str, printed: str) -> None:
    with pytest.raises(ToolFailedError) as told:
        SCHEDULERS[scheduler].read_id(result(printed))
    assert told.value.what.startswith(
        "the job was perhaps submitted, but no id of it was found in: "
    )
