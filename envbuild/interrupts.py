"""The signals that ask this process to end: Python tells its main thread alone, and commands run in others too."""

from __future__ import annotations

import threading
from typing import NoReturn

ASKED_TO_END = threading.Event()
"""Set by the first such signal, and never cleared."""


def raise_interrupt(*_: object) -> NoReturn:
    """Handle a signal: raise KeyboardInterrupt here, and let threads that wait for a command end it."""
    ASKED_TO_END.set()
    raise KeyboardInterrupt
