"""Run all attacks in one process that may take 512 MB more than it begins with; print what came of each as JSON."""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from envbuild.errors import EnvbuildError
from tests.hostile.attacks import ATTACKS

ROOM = 512 * 1024 * 1024


def confine() -> None:
    """Hold this process to so much more address space than it has now, and so many seconds of processor."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def outcome(name: str) -> dict[str, object]:
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    begun = time.process_time()
    try:
        ATTACKS[name](folder)
        told = "nothing was told"
    except EnvbuildError as error:
        told = f"{error.code}: {error}"
    except BaseException as error:  # noqa: BLE001  (that is the question)
        told = f"{type(error).__name__}: {error}"[:300]
    finally:
        shutil.rmtree(folder)
    return {"told": told, "seconds": time.process_time() - begun}


if __name__ == "__main__":
    confine()
    for name in sys.argv[1:] or ATTACKS:
        print(json.dumps({"name": name, **outcome(name)}), flush=True)
