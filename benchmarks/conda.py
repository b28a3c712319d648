"""Solve conda packages over a channel of 50,000 made records: cold, warm, memory.

    python benchmarks/conda.py [--records 50000] [--packages 60] [--work FOLDER]

The channel has the shape of conda-forge's: some 2,500 names with twenty versions each, every one requiring three
others of lower number, a framework with builds for CPU and CUDA among them.  It is served on 127.0.0.1, as
one packed list.  Each question runs in a process of its own: *cold* with an empty store, *warm* with what
the first one left there.  Memory is the process's largest (VmHWM).  No conda channel is asked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.conda.channels import forge, make_channel, serve  # noqa: E402

VERSIONS = 20
ASK = """
import json, resource, sys, time
from pathlib import Path
start = time.perf_counter()
sys.path.insert(0, {root!r})
from tests.conda.asking import choose, context_of, user_of
context = context_of(user_of(Path({folder!r}), forge={url!r}))
ready = time.perf_counter()
found = choose(context, *{specs!r}, driver="580", cards=(90,))
end = time.perf_counter()
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({{"packages": len(found.packages), "import": ready - start, "solve": end - ready,
    "cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss / 1024,
    "framework": next(p.build for p in found.packages if p.name == "pytorch")}}))
"""


def made_records(count: int) -> dict[str, Any]:
    """Return records by file name; the same number gives the same records."""
    chance = random.Random(18)  # noqa: S311  (no secret)
    found: dict[str, Any] = {}
    for number in range(count // VERSIONS):
        name = f"lib{number:05}"
        for minor in range(VERSIONS):
            needs = sorted({chance.randrange(number) for _ in range(3)}) if number else []
            file = f"{name}-1.{minor}-h{minor}_0.conda"
            found[file] = {
                "name": name,
                "version": f"1.{minor}",
                "build": f"h{minor}_0",
                "build_number": 0,
                "depends": [f"lib{other:05} >=1.{chance.randrange(10)},<2.0a0" for other in needs],
                "license": "MIT",
                "md5": hashlib.md5(file.encode()).hexdigest(),  # noqa: S324  (as channels have it)
                "sha256": hashlib.sha256(file.encode()).hexdigest(),
                "size": 1000 + number,
                "subdir": "linux-64",
                "timestamp": 1_700_000_000_000 + minor * 86_400_000,
            }
    return found


def main() -> None:
    """Make the channel, ask, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--packages", type=int, default=60)
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="conda-bench-"))
    try:
        measure(work, options.records, options.packages)
    finally:
        if options.work is None:
            shutil.rmtree(work)


def measure(work: Path, count: int, packages: int) -> None:
    """Make the channel in a folder and ask it three times."""
    records = made_records(count)

    def add(subdir: str, data: dict[str, Any]) -> None:
        if subdir == "linux-64":
            data["packages.conda"] |= records

    channel = make_channel(work / "served/forge", forge(), change=add)
    size = (channel / "linux-64/repodata.json.zst").stat().st_size
    print(f"{len(records)} records, packed list {size / 1e6:.1f} MB")
    specs = ["pytorch", "python 3.12.*", *asked(records, packages)]
    with serve(work / "served") as served:
        for what in ("cold", "warm", "warm"):
            print(what, ask(work, f"{served.url}/forge", specs))


def asked(records: dict[str, Any], packages: int) -> list[str]:
    """Return names whose closure has about that many packages."""
    newest = {r["name"]: r for r in records.values()}
    closure: set[str] = set()
    chosen = []
    for name in sorted(newest)[30:]:
        if len(closure) >= packages:
            break
        chosen.append(name)
        todo = [name]
        while todo:
            one = todo.pop()
            if one not in closure:
                closure.add(one)
                todo += [spec.split()[0] for spec in newest[one]["depends"]]
    return chosen


def ask(work: Path, url: str, specs: list[str]) -> str:
    """Ask once in a process of its own; return what it took, for people."""
    code = ASK.format(root=str(HERE.parent), folder=str(work), url=url, specs=specs)
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    whole = time.perf_counter() - start
    return (
        f"{told['packages']} packages: {whole:.2f} s ({told['solve']:.2f} s solving, "
        f"{told['cpu']:.2f} s processor), {told['peak']:.0f} MB, {told['framework']}"
    )


if __name__ == "__main__":
    main()
