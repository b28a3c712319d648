"""Limits of the process that reads channels, which grow with what the channels have sent.

rattler tells neither what it received nor what that unpacks to.  So the kernel holds the process to
the limits of a small list, and a thread raises them for every byte that arrives.
"""

from __future__ import annotations

import os
import resource
import socket
import stat
import struct
import threading
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from envbuild import limits

PAUSE = 0.02
"""Seconds: at 600 MB/s, unpacked, a fifth of the first list's limit arrives in that time.

On a busy machine this thread comes later than that; the rest is for it.
"""
BYTES_RECEIVED = 128
"""Where the count of received bytes lies in the kernel's tcp_info (8 bytes; Linux 4.1 and newer)."""


def start_limits(cache: Path, local: Sequence[Path]) -> None:
    """Hold this process to the limits, from now on.

    ``cache`` holds the lists of earlier runs, ``local`` are channels that are folders: nobody has
    to send these again.
    """
    lists = chain.from_iterable(channel.glob("*/repodata*") for channel in local)
    at_hand = sum(path.stat().st_size for path in chain(cache.rglob("*"), lists) if path.is_file())
    set_limits(at_hand)
    threading.Thread(target=_raise_limits, args=(at_hand,), daemon=True).start()


def set_limits(size: int) -> None:
    """Set the limits for lists of so many bytes as they are sent; see ``limits``."""
    seconds = limits.CHANNEL_CPU + size // limits.MIB
    data = min(limits.CHANNEL_MEMORY + 8 * size, limits.CHANNEL_MEMORY_MOST)
    file = min(limits.CHANNEL_LIST + 20 * size, limits.CHANNEL_LIST_MOST)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_DATA, (data, limits.CHANNEL_MEMORY_MOST))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file, limits.CHANNEL_LIST_MOST))


def _raise_limits(at_hand: int) -> None:
    received: dict[int, int] = {}
    pause = threading.Event()
    while not pause.wait(PAUSE):
        received |= count_received()
        set_limits(at_hand + sum(received.values()))


def count_received() -> dict[int, int]:
    """Return the bytes that each open TCP connection of this process has received, by inode."""
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        number = int(path.name)
        try:
            about = os.fstat(number)
            if not stat.S_ISSOCK(about.st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as connection:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except OSError:
            continue  # closed meanwhile, or no TCP
        if len(info) >= BYTES_RECEIVED + 8:
            found[about.st_ino] = int(struct.unpack_from("=Q", info, BYTES_RECEIVED)[0])
    return found
