"""Amounts, arrays, tables and patterns: what is taken, and what is refused with which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.errors import UsageError
from envbuild.job.request.intent import Flags, change_intent, make_intent, parse_array
from envbuild.job.request.units import clock, parse_memory, parse_walltime, time_text
from envbuild.recipe.model import JobSection as Wanted


@given(st.integers(1, 9999 * 3600))
def test_a_time_survives_both_spellings(seconds: int) -> None:
    assert parse_walltime(clock(seconds), "x") == seconds
    assert parse_walltime(time_text(seconds), "x") == seconds


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [("1GiB", 1024), ("16 GB", 15259), ("900MB", 859), ("1MB", 1), ("2TiB", 2 * 2**20)],
)
def test_memory(text: str, mebibytes: int) -> None:
    assert parse_memory(text, "x") == mebibytes


@pytest.mark.parametrize(
    "text", ["24", "1:30", "2 h", "", "h", "-5m", "1h1d", "0s", "00:00:00", "1:60:00"]
)
def test_no_time(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no time|a walltime of zero"):
        parse_walltime(text, "--walltime")


def test_a_bare_number_is_explained() -> None:
    with pytest.raises(UsageError) as told:
        parse_walltime("24", "--walltime")
    assert str(told.value) == "--walltime: '24' is no time"
    assert "24 alone would be minutes to Slurm and seconds to Grid Engine" in (
        told.value.hint or ""
    )


@pytest.mark.parametrize("text", ["16", "16G", "0GB", "1.5GB", "-1GB", "lots"])
def test_no_memory(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not an amount of memory|a memory of zero"):
        parse_memory(text, "--memory")


def test_arrays() -> None:
    assert list(parse_array("1-10:3%2", "x").numbers) == [1, 4, 7, 10]
    assert parse_array("5", "x").numbers == range(5, 6)
    for text in ("", "10-1", "1-5:0", "1-5%0", "1,2", "a-b", "1-2-3"):
        with pytest.raises(UsageError, match=r"is no array|has no tasks"):
            parse_array(text, "--array")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (Flags(gpus="two"), "two: --gpus takes a number, or TYPE:NUMBER"),
        (
            Flags(output="logs/$JOB-{id}.log"),
            "--output: 'logs/$JOB-{id}.log' is not a valid pattern for a log file",
        ),
        (Flags(output="train.log"), "--output: two jobs would write the same log"),
        (
            Flags(output="../{id}.log"),
            "--output: '../{id}.log' is neither a file below the project nor an absolute path",
        ),
        (
            Flags(account="lab\n#SBATCH --uid=0"),
            "--account: 'lab\\n#SBATCH --uid=0' is not a valid name of a queue or an account",
        ),
        (Flags(after=("12; rm",)), "--after: '12; rm' is not a job ID"),
        (
            Flags(options=("--x\n#PBS -q y",)),
            "--option: '--x\\n#PBS -q y' is not a scheduler option",
        ),
        (
            Flags(launcher="torchrum"),
            "--launcher: there is no launcher 'torchrum'; did you mean \"torchrun\"?",
        ),
    ],
)
def test_bad_flags(flags: Flags, message: str) -> None:
    with pytest.raises(UsageError) as told:
        make_intent(Wanted(), flags)
    assert str(told.value) == message


def test_flags_win_over_the_recipe() -> None:
    wanted = Wanted(
        gpus=4,
        gpu_type="v100",
        walltime="2h",
        memory="16GiB",
        environment=("A",),
        launcher="torchrun",
    )
    intent = make_intent(wanted, Flags(gpus="2", environment=("B", "A")))
    assert (intent.gpus, intent.gpu_type, intent.walltime, intent.launcher) == (
        2,
        None,
        7200,
        "torchrun",
    )
    assert intent.environment == ("A", "B")


def test_a_broken_amount_of_the_recipe_is_placed() -> None:
    with pytest.raises(UsageError) as told:
        make_intent(Wanted(walltime="24"), Flags())
    assert told.value.where == "[job] walltime"


def test_a_job_that_is_put_back_is_told_before_its_end() -> None:
    def warning(**flags: object) -> int | None:
        return make_intent(Wanted(), Flags(**flags)).warning  # type: ignore[arg-type]

    assert warning(walltime="24h") is None
    assert warning(walltime="24h", requeue=1) == 120
    assert warning(walltime="10m", requeue=1) == 60
    assert warning(walltime="30s", requeue=1) == 5
    assert warning(walltime="24h", warn="10m") == 600
    for flags, message in (
        ({"requeue": 1}, "is about the end of the job's time"),
        (
            {"walltime": "4s", "requeue": 1},
            "4 s leave no time between the start and the warning before the end",
        ),
        ({"warn": "5m", "walltime": "5m"}, "5m is as long as the job itself"),
        ({"checkpoint": "../elsewhere"}, "'../elsewhere' is not a valid folder name"),
    ):
        with pytest.raises(UsageError) as told:
            warning(**flags)
        assert told.value.what == message


def test_a_job_again_may_ask_for_other_resources_and_nothing_else() -> None:
    intent = make_intent(Wanted(gpus=1, memory="8GiB", launcher="torchrun"), Flags(array="1-3"))
    changed = change_intent(intent, Flags(memory="16GiB", gpus="tesla:2"))
    assert (changed.memory, changed.gpus, changed.gpu_type) == (16384, 2, "tesla")
    assert (changed.array, changed.launcher) == (intent.array, "torchrun")
    with pytest.raises(UsageError) as told:
        change_intent(intent, Flags(array="1-2"))
    assert told.value.where == "--array"


def test_a_recipe_may_say_how_its_command_goes_on() -> None:
    wanted = Wanted(walltime="24h", requeue=3, warn="10m")
    intent = make_intent(wanted, Flags())
    assert (intent.requeue, intent.warning) == (3, 600)
    intent = make_intent(wanted, Flags(requeue=1, warn="1m"))
    assert (intent.requeue, intent.warning) == (1, 60)
    with pytest.raises(UsageError, match=r"\[job\] requeue: is about the end of the job's time"):
        make_intent(Wanted(requeue=3), Flags())


def test_an_empty_command_tells_nobody() -> None:
    with pytest.raises(UsageError, match="which command"):
        make_intent(Wanted(), Flags(notify=" "))


def test_a_folder_to_stage_is_named_as_it_is_shown() -> None:
    flags = Flags(stage=("./data/images/", "data/images", "texts"))
    assert make_intent(Wanted(), flags).stage == ("data/images", "texts")
