"""Plays ``ssh -N -L``: a port of this machine that leads to one in the schedulers' own network."""

from __future__ import annotations

import contextlib
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

RELAY = """
import os, socket, sys, threading
far = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30)
far.settimeout(None)

def answer():
    while data := far.recv(65536):
        os.write(1, data)
    os._exit(0)

threading.Thread(target=answer, daemon=True).start()
while data := os.read(0, 65536):
    far.sendall(data)
far.shutdown(socket.SHUT_WR)
threading.Event().wait(30)
"""
"""What carries bytes between its input and output and an address; it is run in the network of the nodes."""


def enter_words(clients: Path) -> tuple[str, ...]:
    """Return what starts a program in the network of the nodes; of PBS, on the node with its server."""
    enter = re.search(r"exec (.+? --) env ", (clients / "qsub").read_text())
    assert enter is not None
    return tuple(shlex.split(enter[1]))


@contextlib.contextmanager
def tunnel(clients: Path, target: tuple[str, int]) -> Iterator[int]:
    """Lend a port of 127.0.0.1 that leads to a node's; ``clients`` are the schedulers' clients."""
    address = (target[0], str(target[1]))
    words = (*enter_words(clients), sys.executable, "-c", RELAY, *address)
    relays: list[subprocess.Popen[bytes]] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    near, _ = server.accept()
                    with near:
                        relays.append(
                            subprocess.Popen(words, stdin=near.fileno(), stdout=near.fileno())
                        )

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for relay in relays:
                relay.kill()
                relay.wait()
