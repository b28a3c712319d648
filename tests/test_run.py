"""The door to processes: nothing hangs, nothing outlives its time limit, every failure carries its evidence."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from envbuild import run
from envbuild.errors import HostError, ToolFailedError
from envbuild.run import Command, LocalRunner


def python(code: str, **options: object) -> Command:
    return Command(argv=(sys.executable, "-c", textwrap.dedent(code)), **options)  # type: ignore[arg-type]


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_ten_megabytes_on_one_stream_do_not_hang(stream: str) -> None:
    other = "stderr" if stream == "stdout" else "stdout"
    result = LocalRunner()(
        python(
            f"""
            import sys
            sys.{stream}.write("x" * 10_000_000 + "END")
            sys.{other}.write("said last")
            """,
            timeout=60,
        )
    )
    assert getattr(result, stream).endswith("xEND")
    assert len(getattr(result, stream)) == run.CAPTURE_LIMIT  # the last part is kept
    assert getattr(result, other) == "said last"


class SmallPipes(subprocess.Popen[bytes]):
    """A process with pipes of two pages, as users get whose pipes already hold much (pipe(7), pipe-user-pages-soft)."""

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, 8192)


@pytest.mark.parametrize("popen", [subprocess.Popen, SmallPipes])
def test_both_streams_and_a_long_input_at_once_do_not_hang(
    popen: type[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", popen)
    text = "line\n" * 400_000
    result = LocalRunner()(
        python(
            """
            import sys
            for line in sys.stdin:
                sys.stdout.write(line)
                sys.stderr.write(line)
            """,
            stdin=text,
            timeout=60,
        )
    )
    assert result.stdout == text
    assert result.stderr == text


def test_input_that_nobody_reads_is_dropped() -> None:
    assert LocalRunner()(python("pass", stdin="x" * 1_000_000, timeout=60)).code == 0


def test_no_input_is_an_empty_input_not_the_terminal() -> None:
    assert (
        LocalRunner()(python("import sys; print(repr(sys.stdin.read()))", timeout=60)).stdout
        == "''\n"
    )


def test_time_limit_ends_grandchildren_too(tmp_path: Path) -> None:
    noted, ended = tmp_path / "pid", tmp_path / "ended"
    with pytest.raises(ToolFailedError) as caught:
        LocalRunner()(
            python(
                f"""
                import signal, subprocess, sys, time
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                child = subprocess.Popen([sys.executable, "-c", "import signal, time; "
                    "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60); open({str(ended)!r}, 'w')"])
                open({str(noted)!r}, "w").write(str(child.pid))
                print("still at work", flush=True)
                time.sleep(600)
                """,
                timeout=5.0,
                grace=1.0,
            )
        )
    assert (
        str(caught.value)
        == f"{Path(sys.executable).name} was ended after 5 s without finishing\nstill at work"
    )
    wait_for(lambda: not is_alive(int(noted.read_text())))
    assert not ended.exists()


def test_time_limit_without_check_tells_so() -> None:
    result = LocalRunner()(python("import time; time.sleep(600)", timeout=0.3), check=False)
    assert result.timed_out
    assert result.code == -signal.SIGTERM


def test_one_that_takes_too_much_memory_is_ended() -> None:
    code = "import time\nheld = bytearray(200_000_000)\ntime.sleep(60)\n"
    result = LocalRunner()(python(code, memory=100_000_000, timeout=60), check=False)
    assert (result.too_large, result.timed_out) == (True, False)
    assert result.seconds < 50


@pytest.fixture
def keyboard() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt here: test workers that run side by side ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("keyboard")
def test_interrupt_ends_the_child_with_sigint_first(tmp_path: Path) -> None:
    ready, cleaned = tmp_path / "ready", tmp_path / "cleaned"
    code = f"""
        import pathlib, time
        try:
            pathlib.Path({str(ready)!r}).touch()
            time.sleep(600)
        except KeyboardInterrupt:
            pathlib.Path({str(cleaned)!r}).touch()
            raise
        """

    def interrupt() -> None:
        wait_for(ready.exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        LocalRunner()(python(code))
    thread.join()
    assert cleaned.exists()


def test_an_interrupt_ends_commands_of_other_threads_and_lets_them_be_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    monkeypatch.setattr(run, "ASKED_TO_END", asked)
    ready = tmp_path / "ready"
    code = f"import pathlib, time; pathlib.Path({str(ready)!r}).touch(); time.sleep(600)"
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(LocalRunner(), python(code))
        wait_for(ready.exists)
        asked.set()
        assert isinstance(beside.exception(), KeyboardInterrupt)
    assert LocalRunner()(python("print('cleaned up')")).stdout == "cleaned up\n"


@pytest.mark.usefixtures("keyboard")
def test_second_interrupt_hastens_the_end_and_leaves_no_orphan(tmp_path: Path) -> None:
    noted, ended = tmp_path / "pid", tmp_path / "ended"
    code = f"""
        import os, pathlib, signal, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pathlib.Path({str(noted)!r}).write_text(str(os.getpid()) + "\\n")
        time.sleep(60)
        pathlib.Path({str(ended)!r}).touch()
        """

    def interrupt_twice() -> None:
        wait_for(lambda: noted.exists() and noted.read_text().endswith("\n"))
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

    thread = threading.Thread(target=interrupt_twice)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        LocalRunner()(python(code, grace=3600.0))
    thread.join()
    assert not ended.exists()
    assert not is_alive(int(noted.read_text()))


def test_missing_program() -> None:
    with pytest.raises(HostError) as caught:
        LocalRunner()(Command(argv=("no-such-program-here", "x")))
    assert str(caught.value) == "no-such-program-here was not found"
    assert caught.value.hint == "run: envbuild doctor"


def test_missing_working_folder_is_not_told_as_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        LocalRunner()(Command(argv=(sys.executable, "-V"), cwd=tmp_path / "gone"))
    assert (
        str(caught.value)
        == f"{tmp_path / 'gone'}: the folder to run {sys.executable} in does not exist"
    )


def test_file_that_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(HostError) as caught:
        LocalRunner()(Command(argv=(str(path),)))
    assert str(caught.value) == f"{path} could not be started: Permission denied"


def test_failure_carries_command_code_and_last_lines() -> None:
    with pytest.raises(ToolFailedError) as caught:
        LocalRunner()(
            python("import sys; print('out'); sys.exit('\\n'.join(f'line {n}' for n in range(30)))")
        )
    error = caught.value
    assert (error.exit_code, error.stdout) == (1, "out\n")
    expected = "\n".join(f"line {n}" for n in range(18, 30))
    assert str(error) == f"{Path(sys.executable).name} failed with exit code 1\n{expected}"


def test_death_by_signal_is_told() -> None:
    with pytest.raises(ToolFailedError, match=r"was killed by signal 9$"):
        LocalRunner()(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))


def test_log_gets_both_streams_and_is_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("before\n")
    LocalRunner()(
        python("import sys; print('out', flush=True); print('err', file=sys.stderr)", log=log)
    )
    first, *rest = log.read_text().splitlines()
    assert first == "before"
    assert sorted(rest) == ["err", "out"]


def test_every_line_is_told_once_also_one_without_newline() -> None:
    lines: list[str] = []
    LocalRunner()(
        python(
            """
            import sys, time
            sys.stdout.write("one\\r\\ntw"); sys.stdout.flush(); time.sleep(0.1)
            sys.stdout.write("o\\n\\nlast"); sys.stdout.flush()
            """,
            on_line=lines.append,
        )
    )
    assert lines == ["one", "two", "", "last"]


def test_daemon_that_holds_the_pipes_open_is_not_waited_for(tmp_path: Path) -> None:
    noted = tmp_path / "pid"
    result = LocalRunner()(
        python(
            f"""
            import subprocess, sys
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
            open({str(noted)!r}, "w").write(str(child.pid))
            print("started")
            """
        )
    )
    daemon = int(noted.read_text())
    try:
        assert (result.code, result.stdout) == (0, "started\n")
        assert is_alive(daemon)  # it was asked for, and is no part of the child's group
    finally:
        os.kill(daemon, signal.SIGKILL)


def test_bytes_that_are_no_text_are_shown_not_raised() -> None:
    lines: list[str] = []
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) + b'\\n')"
    result = LocalRunner()(python(code, on_line=lines.append))
    assert "\N{REPLACEMENT CHARACTER}" in result.stdout
    assert len(lines) == 2  # byte 10 ends the first


def test_environment_is_the_given_one_only() -> None:
    result = LocalRunner()(Command(argv=("/usr/bin/env",), env={"ONLY": "this, a=b\nand that"}))
    assert result.stdout == "ONLY=this, a=b\nand that\n"


def test_hand_over_replaces_the_process() -> None:
    code = "from envbuild.run import hand_over; hand_over(('sh', '-c', 'echo $A; exit 7'), {'A': 'x', 'PATH': '/bin'})"
    result = LocalRunner()(python(code), check=False)
    assert (result.code, result.stdout, result.stderr) == (7, "x\n", "")


def test_hand_over_to_a_missing_program() -> None:
    with pytest.raises(HostError, match=r"^no-such-program-here was not found$"):
        run.hand_over(("no-such-program-here",), {"PATH": "/bin"})


KILLED = """
import sys
from envbuild.run import Command, LocalRunner
LocalRunner()(Command(argv=("sh", "-c", "trap '' TERM INT HUP; sleep 61 & echo $$ $! >%s; wait"), timeout=61))
"""


def test_children_end_when_envbuild_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a child that takes no signal, with all its own: Debian's mmdebstrap is one."""
    monkeypatch.setenv("PYTHONPATH", str(Path(run.__file__).parents[1]))
    noted = tmp_path / "pids"
    quick = KILLED.replace(
        "import sys",
        "import envbuild.run as run; run.GUARD = run.GUARD.replace('sleep 10', 'sleep 1')",
    )
    with subprocess.Popen([sys.executable, "-c", quick % noted]) as process:
        wait_for(lambda: noted.exists() and len(noted.read_text().split()) == 2)
        started = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_for(lambda: len(started.read_text().split()) == 2)  # the command and its guard
        children = [int(word) for word in noted.read_text().split()]
        assert all(map(is_alive, children))
        process.kill()
    wait_for(lambda: not any(map(is_alive, children)))


def test_the_guard_leaves_what_ended_by_itself(tmp_path: Path) -> None:
    told = LocalRunner()(Command(argv=("sh", "-c", "echo $$"), timeout=61))
    assert not is_alive(int(told.stdout))
    assert (
        "envbuild-guard"
        not in LocalRunner()(Command(argv=("ps", "-o", "args", "--ppid", str(os.getpid())))).stdout
    )
