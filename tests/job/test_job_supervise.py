"""How a job's script waits for its command, while signals come."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from envbuild.job.schedulers.protocol import script_text
from tests.support import wait_until

HEAD = "set -u; early= begun= signal='' child='' sampler=x; trap 'signal=TERM' TERM; sleep 60 & other=$!\n"
"""Of a script that has another child, so that a wait for nobody has somebody to wait for."""


def children(process: int) -> dict[int, str]:
    """Return the children of a process, with the programs that they are."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return {int(child): Path(f"/proc/{child}/comm").read_text().strip() for child in listed}


def wait_for_command(process: int, name: str) -> None:
    wait_until(lambda: name in children(process).values(), "the command runs")


def started(command: str, before: str = "") -> subprocess.Popen[str]:
    text = f"{HEAD}{script_text('supervise.sh')}\n{before}\nsupervise {command}; code=$?; kill $other; exit $code"
    return subprocess.Popen(["bash", "-c", text], text=True)


def test_a_command_that_ends_at_the_moment_of_a_signal_is_no_endless_wait() -> None:
    """Bash loses the end of every fourth such command."""
    for number in range(30):
        script = started("cat /dev/zero >/dev/null")
        wait_for_command(script.pid, "cat")
        [command] = [child for child, name in children(script.pid).items() if name == "cat"]
        os.kill(command, signal.SIGTERM)
        time.sleep(number * 2e-6)
        script.send_signal(signal.SIGTERM)
        try:
            assert script.wait(timeout=20) == 143
        finally:
            if script.poll() is None:
                for child in children(script.pid):
                    os.kill(child, signal.SIGKILL)
                script.kill()


@pytest.mark.parametrize(("command", "code"), [("true", 0), ("sh -c 'exit 7'", 7)])
def test_the_code_is_that_of_the_command(command: str, code: int) -> None:
    assert started(command).wait(timeout=20) == code


def test_the_code_of_a_handler_that_takes_its_time(tmp_path: Path) -> None:
    up = tmp_path / "up"
    text = f'trap "sleep 0.3; exit 9" TERM; touch {up}; while :; do sleep 0.1; done'
    script = started(f"sh -c '{text}'")
    wait_until(up.exists, "the command runs")
    [command] = [child for child, name in children(script.pid).items() if name == "sh"]
    os.kill(command, signal.SIGTERM)
    script.send_signal(signal.SIGTERM)
    assert script.wait(timeout=20) == 9


STARTING = (
    'sh -c \'trap "" TERM; touch {up}; sleep 1; '
    'trap "exit 9" TERM; echo >{begun}; while :; do sleep 0.1; done\''
)
"""A container that hears nothing while it starts."""


def test_a_signal_while_the_container_starts_waits_for_the_command(tmp_path: Path) -> None:
    up, begun = tmp_path / "up", tmp_path / "begun"
    before = f"begun={begun}; trap 'hand_on TERM' TERM"
    script = started(STARTING.format(up=up, begun=begun), before)
    wait_until(up.exists, "the container starts")
    script.send_signal(signal.SIGTERM)
    assert script.wait(timeout=20) == 9
    assert begun.exists()


def test_a_signal_that_comes_before_the_command_is_handed_on(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    command = f"sh -c 'trap \"exit 9\" USR1; echo >{begun}; while :; do sleep 0.1; done'"
    assert started(command, f"begun={begun}; hand_on USR1").wait(timeout=20) == 9
