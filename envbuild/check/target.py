"""The node that an image is meant for: its GPUs, driver and C library, told instead of looked at."""

from __future__ import annotations

import re

from envbuild.base.gpu_names import capability_of
from envbuild.errors import UsageError
from envbuild.records import frozen_record


@frozen_record
class Target:
    """A kind of node.

    ``capability`` is times ten, ``gpu`` what the user called it; None is not told.
    """

    gpu: str | None = None
    capability: int | None = None
    driver: str | None = None
    glibc: str | None = None

    def __str__(self) -> str:
        named = (
            self.gpu,
            f"driver {self.driver}" if self.driver else None,
            f"glibc {self.glibc}" if self.glibc else None,
        )
        return ", ".join(text for text in named if text)


def read_target(
    *, gpu: str | None = None, driver: str | None = None, glibc: str | None = None
) -> Target | None:
    """Read what was told about a kind of node; None where nothing was.

    ``gpu`` is a card ("A100", "Tesla V100S-PCIE-32GB", "RTX 3090") or a compute capability ("8.0",
    "sm_80"). Raises UsageError for an unknown card and for versions that are none.
    """
    if gpu is None and driver is None and glibc is None:
        return None
    for option, text in (("--driver", driver), ("--glibc", glibc)):
        if text is not None and not re.fullmatch(r"\d+(\.\d+){1,2}", text):
            example = (
                "450.80.02 (nvidia-smi shows it)"
                if option == "--driver"
                else "2.28 (ldd --version shows it)"
            )
            raise UsageError(
                f"{text!r} is no version", where=option, hint=f"for example {option} {example}"
            )
    return Target(
        gpu=gpu, capability=None if gpu is None else capability_of(gpu), driver=driver, glibc=glibc
    )
