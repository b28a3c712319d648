"""The program by which a written definition starts what may not reach the build's network."""

from __future__ import annotations

import runpy
import socket
import sys

import pytest

from envbuild.check.probes.shared.stub_driver import MACHINES as STUB_MACHINES
from envbuild.names import BY_MACHINE
from envbuild.plan.shell import SCRIPTS
from envbuild.run import Command, LocalRunner, Result

SCRIPT = str(SCRIPTS / "run_offline.py")
ASK = """
import socket, sys
socket.socketpair()
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
except OSError:
    print("cut off")
"""
ENGINE = """
import ctypes, runpy, sys
real = ctypes.CDLL(None)
class Engine:
    "It lets nobody make a network, and FILTER says whether a filter either."
    unshare = staticmethod(lambda flags: -1)
    prctl = staticmethod(FILTER)
ctypes.CDLL = lambda name: Engine
runpy.run_path(SCRIPT)["main"](*sys.argv[1:])
"""


def start(*words: str) -> Result:
    """Ask for a server of this machine, by these words before the command."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        command = Command(argv=(*words, sys.executable, "-c", ASK, port))
        return LocalRunner()(command, check=False)


def engine(prctl: str) -> tuple[str, ...]:
    """Return the words that start the program where no network can be made."""
    code = ENGINE.replace("FILTER", prctl).replace("SCRIPT", repr(SCRIPT))
    return (sys.executable, "-c", code)


def test_a_server_of_the_machine_is_reached_without_it() -> None:
    assert start().stdout == ""


@pytest.mark.parametrize("words", [(sys.executable, SCRIPT), engine("real.prctl")])
def test_no_server_is_reached(words: tuple[str, ...]) -> None:
    assert start(*words).stdout == "cut off\n"


def test_where_nothing_keeps_the_network_away_nothing_is_started() -> None:
    done = start(*engine("lambda *words: -1"))
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr == ("nothing here can leave the build's network: build with envbuild make\n")


def test_programs_of_images_know_every_architecture() -> None:
    assert set(runpy.run_path(SCRIPT)["MACHINES"]) == set(BY_MACHINE) == set(STUB_MACHINES)
