"""Run all attacks in one process that may take 512 MB more than it begins with; print what came of each as JSON."""

from __future__ import annotations

import json
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from envbuild.errors import EnvbuildError
from tests.hostile.attacks import ATTACKS

ROOM = 512 * 1024 * 1024
SECONDS = 60


def confine() -> None:
    """Hold this process to so much more address space than it has now, and so many seconds of processor."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def end_attack(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s of the processor")


def outcome(name: str) -> dict[str, object]:
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    begun = time.process_time()
    signal.signal(signal.SIGPROF, end_attack)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        ATTACKS[name](folder)
        told = "nothing was told"
    except EnvbuildError as error:
        told = f"{error.code}: {error}"
    except BaseException as error:  # noqa: BLE001  (that is the question)
        told = f"{type(error).__name__}: {error}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        shutil.rmtree(folder)
    told = re.sub(r"0x[0-9a-f]{6,}", "ADDRESS", told.replace(str(folder), "FOLDER"))
    return {"told": told, "seconds": time.process_time() - begun}


if __name__ == "__main__":
    confine()
    for name in sys.argv[1:] or ATTACKS:
        print(json.dumps({"name": name, **outcome(name)}), flush=True)
