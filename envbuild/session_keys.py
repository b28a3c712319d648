"""Keys that the kernel keeps for a login session, such as Kerberos tickets (keyrings(7)).

A container has them too: no runtime gives it a keyring of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271}
"""The number of keyctl(2)."""
JOIN_SESSION_KEYRING = 1


def without_session_keys(start: Callable[[], T]) -> T:
    """Start a process that can find no key of this session, nor can what it starts."""
    import ctypes  # late: few commands run foreign code
    from concurrent.futures import ThreadPoolExecutor  # late: as above

    def start_apart() -> T:
        number = KEYCTL.get(os.uname().machine)
        if number is not None:
            ctypes.CDLL(None).syscall(number, JOIN_SESSION_KEYRING, None)
        return start()

    # a keyring is a thread's, and a child gets that of the thread that starts it
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(start_apart).result()
