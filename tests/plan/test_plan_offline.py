"""The program by which a written definition starts what may not reach the build's network."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from ctypes.util import find_library
from typing import Any

import pytest

from envbuild.check.probes.shared.stub_driver import MACHINES as STUB_MACHINES
from envbuild.names import BY_MACHINE
from envbuild.plan.shell import offline_program
from envbuild.run import Command, LocalRunner, Result

PROGRAM = "\n".join(offline_program())
ASK = """
import socket, sys
socket.socketpair()
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
except OSError:
    print("cut off")
"""
ENGINE = """
import ctypes, sys
real = ctypes.CDLL(None)
class Engine:
    "It lets nobody make a network, and FILTER says whether a filter either."
    unshare = staticmethod(lambda flags: -1)
    prctl = staticmethod(FILTER)
ctypes.CDLL = lambda name: Engine
program = {"__name__": "offline"}
exec(PROGRAM, program)
program["main"](*sys.argv[1:])
"""


def load_program() -> dict[str, Any]:
    """Return the names of the program."""
    names: dict[str, Any] = {"__name__": "offline"}
    exec(PROGRAM, names)  # noqa: S102  (it is this project's own)
    return names


def start(*words: str) -> Result:
    """Ask for a server of this machine, by these words before the command."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        command = Command(argv=(*words, sys.executable, "-c", ASK, port))
        return LocalRunner()(command, check=False)


def engine(prctl: str) -> tuple[str, ...]:
    """Return the words that start the program where no network can be made."""
    code = ENGINE.replace("FILTER", prctl).replace("PROGRAM", repr(PROGRAM))
    return (sys.executable, "-c", code)


def test_a_server_of_the_machine_is_reached_without_it() -> None:
    assert start().stdout == ""


@pytest.mark.parametrize("words", [(sys.executable, "-c", PROGRAM), engine("real.prctl")])
def test_no_server_is_reached(words: tuple[str, ...]) -> None:
    assert start(*words).stdout == "cut off\n"


def test_where_nothing_keeps_the_network_away_nothing_is_started() -> None:
    done = start(*engine("lambda *words: -1"))
    assert (done.code, done.stdout) == (1, "")
    assert done.stderr == ("nothing here can leave the build's network: build with envbuild make\n")


def test_programs_of_images_know_every_architecture() -> None:
    assert set(load_program()["MACHINES"]) == set(BY_MACHINE) == set(STUB_MACHINES)


MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_… of audit.h
OTHERS = (0x40000003, 0x40000028, 0xC00000F3)  # i386, arm, riscv64
ALLOW, REFUSE = 0x7FFF0000, 0x50061  # SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO with EAFNOSUPPORT
FAMILIES = {
    socket.AF_UNIX: ALLOW,
    socket.AF_NETLINK: ALLOW,
    socket.AF_INET: REFUSE,
    socket.AF_INET6: REFUSE,
    socket.AF_PACKET: REFUSE,
    socket.AF_VSOCK: REFUSE,
    31: REFUSE,  # AF_BLUETOOTH, which a Python without the headers of Bluetooth does not name
    0: REFUSE,
}


def number_of(call: str, machine: int) -> int:
    """Return the number of a system call, as libseccomp knows it."""
    library = ctypes.CDLL(find_library("seccomp"))
    return int(library.seccomp_syscall_resolve_name_arch(machine, call.encode()))


def verdict(program: bytes, machine: int, number: int, *arguments: int) -> int:
    """Return what the kernel's machine for classic BPF says of a system call (bpf_common.h)."""
    data = struct.pack("=IIQ6Q", number, machine, 0, *arguments, *[0] * (6 - len(arguments)))
    rows = [*struct.iter_unpack("=HBBI", program)]
    at = held = 0
    while True:
        code, if_true, if_not, value = rows[at]
        at += 1
        if code == 0x06:  # BPF_RET | BPF_K
            return int(value)
        if code == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            (held,) = struct.unpack_from("=I", data, value)
        else:  # BPF_JMP with BPF_JEQ or BPF_JGE
            holds = {0x15: held == value, 0x35: held >= value}[code]
            at += if_true if holds else if_not


@pytest.mark.skipif(find_library("seccomp") is None, reason="libseccomp2 is not installed")
@pytest.mark.parametrize("machine", MACHINES)
class TestFilter:
    """The program of each machine, its numbers as libseccomp has them."""

    def program(self, machine: str) -> bytes:
        return bytes(load_program()["socket_filter"](machine))

    @pytest.mark.parametrize("family", FAMILIES)
    def test_sockets_are_allowed_by_their_family(self, family: int, machine: str) -> None:
        number = number_of("socket", MACHINES[machine])
        found = verdict(self.program(machine), MACHINES[machine], number, family)
        assert found == FAMILIES[family]

    def test_all_other_calls_but_one_are_allowed(self, machine: str) -> None:
        own, program = MACHINES[machine], self.program(machine)
        refused = {number_of("io_uring_setup", own)}
        calls = set(range(600)) - {number_of("socket", own)}
        assert {call for call in calls if verdict(program, own, call) == REFUSE} == refused

    def test_another_machine_is_refused(self, machine: str) -> None:
        other = [*OTHERS, *(arch for name, arch in MACHINES.items() if name != machine)]
        program = self.program(machine)
        numbers = range(600)
        assert {verdict(program, arch, at, 1) for arch in other for at in numbers} == {REFUSE}

    def test_the_second_table_of_calls_of_one_machine_is_refused(self, machine: str) -> None:
        """x32's socket(), which the kernel takes by another number."""
        number = 0x40000000 | number_of("socket", MACHINES[machine])
        assert verdict(self.program(machine), MACHINES[machine], number, 1) == REFUSE
