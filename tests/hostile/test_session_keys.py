"""Foreign code finds no key of the user's login session, such as a Kerberos ticket, and no memory that others share."""

from __future__ import annotations

import ctypes
import os
import secrets
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from envbuild.cage import find_cage
from envbuild.host import read_host
from envbuild.run import Command, LocalRunner
from envbuild.runtime import ExecOptions, Runtime
from envbuild.session_keys import JOIN_SESSION_KEYRING, KEYCTL
from tests.support import needs

ADD_KEY = {"x86_64": (248, 249), "aarch64": (217, 218)}
"""The numbers of add_key(2) and request_key(2)."""
ASK = """\
import ctypes, sys
print(ctypes.CDLL(None).syscall(int(sys.argv[1]), b"user", sys.argv[2].encode(), None, 0))
"""


def in_a_session_with_a_key(name: str, ask: Callable[[], str]) -> str:
    """Ask where the session has a key of this name."""

    def begin() -> str:
        libc, machine = ctypes.CDLL(None), os.uname().machine
        joined = libc.syscall(KEYCTL[machine], JOIN_SESSION_KEYRING, None)
        add, session = ADD_KEY[machine][0], ctypes.c_int(-3)
        if joined < 0 or libc.syscall(add, b"user", name.encode(), b"secret", 6, session) < 0:
            pytest.skip("this kernel keeps no keys for us")
        return ask()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(begin).result()


@pytest.mark.skipif(os.uname().machine not in ADD_KEY, reason="other numbers of system calls")
def test_no_key_of_the_session_is_found() -> None:
    name = f"envbuild-{secrets.token_hex(6)}"
    number = str(ADD_KEY[os.uname().machine][1])
    for foreign, found in ((False, True), (True, False)):
        command = Command(argv=(sys.executable, "-c", ASK, number, name), foreign=foreign)
        said = in_a_session_with_a_key(name, lambda one=command: LocalRunner()(one).stdout)  # type: ignore[misc]
        assert (int(said) > 0) is found


def test_what_runs_foreign_code_says_so(tmp_path: Path) -> None:
    runtime = Runtime(program=tmp_path / "apptainer", name="apptainer", version=(1, 3))
    image = tmp_path / "x.sif"
    assert runtime.exec_command(image, ("true",)).foreign
    assert runtime.root_command(image, ("true",), overlay=None).foreign
    assert runtime.build_command(image, tmp_path / "x.def", tmp_path).foreign
    assert not runtime.exec_command(image, ("true",), ExecOptions(foreign=False)).foreign


@needs("unshare", "newuidmap")
@pytest.mark.skipif(os.getuid() != 0, reason="root has this namespace")
def test_roots_cage_shares_no_memory_with_this_machine(tmp_path: Path) -> None:
    runner = LocalRunner()
    cage = find_cage(read_host(), runner, Command(argv=("true",), env=dict(os.environ)))
    if cage is None:
        pytest.skip("root has no subordinate ids here")
    shared = Path(f"/dev/shm/envbuild-{secrets.token_hex(6)}")
    shared.write_text("of this machine")
    try:
        command = Command(
            argv=("sh", "-c", "ls /dev/shm; readlink /proc/self/ns/ipc"),
            env={"PATH": os.environ["PATH"]},
        )
        said = runner(cage.around(command, show=())).stdout.splitlines()
    finally:
        shared.unlink()
    assert len(said) == 1
    assert said[0] != str(Path("/proc/self/ns/ipc").readlink())
