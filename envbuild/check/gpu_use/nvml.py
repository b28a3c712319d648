"""NVIDIA's management library, asked from this machine: what the GPUs do now and for whom."""

from __future__ import annotations

import ctypes
from typing import Any

from envbuild.errors import HostError
from envbuild.records import frozen_record

LIBRARY = "libnvidia-ml.so.1"
MOST = 256
"""Cards, and processes of one card, that are asked for at most."""


@frozen_record
class Card:
    """One GPU at one moment; memory in bytes, ``busy`` in per cent (None: a MIG card does not tell).

    ``processes`` maps process ids to the memory that they hold (None: the driver does not tell it).
    """

    index: int
    name: str
    used: int
    total: int
    busy: int | None
    processes: dict[int, int | None]


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


UNKNOWN_MEMORY = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE as an unsigned number (nvml.h)."""


class Nvml:
    """The library, initialised.

    ``library`` is a file to open instead of the driver's.  Raises HostError.
    """

    def __init__(self, library: str | None = None) -> None:
        try:
            self.library: Any = ctypes.CDLL(library or LIBRARY)
            code = self.library.nvmlInit_v2()
        except (OSError, AttributeError) as error:
            raise HostError(
                f"this machine has no NVIDIA driver that could be asked ({error})",
                hint="watch on the node where the job runs: srun --jobid=ID --overlap --pty envbuild watch --pid PID",
            ) from error
        if code:
            raise HostError(
                f"the NVIDIA driver does not answer (nvmlInit gives {code})",
                hint="nvidia-smi shows more",
            )

    def cards(self) -> tuple[Card, ...]:
        """Look at every GPU."""
        count = ctypes.c_uint()
        if self.library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return ()
        return tuple(card for index in range(min(count.value, MOST)) if (card := self._card(index)))

    def _card(self, index: int) -> Card | None:
        handle = ctypes.c_void_p()
        if self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            return None
        name, memory, rates = ctypes.create_string_buffer(96), _Memory(), _Rates()
        self.library.nvmlDeviceGetName(handle, name, 96)
        self.library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        unknown = self.library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates))
        return Card(
            index=index,
            name=name.value.decode("utf-8", "replace"),
            used=memory.used,
            total=memory.total,
            busy=None if unknown else rates.gpu,
            processes=self._processes(handle),
        )

    def _processes(self, handle: ctypes.c_void_p) -> dict[int, int | None]:
        """Return who computes on a card.

        The oldest form of the call has no MIG fields and is not asked.
        """
        stem = "nvmlDeviceGetComputeRunningProcesses"
        call = getattr(self.library, f"{stem}_v3", None) or getattr(
            self.library, f"{stem}_v2", None
        )
        room, table = ctypes.c_uint(MOST), (_Process * MOST)()
        if call is None or call(handle, ctypes.byref(room), table):
            return {}
        found = [table[number] for number in range(min(room.value, MOST))]
        return {one.pid: None if one.memory == UNKNOWN_MEMORY else one.memory for one in found}
