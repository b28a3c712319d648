"""Schedulers that misbehave: no id, garbage, silence, late accounting, lost jobs; and folders that cannot be written."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import envbuild.job
from envbuild.app.image import name_of_file
from envbuild.context import Context, open_context
from envbuild.errors import EnvbuildError, HostError, ToolFailedError, UsageError
from envbuild.job.compose import check_name
from envbuild.job.model import Job, Record
from envbuild.job.preflight import check_client, check_predecessors
from envbuild.job.schedulers import SCHEDULERS, scheduler_of
from envbuild.job.schedulers.protocol import check_owned, script_text
from envbuild.job.sites.find import load_site
from envbuild.job.submit import submit
from envbuild.job.track.cancel import Cancelled, cancel_job
from envbuild.job.track.monitor import Clock, exit_code, status_of, wait
from envbuild.job.track.records import find_record, load_records, receipt_files, save_record
from envbuild.job.track.tail import LogTail
from envbuild.progress import Silent
from envbuild.run import Command, LocalRunner, Result
from envbuild.settings import Settings
from tests.job.situations import plan

NAMES = {"slurm": "amane", "gridengine": "tsubame4", "pbs": "abci3", "local": "local"}


@pytest.fixture(params=["slurm", "gridengine", "pbs"])
def site_name(request: pytest.FixtureRequest) -> str:
    """One site of each scheduler."""
    return NAMES[request.param]


UNKNOWN = "echo 'Invalid job id specified; Unknown Job Id; error: job id 42 not found' >&2; exit 1"
"""What the clients of the three say of a job that they do not know; other failures are no answer."""


class Fake:
    """A machine whose clients are small scripts; the commands are run for real."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for tool in ("sh", "cat", "head", "printf", "sleep"):
            found = shutil.which(tool)
            assert found is not None
            (folder / tool).symlink_to(found)
        self.settings = replace(settings, environment={**settings.environment, "PATH": str(folder)})
        self.runner = LocalRunner()
        self.asked: list[Command] = []

    def client(self, text: str, *names: str) -> None:
        for name in names:
            path = self.folder / name
            path.unlink(missing_ok=True)
            path.write_text(f"#!/bin/sh\ncd '{self.settings.cwd}' || exit\n{text}\n")
            path.chmod(0o755)

    @property
    def context(self) -> Context:
        return open_context(self.settings, self, Silent())

    def __call__(self, command: Command, *, check: bool = True) -> Result:
        self.asked.append(command)
        limit = None if command.timeout is None else min(command.timeout, 0.5)
        return self.runner(replace(command, timeout=limit), check=check)


@pytest.fixture
def fake(user_settings: Settings, tmp_path: Path) -> Fake:
    return Fake(user_settings, tmp_path / "bin")


def hand_in(fake: Fake, site_name: str) -> Record:
    job, site = plan(site_name, "single", fake.settings)
    return submit(job, site, fake.context, key="key")


def test_a_submission_leaves_script_record_and_log_folder(
    fake: Fake, site_name: str, tmp_path: Path
) -> None:
    fake.client("echo 42", "sbatch", "qsub")
    record = hand_in(fake, site_name)
    assert record.id == "42"
    assert (tmp_path / "logs").is_dir()
    assert (tmp_path / ".envbuild/jobs/key.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / ".envbuild/.gitignore").read_text() == "*\n"
    assert load_records(tmp_path) == (record,)


def test_the_client_sees_no_formats_and_no_secrets(fake: Fake, site_name: str) -> None:
    fake.client("echo 42", "sbatch", "qsub")
    noisy = {
        "SQUEUE_FORMAT": "x",
        "SBATCH_PARTITION": "y",
        "WANDB_API_KEY": "z",
        "SGE_ROOT": "/sge",
        "QSUB_OPTIONS": "q",
    }
    fake.settings = replace(fake.settings, environment={**fake.settings.environment, **noisy})
    hand_in(fake, site_name)
    seen = fake.asked[-1].env or {}
    assert not {"SQUEUE_FORMAT", "SBATCH_PARTITION", "WANDB_API_KEY", "QSUB_OPTIONS"} & set(seen)
    assert (seen["SGE_ROOT"], seen["LC_ALL"]) == ("/sge", "C")


def test_no_id(fake: Fake, site_name: str) -> None:
    fake.client("echo thank you", "sbatch", "qsub")
    with pytest.raises(ToolFailedError) as told:
        hand_in(fake, site_name)
    assert (
        told.value.what == "the job was perhaps submitted, but no id of it was found in: thank you"
    )
    assert not load_records(fake.settings.cwd)


def test_a_client_that_hangs(fake: Fake, site_name: str) -> None:
    fake.client("exec sleep 30", "sbatch", "qsub")
    with pytest.raises(ToolFailedError) as told:
        hand_in(fake, site_name)
    assert "did not answer within 120 s" in told.value.what
    assert "may have been submitted all the same" in (told.value.hint or "")


def test_no_client(fake: Fake, site_name: str) -> None:
    with pytest.raises(HostError) as told:
        hand_in(fake, site_name)
    title = {"amane": "Slurm", "tsubame4": "Grid Engine", "abci3": "PBS"}[site_name]
    assert told.value.what.endswith(f"was not found: there is no {title} on this machine")


@pytest.mark.parametrize(
    ("site_name", "said", "meaning"),
    [
        ("amane", "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", "the account is not accepted"),
        ("amane", "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)", "a limit or quota of the account is reached"),
        ("amane", "sbatch: error: Batch job submission failed: Requested node configuration is not available", "no node has what the job asks for"),
        ("tsubame4", 'Unable to run job: job rejected: the requested project "nosuch" does not exist\nExiting.', "the account is not accepted"),
        ("amane", "sbatch: fatal: Could not establish a configuration source", "the scheduler does not answer"),
        ("amane", "sbatch: error: Memory specification can not be satisfied", "no node has what the job asks for"),
        ("tsubame4", "Unable to run job: error: no suitable queues\nExiting.", "no queue can ever run this job"),
        ("tsubame4", 'Unable to run job: unknown resource "nosuch"', "the scheduler does not know a resource that the site file names"),
        ("abci3", "qsub: Unknown queue", "no queue can ever run this job"),
        ("abci3", "qsub: would exceed queue generic's per-user limit", "a limit or quota of the account is reached"),
        ("abci3", "qsub: cannot connect to server vm (errno=111)", "the scheduler does not answer"),
        ("abci3", "qsub: Job violates queue and/or server resource limits", "the job asks for more than its queue or the server gives"),
        ("abci3", "qsub: Invalid Account", "the account is not accepted"),
        ("amane", "sbatch: error: Batch job submission failed: Invalid job array specification", "the array has more tasks than the scheduler takes"),
        ("tsubame4", "Unable to run job: got send error\nExiting.", "the scheduler does not answer"),
        ("abci3", "qsub: something new", "the job was refused"),
    ],
)  # fmt: skip
def test_refusals_are_explained_in_their_own_words(
    fake: Fake, site_name: str, said: str, meaning: str
) -> None:
    fake.client(f"cat >&2 <<'END'\n{said}\nEND\nexit 1", "sbatch", "qsub")
    with pytest.raises(ToolFailedError) as told:
        hand_in(fake, site_name)
    assert told.value.what.startswith(meaning)
    assert said in told.value.what
    assert told.value.where == f"site {site_name}"


@pytest.mark.parametrize("name", [name for name, one in SCHEDULERS.items() if one.features.queues])
def test_what_a_new_scheduler_must_say_of_itself(name: str) -> None:
    features = SCHEDULERS[name].features
    assert {"account", "silent"} <= set(features.refusals)
    # the sampler of a job finds the job's processes by its number
    numbers = re.findall(
        r'"(\w+)"', script_text("use.py").partition("JOBS = ")[2].partition("\n")[0]
    )
    assert any(number in features.shell.id for number in numbers)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_log_folder_that_cannot_be_written(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o500)
    with pytest.raises(HostError, match="cannot be written"):
        hand_in(fake, "amane")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_project_that_cannot_be_written(fake: Fake, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(HostError, match="cannot be written"):
            hand_in(fake, "amane")
    finally:
        tmp_path.chmod(0o700)
    assert not fake.asked


def test_a_log_folder_that_is_a_file(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    with pytest.raises(HostError) as told:
        hand_in(fake, "amane")
    assert told.value.where == str(tmp_path / "logs")
    assert not fake.asked


def test_a_closed_site_takes_no_jobs(fake: Fake) -> None:
    with pytest.raises(UsageError) as told:
        hand_in(fake, "tsubame3")
    assert str(told.value) == "site tsubame3: the site closed on 2024-03-31"


class Said(Silent):
    """Keeps what is said."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def say(self, text: str) -> None:
        self.lines.append(text)


class Watch:
    """A wait with a clock that jumps instead of sleeping."""

    def __init__(self, fake: Fake, site_name: str, tasks: tuple[int, ...] = ()) -> None:
        self.fake, self.site = fake, load_site(site_name, fake.settings)
        log = "logs/x-{id}-{task}.log" if tasks else "logs/x-{id}.log"
        self.record = Record(
            id="42",
            site=site_name,
            name="x",
            script="s",
            log=log,
            receipt=log.replace(".log", ".json"),
            submitted="2026-01-01T00:00:00Z",
            tasks=tasks,
        )
        save_record(self.record, fake.settings.cwd)
        (fake.settings.cwd / "logs").mkdir(exist_ok=True)
        self.time = 0.0
        self.said: list[str] = []
        self.written: list[str] = []
        self.events: dict[float, object] = {}

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        assert self.time < 3600, self.said
        for due in [due for due in self.events if due <= self.time]:
            action = self.events.pop(due)
            assert callable(action)
            action()

    def receipt(self, code: int, task: str = "", signal: str = "") -> None:
        path = next(
            path
            for path in receipt_files(self.record, self.fake.settings.cwd)
            if task in path.stem[-1:] or not task
        )
        data = {
            "job": "42",
            "name": "x",
            "code": code,
            "node": "n1",
            "started": "a",
            "ended": "b",
            "task": task,
            "signal": signal,
        }
        path.write_text(json.dumps(data))

    def wait(self) -> int:
        tail = LogTail((self.fake.settings.cwd / "logs/x-42.log",), self.written.append)
        clock = Clock(now=lambda: self.time, sleep=self.sleep)
        found = wait(
            self.record,
            self.site,
            open_context(self.fake.settings, self.fake, Said(self.said)),
            tail=tail,
            clock=clock,
        )
        return exit_code(found)


def test_a_job_that_waits_runs_and_ends(fake: Fake) -> None:
    fake.client("cat queue", "squeue")
    watch = Watch(fake, "amane")
    queue, log = fake.settings.cwd / "queue", fake.settings.cwd / "logs/x-42.log"
    queue.write_text("42|PENDING|Priority|\n")
    watch.events = {
        3.0: lambda: queue.write_text("42|RUNNING|None|n1\n"),
        9.0: lambda: log.write_text("one\n"),
        11.0: lambda: log.write_text("one\ntwo\n"),
        20.0: lambda: watch.receipt(3),
    }
    assert watch.wait() == 3
    assert watch.said == ["job 42 waits (Priority)", "job 42 runs on n1"]
    assert "".join(watch.written) == "one\ntwo\n"
    assert len(fake.asked) <= 8, "it backs off"


def test_an_unknown_job_is_not_a_finished_one(fake: Fake, site_name: str) -> None:
    """Accounting may lag behind; only after a grace period is the job given up, and never as done."""
    fake.client(UNKNOWN, "squeue", "sacct", "scontrol", "qstat", "qacct")
    watch = Watch(fake, site_name)
    with pytest.raises(HostError) as told:
        watch.wait()
    assert (
        told.value.what == "job 42 is gone: the scheduler does not know it, and it left no receipt"
    )
    assert watch.time >= 60


def test_a_receipt_that_comes_late_is_believed(fake: Fake, site_name: str) -> None:
    fake.client(UNKNOWN, "squeue", "sacct", "scontrol", "qstat", "qacct")
    watch = Watch(fake, site_name)
    watch.events = {40.0: lambda: watch.receipt(0)}
    assert watch.wait() == 0


def test_garbage_and_silence_are_no_answers(fake: Fake, site_name: str) -> None:
    record = Watch(fake, site_name).record
    site = load_site(site_name, fake.settings)
    for text in (
        "head -c 4096 /dev/urandom",
        "exec sleep 30",
        "echo '{\"Jobs\": 5}'",
        'echo \'{"Jobs": {"42.s": 5}}\'',
        "printf '|||||\\n'",
    ):
        fake.client(text, "squeue", "sacct", "scontrol", "qstat", "qacct")
        found = status_of(record, site, fake.context)
        assert found.phase in ("unknown", "ended"), text
        assert found.code is None


def test_slow_accounting_is_asked_again(fake: Fake) -> None:
    fake.client(UNKNOWN, "squeue", "scontrol")
    fake.client("cat accounting 2>/dev/null", "sacct")
    watch = Watch(fake, "amane")
    accounting = fake.settings.cwd / "accounting"
    watch.events = {30.0: lambda: accounting.write_text("42|OUT_OF_MEMORY|0:125|None|n1\n")}
    with pytest.raises(HostError) as told:
        watch.wait()
    assert (
        told.value.what
        == "job 42 ended without a receipt: it used more memory than it had asked for"
    )
    assert watch.time < 60


@pytest.mark.parametrize(
    ("site_name", "client", "text", "reason"),
    [
        (
            "amane",
            "squeue",
            "echo '42|PENDING|DependencyNeverSatisfied|'",
            "the job it waits for has failed",
        ),
        (
            "tsubame4",
            "qstat",
            "[ $# = 0 ] && echo '42 0.5 x me Eqw 1 2 3' || echo 'error reason 1: no folder'",
            "no folder",
        ),
        (
            "abci3",
            "qstat",
            "printf '    job_state = Q\\n    comment = Can Never Run: ngpus\\n'",
            "Can Never Run: ngpus",
        ),
    ],
)
def test_a_job_that_can_never_start_is_told_at_once(
    fake: Fake, site_name: str, client: str, text: str, reason: str
) -> None:
    fake.client(text, client)
    with pytest.raises(HostError) as told:
        Watch(fake, site_name).wait()
    assert told.value.what == f"job 42 will never start: {reason}"
    assert told.value.hint == "envbuild cancel 42, and ask for something else"


@pytest.mark.parametrize(
    ("site_name", "client", "text", "hint"),
    [
        (
            "amane",
            "sacct",
            "echo '42|TIMEOUT|0:15|None|n1'",
            "it has written no log, so look whether its script could begin",
        ),
        (
            "abci3",
            "qstat",
            "printf '    job_state = F\n    Exit_status = -29\n'",
            (
                "it has written no log, so look whether its script could begin: "
                "your login files (~/.bash_profile, ~/.profile) are read first, and may take long"
            ),
        ),
    ],
)
def test_a_job_that_wrote_nothing_says_what_runs_before_it(
    fake: Fake, site_name: str, client: str, text: str, hint: str
) -> None:
    fake.client(UNKNOWN, "squeue", "scontrol")
    fake.client(text, client)
    with pytest.raises(HostError) as told:
        Watch(fake, site_name).wait()
    assert told.value.what == "job 42 ended without a receipt: it reached its time limit"
    assert told.value.hint == hint


def test_an_array_ends_with_its_worst_task(fake: Fake) -> None:
    fake.client("echo '42_2|RUNNING|None|n1'", "squeue")
    watch = Watch(fake, "amane", tasks=(1, 2))
    watch.events = {1.0: lambda: watch.receipt(0, "1"), 5.0: lambda: watch.receipt(9, "2")}
    assert watch.wait() == 9


def test_the_tasks_that_left_no_receipt_are_named(fake: Fake) -> None:
    """A task that waited and was taken away by the scheduler's own command leaves no trace."""
    fake.client(UNKNOWN, "squeue", "sacct")
    fake.client("echo 'JobState=COMPLETED Reason=None ExitCode=0:0 NodeList=n1'", "scontrol")
    watch = Watch(fake, "amane", tasks=(1, 2, 3))
    watch.receipt(0, "1")
    watch.receipt(0, "2")
    with pytest.raises(HostError) as told:
        watch.wait()
    assert told.value.what.startswith("job 42, task 3, ended without a receipt: ")


@pytest.mark.parametrize("text", ["", "{", '{"code": "x"}', "[]", "\x00", '{"schema": 99}'])
def test_a_broken_receipt_is_none(fake: Fake, text: str) -> None:
    fake.client("echo '42|OUT_OF_MEMORY|0:125|None|n1'", "sacct")
    fake.client(UNKNOWN, "squeue", "scontrol")
    watch = Watch(fake, "amane")
    (fake.settings.cwd / "logs/x-42.json").write_text(text)
    with pytest.raises(EnvbuildError, match="without a receipt"):
        watch.wait()


def test_a_job_that_was_put_back_into_the_queue_has_not_ended(fake: Fake) -> None:
    """Its node failed or another job took its place: the signal's receipt is not the last word."""
    fake.client("cat queue", "squeue")
    fake.client(UNKNOWN, "sacct", "scontrol")
    watch = Watch(fake, "amane")
    queue = fake.settings.cwd / "queue"
    queue.write_text("42|RUNNING|None|n1\n")

    def requeue() -> None:
        watch.receipt(143, signal="TERM")
        queue.write_text("42|PENDING|BeginTime|\n")

    def again() -> None:
        (fake.settings.cwd / "logs/x-42.json").unlink()  # the script's first act
        queue.write_text("42|RUNNING|None|n2\n")

    watch.events = {2.0: requeue, 90.0: again, 120.0: lambda: watch.receipt(0)}
    assert watch.wait() == 0
    assert watch.said == ["job 42 runs on n1", "job 42 waits (BeginTime)", "job 42 runs on n2"]
    assert len(fake.asked) < 20, "it backs off"


def test_a_second_run_that_ends_while_the_scheduler_is_asked_has_the_last_word(fake: Fake) -> None:
    watch = Watch(fake, "amane")
    receipt, second = fake.settings.cwd / "logs/x-42.json", fake.settings.cwd / "second.json"
    watch.receipt(6)
    receipt.rename(second)
    watch.receipt(143, signal="TERM")
    fake.client(
        'read -r text <second.json; printf %s "$text" >logs/x-42.json; echo Invalid job id specified; exit 1',
        "squeue",
    )
    fake.client("echo '42|FAILED|6:0|None|n2'", "sacct")
    assert watch.wait() == 6


def test_a_cancelled_job_ends_with_its_receipt(fake: Fake) -> None:
    fake.client("cat queue", "squeue")
    fake.client(UNKNOWN, "sacct", "scontrol")
    watch = Watch(fake, "amane")
    queue = fake.settings.cwd / "queue"
    queue.write_text("42|RUNNING|None|n1\n")
    watch.events = {
        1.0: lambda: watch.receipt(143, signal="TERM"),
        5.0: lambda: queue.write_text(""),
    }
    assert watch.wait() == 143
    assert watch.time < 10


def test_a_long_log_is_read_in_pieces_and_no_character_is_broken(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    whole = "x" + "語" * 900_000
    log.write_text(whole, "utf-8")
    said: list[str] = []
    tail = LogTail((log,), said.append)
    tail.move()
    assert "".join(said) == whole
    assert max(map(len, said)) <= 1024 * 1024
    with log.open("ab") as file:  # half of one, and then the rest
        file.write("é".encode()[:1])
    tail.move()
    with log.open("ab") as file:
        file.write("é".encode()[1:])
    tail.move()
    assert "".join(said) == whole + "é"


def test_the_end_of_a_log_that_is_seen_after_the_receipt_is_shown(fake: Fake) -> None:
    """Shared file systems show a log's new size seconds after the receipt."""
    fake.client("echo '42|RUNNING|None|n1'", "squeue")
    watch = Watch(fake, "amane")
    log = fake.settings.cwd / "logs/x-42.log"
    log.write_text("one\n")
    end = "one\ntwo\nenvbuild: ended with code 3\n"
    watch.events = {2.0: lambda: watch.receipt(3), 5.0: lambda: log.write_text(end)}
    assert watch.wait() == 3
    assert "".join(watch.written) == end


def test_a_log_without_its_end_is_not_waited_for_long(fake: Fake) -> None:
    fake.client("echo '42|RUNNING|None|n1'", "squeue")
    watch = Watch(fake, "amane")
    (fake.settings.cwd / "logs/x-42.log").write_text("one\n")
    watch.receipt(3)
    assert watch.wait() == 3
    assert watch.time < 10


def test_a_log_that_was_there_before_is_not_shown_again(tmp_path: Path) -> None:
    """Two sites may give the same number; a job adds to what it finds."""
    said: list[str] = []
    log = tmp_path / "x-42.log"
    log.write_text("of another job\n")
    tail = LogTail((log,), said.append, before={log: log.stat().st_size})
    tail.move()
    log.write_text("of another job\nmine\n")
    tail.move()
    log.write_text("anew\n")
    tail.move()
    assert said == ["mine\n", "anew\n"]


@pytest.mark.parametrize(
    ("site_name", "client", "said", "told"),
    [
        (
            "pbs",
            "qstat",
            "SGE 8.1.9\nusage: qstat",
            "qstat is that of Grid Engine here, and the site has PBS",
        ),
        (
            "gridengine",
            "qsub",
            "pbs_version = 23.06.06",
            "qsub is that of PBS here, and the site has Grid Engine",
        ),
        ("pbs", "qstat", "Torque, or NQSV", None),
        ("slurm", "qstat", "SGE 8.1.9", None),
    ],
)
def test_the_qsub_of_another_scheduler(
    fake: Fake, site_name: str, client: str, said: str, told: str | None
) -> None:
    """It would take the script and read none of its lines."""
    fake.client(f"echo '{said}'", client)
    site = load_site(NAMES[site_name], fake.settings)
    if told is None:
        check_client(site, fake.context)
        return
    with pytest.raises(HostError) as error:
        check_client(site, fake.context)
    assert error.value.what == told


def follower(fake: Fake, site_name: str) -> Job:
    job, site = plan(site_name, "single", fake.settings)
    job = replace(job, intent=replace(job.intent, after=("42",)))
    return check_predecessors(job, site, fake.context)


def test_a_job_that_slurm_has_forgotten_is_not_one_that_succeeded(fake: Fake) -> None:
    fake.client(
        "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
        "squeue",
        "sacct",
        "scontrol",
    )
    with pytest.raises(UsageError) as told:
        follower(fake, "amane")
    assert told.value.what == "Slurm does not know job 42, and would take it for one that succeeded"
    fake.client("echo '42|PENDING|Priority|'", "squeue")
    follower(fake, "amane")


def test_what_follows_a_job_that_has_failed_is_refused_at_once(fake: Fake, site_name: str) -> None:
    fake.client(UNKNOWN, "squeue", "sacct", "scontrol", "qstat", "qacct")
    watch = Watch(fake, site_name)
    watch.receipt(0)
    assert follower(fake, site_name).intent.after == ()
    watch.receipt(9)
    with pytest.raises(UsageError) as told:
        follower(fake, site_name)
    assert (
        told.value.what
        == "job 42 has failed already, with code 9: what follows it would never start"
    )


def test_a_stopped_job_that_is_unknown_for_a_moment_has_not_ended(fake: Fake) -> None:
    """Slurm shows nothing of a job between its two runs, for less than a second."""
    fake.client("cat queue 2>/dev/null || { echo Invalid job id specified; exit 1; }", "squeue")
    fake.client(UNKNOWN, "sacct", "scontrol")
    watch = Watch(fake, "amane")
    watch.receipt(143, signal="TERM")
    queue = fake.settings.cwd / "queue"
    watch.events = {
        1.0: lambda: queue.write_text("42|PENDING|BeginTime|\n"),
        9.0: lambda: watch.receipt(6),
    }
    assert watch.wait() == 6


DOWN = {
    "amane": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "tsubame4": "error: unable to send message to qmaster using port 6444: got send error",
    "abci3": "Connection refused; qstat: cannot connect to server pbs1 (errno=111)",
}


def test_a_scheduler_that_does_not_answer_is_waited_for(fake: Fake, site_name: str) -> None:
    """An upgrade of the controller takes longer than any limit; the receipt still counts."""
    fake.client(
        f"echo '{DOWN[site_name]}' >&2; exit 1", "squeue", "sacct", "scontrol", "qstat", "qacct"
    )
    watch = Watch(fake, site_name)
    watch.events = {2000.0: lambda: watch.receipt(3)}
    assert watch.wait() == 3
    [said] = watch.said
    assert "the scheduler does not answer" in said
    assert DOWN[site_name].rpartition("; ")[2][:40] in said


def test_a_job_is_not_called_cancelled_where_nobody_answers(fake: Fake, site_name: str) -> None:
    fake.client(f"echo '{DOWN[site_name]}' >&2; exit 1", "scancel", "qdel")
    watch = Watch(fake, site_name)
    context = fake.context
    with pytest.raises(HostError) as told:
        cancel_job("42", context)
    assert DOWN[site_name] in told.value.what
    assert not find_record("42", fake.settings.cwd).cancelled
    fake.client(":", "scancel", "qdel")
    assert cancel_job("42", context) == Cancelled(number="42", state="cancelled")
    assert find_record(watch.record.id, fake.settings.cwd).cancelled


def test_a_client_that_is_gone_is_no_silence(fake: Fake, site_name: str) -> None:
    """Somebody follows a job on a machine without the scheduler: that is said, and not waited for."""
    watch = Watch(fake, site_name)
    with pytest.raises(HostError) as told:
        watch.wait()
    assert "was not found" in told.value.what


def test_logs_of_an_array_are_listed_not_opened(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.client("echo '42_1|RUNNING|None|n1'", "squeue")
    watch = Watch(fake, "amane", tasks=tuple(range(1, 1001)))
    opened = []
    real = Path.open

    def counted(path: Path, *words: object, **more: object) -> object:
        opened.append(path)
        return real(path, *words, **more)  # type: ignore[call-overload]

    def all_end() -> None:
        for path in receipt_files(watch.record, fake.settings.cwd):
            path.write_text('{"job":"42","name":"x","code":0,"node":"n","started":"a","ended":"b"}')

    watch.events = {60.0: all_end}
    monkeypatch.setattr(Path, "open", counted)
    assert watch.wait() == 0
    assert len(opened) <= 3000, "each receipt once, when it is there"


@pytest.mark.parametrize(
    "name", ["", "-x", "a b", "../up", "a$(id)", "a\nb", 'a"b', "a:b", "x" * 65]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid job name"):
        check_name(name)


@pytest.mark.parametrize(
    ("file", "name"),
    [("x$(id).sif", "x-id"), ("my image.sif", "my-image"), ("ünï.sif", "uni"), ("日本.sif", "job")],
)
def test_a_files_name_becomes_a_jobs(file: str, name: str) -> None:
    assert name_of_file(Path(file)) == name
    check_name(name)


@pytest.mark.parametrize(
    ("scheduler", "option", "flag"),
    [
        ("slurm", "--array=1-3", "--array"),
        ("slurm", "-a 1-3", "--array"),
        ("slurm", "-ofile", "--output"),
        ("slurm", "--comment='two words'", None),
        ("slurm", "--mail-type=END", None),
        ("slurm", "--gres=gpu:a100:1", None),
        ("gridengine", "-t 1-3", "--array"),
        ("gridengine", "-notify", None),
        ("gridengine", "-now n", None),
        ("pbs", "-J1-3", "--array"),
        ("pbs", "-l select=2:ncpus=1", "--nodes, --gpus, --cpus"),
        ("pbs", "-lselect=2", "--nodes, --gpus, --cpus"),
        ("pbs", "-l place=excl", None),
        ("pbs", "-W depend=afterok:1", "--after"),
        ("pbs", "-W group_list=x", None),
    ],
)
def test_options_that_envbuild_owns(scheduler: str, option: str, flag: str | None) -> None:
    features = SCHEDULERS[scheduler].features
    if flag is None:
        check_owned(features, (option,))
        return
    with pytest.raises(UsageError) as told:
        check_owned(features, (option,))
    assert told.value.hint == f"the flag for it: {flag}"


@pytest.mark.parametrize(
    ("site_name", "record_id", "line"),
    [
        ("amane", "42", ("scancel", "42_3")),
        ("tsubame4", "42", ("qdel", "42", "-t", "3")),
        ("abci3", "42[].pbs1", ("qdel", "42[3].pbs1")),
    ],
)
def test_one_task_is_cancelled(
    fake: Fake, site_name: str, record_id: str, line: tuple[str, ...]
) -> None:
    site = load_site(site_name, fake.settings)
    assert scheduler_of(site).cancel(record_id, 3) == line


@pytest.mark.parametrize("text", ["42[3]", "42_3", "42.3", "amane:42[3]"])
def test_an_id_may_name_one_task(fake: Fake, text: str) -> None:
    Watch(fake, "amane", tasks=(1, 2, 3))
    assert find_record(text, fake.settings.cwd).tasks == (3,)
    with pytest.raises(UsageError, match="has no task 9"):
        find_record(text.replace("3", "9"), fake.settings.cwd)


def test_an_array_is_followed_by_its_whole_id(fake: Fake) -> None:
    """PBS deletes what follows 42 where the array is 42[]."""
    watch = Watch(fake, "abci3", tasks=(1, 2))
    save_record(msgspec.structs.replace(watch.record, id="42[].pbs1"), fake.settings.cwd)
    assert follower(fake, "abci3").intent.after == ("42[].pbs1",)


def test_a_job_that_never_started_was_cancelled(fake: Fake, site_name: str) -> None:
    """Grid Engine forgets it at once."""
    fake.client(UNKNOWN, "squeue", "sacct", "scontrol", "qstat", "qacct")
    watch = Watch(fake, site_name)
    watch.record = msgspec.structs.replace(watch.record, cancelled=True)
    with pytest.raises(HostError, match="was cancelled before it started"):
        watch.wait()
    assert watch.time < 20


def test_an_id_that_was_printed_before_the_client_hung(fake: Fake, site_name: str) -> None:
    fake.client("echo 42; exec sleep 30", "sbatch", "qsub")
    assert hand_in(fake, site_name).id == "42"


@pytest.mark.parametrize(
    ("signal", "code", "expected"),
    [
        *((name, code, 143) for name in ("TERM", "INT", "USR2") for code in (0, 2, 125, 146, 255)),
        *((name, code, code) for name in ("", "USR1") for code in (0, 2, 125, 146, 255)),
        ("TERM", 3, 3),
    ],
)
def test_the_code_of_a_stopped_job_is_that_of_its_signal(
    signal: str, code: int, expected: int, tmp_path: Path
) -> None:
    """Slurm sends CONT with TERM, and a runtime may report the last signal that it passed on."""
    assert finished(f"signal={signal} own=", code, tmp_path) == expected


@pytest.mark.parametrize(("code", "expected"), [(2, 2), (125, 125), (146, 143), (255, 143)])
def test_the_code_of_a_stopped_command_is_its_own_where_nobody_else_has_it(
    code: int, expected: int, tmp_path: Path
) -> None:
    """146 and 255 may be the runtime's."""
    assert finished(f"signal=TERM own={code}", code, tmp_path) == expected


def finished(state: str, code: int, folder: Path) -> int:
    """End a job's script in a state, and return its code, which is that of its receipt."""
    report = Path(envbuild.job.__file__).with_name("scripts") / "report.sh"
    head = "set -u; id=1 task= name=x site=x node=x reason= started= digest= lock= commit= gpus= driver= watch=()"
    head += " runs=1 requeue=0 use=use used= sampler="
    text = f"{head} receipt={folder}/receipt {state}; stop_sampling() {{ :; }}; . {report}; trap finish EXIT; exit {code}"
    done = LocalRunner()(Command(argv=("bash", "-c", text), cwd=folder), check=False)
    assert json.loads((folder / "receipt").read_text())["code"] == done.code
    return done.code


QSTAT = "job-ID prior name user state submit/start at queue slots ja-task-ID\n---\n"
BUSY = 'echo >>asked; [ "$(wc -l <asked)" -gt 2 ] || exit 1'
ROW = " 7 0.5 tiny you {state} 11/24/2026 10:00:00 {place}\n"


@pytest.mark.parametrize(
    ("rows", "task", "expected"),
    [
        (ROW.format(state="Rq", place="1"), "", True),
        (ROW.format(state="r", place="all.q@node1.campus.example.a 1"), "", False),
        (ROW.format(state="Rr", place="all.q@node1.campus.example.a 1"), "", False),
        (ROW.format(state="Rt", place="all.q@node2.campus.example.a 1"), "", True),
        (ROW.format(state="qw", place="1 3"), "3", True),
        (ROW.format(state="qw", place="1 3"), "2", False),
        (ROW.format(state="dr", place="all.q@node1.campus.example.a 1"), "", False),
        ("", "", False),
    ],
)
@pytest.mark.parametrize("trouble", [":", BUSY, "kill -USR2 $$", "exit 1"])
def test_a_job_of_grid_engine_knows_that_it_starts_again(
    rows: str, task: str, expected: bool, trouble: str, tmp_path: Path
) -> None:
    """Also where its server is too busy at first, or the client gets the job's signal, too."""
    (tmp_path / "answer").write_text(QSTAT + rows)
    qstat = tmp_path / "qstat"
    qstat.write_text(f"#!/bin/sh\n{trouble}\ncat answer\n")
    qstat.chmod(0o755)
    features = SCHEDULERS["gridengine"].features
    parts = ("set -u\nreason=\n", f"task='{task}'\n", script_text("report.sh"))
    # with status 0 before it, which a bare "return" of the handler would give
    handler = (
        "sleep() { :; }\ntrap 'if preempted; then exit 8; fi; exit 9' USR1\ntrue\nkill -USR1 $$\n"
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "SGE_O_PATH": str(tmp_path),
        "JOB_ID": "7",
        "QUEUE": "all.q",
        "HOSTNAME": "node1.campus.example.ac.jp",
    }
    argv = ("bash", "-c", "".join((*parts, features.shell.preempted, handler)))
    told = LocalRunner()(Command(argv=argv, cwd=tmp_path, env=environment), check=False)
    assert told.code == (8 if expected and trouble != "exit 1" else 9), told.stderr


def test_handlers_of_signals_say_what_they_return() -> None:
    """A bare "return" gives the status from before the handler, which is often that of a success."""
    shells = [SCHEDULERS[name].features.shell for name in SCHEDULERS]
    texts = [shell.preempted + shell.tell_ranks + shell.kill_later for shell in shells]
    texts += [script_text("report.sh"), script_text("supervise.sh")]
    assert not re.findall(r"^.*\breturn *(?:$|[;|&}].*)", "\n".join(texts), flags=re.MULTILINE)
