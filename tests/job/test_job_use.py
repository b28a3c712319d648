"""What a job uses: the sampler beside real processes, with the driver made of C."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envbuild.job.schedulers.protocol import script_text
from tests.check.conftest import driver
from tests.support import needs

__all__ = ["driver"]
BUSY = "import time\nwhile time.process_time() < 1.5: x = 1\n"
HOLDS = "import time\nx = bytearray(200 << 20)\nx[::4096] = b'x' * len(x[::4096])\ntime.sleep(7)\n"
"""It holds for longer than two looks of the sampler on a busy machine lie apart."""
BEFORE = (
    "import os, subprocess, sys, time, signal\nprogram, use = sys.argv[1:3]\n"
    "if os.environ.get('FAKE_PID') == 'script': os.environ['FAKE_PID'] = str(os.getpid())\n"
)
SCRIPT = """
sampler = subprocess.Popen([sys.executable, "-c", program, use, *sys.argv[4:]])
while not os.path.exists(use + ".on"): time.sleep(0.01)
child = subprocess.Popen([sys.executable, "-c", sys.argv[3]])
child.wait()
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT): sampler.send_signal(number)
sampler.send_signal(signal.SIGALRM)
sampler.wait()
"""
"""What the job's script does, in Python: the sampler first, the command, and the end."""

Run = Callable[..., tuple[dict[str, object], str]]


@pytest.fixture
def run(tmp_path: Path, driver: Path) -> Run:
    def sampled(command: str, *words: object, **variables: str) -> tuple[dict[str, object], str]:
        # a new folder each time: what an earlier run left would tell that this sampler is there
        use = Path(tempfile.mkdtemp(dir=tmp_path)) / "use"
        program = script_text("use.py")
        line = (sys.executable, "-c", BEFORE + SCRIPT, program, str(use), command)
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(driver),
            "FAKE_PID": "1",
            **variables,
        }
        done = subprocess.run(
            (*line, *map(str, words)),
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        found: dict[str, object] = json.loads(use.read_text())
        return found, done.stdout + done.stderr

    return sampled


def number(value: object) -> float:
    assert isinstance(value, (int, float))
    return value


@needs("cc")
def test_processor_and_memory_of_a_command(run: Run) -> None:
    use, told = run(BUSY, 15, 300, 60, 2, 1024, 0)
    assert 1.4 < number(use["cores"]) * number(use["seconds"]) < 2.1, use
    assert use["gpu_busy"] is None
    assert "envbuild: used " in told
    assert "of 2.0 cores" in told
    use, told = run(HOLDS, 15, 300, 60, 2, 1024, 0)
    assert 200 << 20 <= number(use["memory"]) < 260 << 20
    assert number(use["cores"]) < 0.5


@needs("cc")
def test_a_gpu_of_others_is_not_the_jobs(run: Run) -> None:
    """The driver shows process 1 on the card: no process of the job; the card is the job's alone."""
    use, told = run("import time; time.sleep(6)", 0.5, 1, 0, 0, 0, 1)
    assert (use["gpus_used"], use["gpu_busy"]) == (0, 87.0)
    assert "envbuild: no process of this job has come to a GPU in 1 s" in told
    # of a node's two cards without a fence, those of others do not count
    use, _ = run("import time; time.sleep(4)", 0.5, 300, 0, 0, 0, 1, FAKE_COUNT="2")
    assert (use["gpus_used"], use["gpu_busy"]) == (0, None)


@needs("cc")
def test_an_idle_gpu_is_told_of_once(run: Run) -> None:
    """Without FAKE_PID the driver names whoever asks: the sampler itself is no process of the job."""
    command = "import time; time.sleep(6)"
    use, told = run(command, 0.3, 0.9, 0, 0, 0, 1, FAKE_BUSY="0", CUDA_VISIBLE_DEVICES="0")
    assert use["gpu_busy"] == 0.0
    assert told.count("has come to a GPU") == 1
    use, told = run(command, 0.3, 0.9, 0, 0, 0, 1, FAKE_BUSY="0", FAKE_PID="script")
    assert use["gpus_used"] == 1
    assert told.count("the GPU has computed nothing in 0.9 s, although the job is on it") == 1


@needs("cc")
@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"LD_LIBRARY_PATH": "/nonexistent"}, "this node has no libnvidia-ml.so.1"),
        ({"FAKE_NVML": "4"}, "NVML refuses to start: no permission"),
        ({"FAKE_NVML": "9"}, "NVML refuses to start: the driver is not loaded"),
        ({"FAKE_NVML": "999"}, "NVML refuses to start: error 999"),
        ({"FAKE_COUNT": "0"}, "NVML shows none of the GPUs of this job"),
        ({"FAKE_MIG": "1"}, "NVML gives no utilisation of them"),
    ],
)
def test_gpus_that_cannot_be_measured_are_told(
    variables: dict[str, str], told: str, run: Run
) -> None:
    """The rest is measured all the same, and nobody is blamed for a GPU that nobody saw."""
    use, said = run("import time; time.sleep(4)", 0.3, 0.5, 60, 2, 1024, 1, **variables)
    assert f"GPU not measured: {told}" in said
    assert use["gpu_busy"] is None
    assert number(use["memory"]) > 0
    assert "has computed nothing" not in said
    assert ("has come to a GPU" in said) == ("FAKE_MIG" in variables)


@pytest.mark.parametrize(
    ("asked", "use", "advice"),
    [
        (("3600", "4", "8192", "1"), {"gpus_used": 0}, "no process of the job was on a GPU"),
        (("3600", "4", "8192", "4"), {"gpus_used": 1}, "only 1 of 4 GPUs were used: --gpus 1"),
        (("3600", "4", "8192", "0"), {"memory": 8000 << 20}, "nearly full: --memory 13GiB"),
        (("610", "4", "0", "0"), {}, "the time was nearly over"),
        (("0", "4", "0", "1"), {"gpu_busy": 20, "cores": 3.9}, "waited for the processor (3.9 of"),
        (("0", "4", "0", "1"), {"gpu_busy": 20}, "the GPU was 20 % busy: a larger batch"),
        (("0", "16", "0", "0"), {"cores": 1.0}, "1.0 of 16 cores were used: --cpus 2 may"),
        (("0", "2", "65536", "0"), {}, "1.0 of 64 GiB of memory were used: --memory 2GiB"),
        (("86400", "2", "0", "0"), {}, "10 of 1440 minutes were used: a shorter --walltime"),
        (("1200", "4", "4096", "1"), {}, ""),
    ],
)
def test_the_advice_is_the_one_thing_to_change_first(
    asked: tuple[str, ...],
    use: dict[str, float],
    advice: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["-", "use", "15", "300", *asked])
    functions: dict[str, Any] = {}
    exec(script_text("use.py").replace("\nmain()\n", "\n"), functions)  # noqa: S102
    gpus = int(asked[3])
    found = {"seconds": 600.0, "cores": 2.0, "memory": 1 << 30, "gpus_used": gpus or None}
    found |= {"gpu_busy": 90.0 if gpus else None, "memory_asked": int(asked[2]) << 20, **use}
    said = functions["advise"](found)
    assert advice in said
    assert bool(advice) == bool(said)


def test_it_ends_with_a_script_that_was_killed(tmp_path: Path) -> None:
    use = tmp_path / "use"
    line = (sys.executable, "-c", BEFORE + SCRIPT, script_text("use.py"), str(use))
    words = ("import time; time.sleep(30)", "0.2", "300", "0", "0", "0", "0")
    script = subprocess.Popen((*line, *words), start_new_session=True)
    while not Path(f"{use}.on").exists():
        time.sleep(0.02)
    found = Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split()
    script.kill()
    script.wait()
    end = time.monotonic() + 10
    while _lives(int(found[0])):
        assert time.monotonic() < end, "the sampler lives on"
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):  # its command may have ended with it
        os.killpg(script.pid, signal.SIGKILL)
    assert not use.exists()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
