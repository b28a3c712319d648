"""Do one thing to many items on threads that an error or Ctrl-C ends at once."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from envbuild.net.web import StoppedError

T = TypeVar("T")
PATIENCE = 0.5
"""Seconds to wait for threads after an error; the process ends those that hang."""


def for_each_parallel(
    items: Iterable[T], action: Callable[[T, threading.Event], None], *, workers: int
) -> None:
    """Call ``action(item, stop)`` for every item on ``workers`` threads; raise the first error.

    An action looks at ``stop`` after whatever blocks, and raises StoppedError when it is set.  The
    threads are daemons, not a pool's: a pool would keep the process alive until the last silent
    connection has timed out.
    """
    waiting: queue.SimpleQueue[T] = queue.SimpleQueue()
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    stop = threading.Event()
    count = 0
    for item in items:
        waiting.put(item)
        count += 1

    def work() -> None:
        error: BaseException | None = None
        try:
            while not stop.is_set():
                action(waiting.get_nowait(), stop)
        except (queue.Empty, StoppedError):
            pass
        except BaseException as raised:  # noqa: BLE001  (handed to the caller's thread)
            error = raised
        ended.put(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(workers, count))]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            error = ended.get()
            if error is not None:
                raise error
    finally:
        stop.set()
        deadline = time.monotonic() + PATIENCE
        for thread in threads:
            with contextlib.suppress(RuntimeError):  # not started yet when Ctrl-C came
                thread.join(max(0.0, deadline - time.monotonic()))
