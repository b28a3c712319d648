"""Watching a process: found on the cards with its children, summed up, and told when it is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from envbuild.check.gpu_use import nvml
from envbuild.check.gpu_use.nvml import Card, Nvml
from envbuild.check.gpu_use.watch import PATIENCE, Course, find_family, find_on_cards
from envbuild.cli.watch import command
from envbuild.context import Context, open_context
from envbuild.errors import HostError, UsageError
from envbuild.run import LocalRunner, beside
from envbuild.settings import Settings
from tests.support import needs

GIB = 1 << 30


def card(index: int = 0, busy: int | None = 90, **processes: int | None) -> Card:
    held = {int(name.removeprefix("p")): memory for name, memory in processes.items()}
    return Card(index=index, name="A100", used=12 * GIB, total=40 * GIB, busy=busy, processes=held)


def test_a_look_tells_the_cards_of_the_family() -> None:
    seen = find_on_cards(frozenset({7, 8}), (card(0, p8=5 * GIB), card(1, p9=GIB)))
    assert str(seen) == "on GPU 0 A100: 12.9 GB of 42.9 GB, 90% busy"
    assert seen.memory == 5 * GIB
    assert (
        str(find_on_cards(frozenset({7}), (card(0, None, p7=None),)))
        == "on GPU 0 A100: 12.9 GB of 42.9 GB"
    )


def test_a_look_without_it_tells_who_is_there() -> None:
    assert str(find_on_cards(frozenset({7}), (card(0, p9=1),))) == (
        "not on the GPU (GPU 0 A100: 12.9 GB of 42.9 GB, 90% busy; 1 other processes are)"
    )
    assert str(find_on_cards(frozenset({7}), ())) == "not on the GPU (the driver shows none)"


def test_looks_are_summed_up() -> None:
    course = Course()
    assert str(course) == "it ended before the first look"
    course.add(find_on_cards(frozenset({7}), (card(),)))
    assert str(course) == "never on the GPU in 1 looks"
    course.add(find_on_cards(frozenset({7}), (card(0, 80, p7=2 * GIB),)))
    course.add(find_on_cards(frozenset({7}), (card(0, 60, p7=GIB),)))
    assert str(course) == "on the GPU in 2 of 3 looks, at most 2.1 GB, 70% busy on average"


def test_it_warns_once_and_only_when_the_gpu_was_never_used() -> None:
    idle, used = Course(), Course()
    used.add(find_on_cards(frozenset({7}), (card(0, p7=1),)))
    told = []
    for _ in range(2 * PATIENCE):
        for course in (idle, used):
            course.add(find_on_cards(frozenset({7}), (card(),)))
        told.append((idle.warning(), used.warning()))
    assert [bool(first) for first, _ in told].count(True) == 1
    assert not any(second for _, second in told)


def test_the_family_has_all_descendants(tmp_path: Path) -> None:
    for pid, parent in ((1, 0), (7, 1), (8, 7), (9, 8), (10, 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b (c)) S {parent} 1 1\n")
    (tmp_path / "11").mkdir()
    (tmp_path / "12").mkdir()
    (tmp_path / "12/stat").write_text("cut")
    assert find_family(7, tmp_path) == {7, 8, 9}
    assert find_family(999, tmp_path) == {999}


def test_a_machine_without_a_driver_is_told_where_to_watch() -> None:
    with pytest.raises(HostError) as told:
        Nvml("libnobody-has-this.so.1")
    assert "this machine has no NVIDIA driver that could be asked" in str(told.value)
    node = "srun --jobid=ID --overlap --pty envbuild watch --pid PID"
    assert told.value.hint == f"watch on the node where the job runs: {node}"


# -- with the driver made of C


@pytest.fixture
def context(user_settings: Settings, driver: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    from envbuild.cli.terminal import Lines

    monkeypatch.setattr(nvml, "LIBRARY", str(driver / "libnvidia-ml.so.1"))
    return open_context(user_settings, LocalRunner(), Lines())


def run(context: Context, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, arguments, obj=context, standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value, result.stderr


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


@needs("cc")
def test_the_driver_is_asked_for_everything(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PID", "77")
    (found,) = Nvml(str(driver / "libnvidia-ml.so.1")).cards()
    assert (found.name, found.total, found.busy, found.processes) == (
        "Fake A100",
        40 * GIB,
        87,
        {77: 3 * GIB},
    )
    monkeypatch.setenv("FAKE_MIG", "1")
    assert Nvml(str(driver / "libnvidia-ml.so.1")).cards()[0].busy is None
    monkeypatch.setenv("FAKE_NVML", "9")
    with pytest.raises(HostError, match="nvmlInit gives 9"):
        Nvml(str(driver / "libnvidia-ml.so.1"))


@needs("cc")
def test_one_look_at_a_process_has_an_exit_code(
    context: Context, sleeper: subprocess.Popen[bytes]
) -> None:
    os.environ["FAKE_PID"] = str(sleeper.pid)
    try:
        code, told = run(context, "--once", "--pid", str(sleeper.pid))
        assert code == 0
        assert told[10:].startswith("on GPU 0 Fake A100: ")
        assert told.endswith(" of 42.9 GB, 87% busy\n")
        os.environ["FAKE_PID"] = "1"
        code, told = run(context, "--once", "--pid", str(sleeper.pid))
        assert code == 1
        assert "not on the GPU (GPU 0 Fake A100" in told
    finally:
        del os.environ["FAKE_PID"]


@needs("cc")
def test_a_command_keeps_its_exit_code_and_is_summed_up(context: Context) -> None:
    code, told = run(
        context,
        "--every",
        "0.1",
        "--",
        sys.executable,
        "-c",
        "import time; time.sleep(0.5); raise SystemExit(3)",
    )
    assert code == 3
    assert told.splitlines()[-1].startswith("watch: never on the GPU in ")


@needs("cc")
def test_wrong_words_are_errors_of_usage(context: Context) -> None:
    for arguments, message in (
        ([], "takes a command behind --, or --pid PID"),
        (["--pid", "1", "--", "true"], "takes a command behind --, or --pid PID"),
        (["--once", "--", "true"], "--once goes with --pid"),
        (["--pid", "4194399"], "there is no such process"),
    ):
        with pytest.raises(UsageError, match=message):
            run(context, *arguments)


def test_death_by_a_signal_is_told_as_shells_do_and_a_missing_program_is_an_error() -> None:
    ticks: list[int] = []
    kill = "import os, time; time.sleep(0.3); os.kill(os.getpid(), 9)"
    assert beside((sys.executable, "-c", kill), dict(os.environ), ticks.append, every=0.1) == 137
    assert ticks
    with pytest.raises(HostError, match="nobody-has-this was not found"):
        beside(("nobody-has-this",), {}, ticks.append, every=1.0)
