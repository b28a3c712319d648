"""Plays ``ssh -N -L``: a port of this machine that leads to one in the schedulers' own network."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

NEW_NETWORK = 0x40000000
"""CLONE_NEWNET of setns(2), which moves the calling thread alone."""


def _enter_network(space: str) -> None:
    handle = os.open(space, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(handle, NEW_NETWORK):
            raise OSError(ctypes.get_errno(), "setns", space)
    finally:
        os.close(handle)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _carry(near: socket.socket, space: str, target: tuple[str, int]) -> None:
    with contextlib.suppress(OSError), near:
        _enter_network(space)
        with socket.create_connection(target, timeout=30) as far:
            far.settimeout(None)
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join()


@contextlib.contextmanager
def tunnel(clients: Path, target: tuple[str, int]) -> Iterator[int]:
    """Lend a port of 127.0.0.1 that leads to a node's; ``clients`` are the schedulers' clients."""
    found = re.search(r"--net=(\S+)", (clients / "sbatch").read_text())
    assert found is not None
    space = found[1]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = server.accept()
                    threading.Thread(target=_carry, args=(near, space, target), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
