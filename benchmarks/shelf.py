"""Measure a folder shelf: seconds of a cold search, and the bytes that publishing adds.

usage: python benchmarks/shelf.py [--entries 1000] [--repeat 7] [--images FIRST.sif SECOND.sif]

Every search is a process of its own, so Python's start is part of it.  With --images they are published
one after another, and what each added is told.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from envbuild.cli.terminal import Lines
from envbuild.shelf.backend import slot_path
from envbuild.shelf.folder import FolderBackend
from envbuild.shelf.model import CheckSummary, Entry, EntrySummary, slot_name, write_entry
from envbuild.shelf.pieces import describe_image, store_image

FRAMEWORKS = (
    ("torch 2.5.1", "12.4.127"),
    ("tensorflow 2.15.1", "12.2.140"),
    ("jax 0.4.35", "12.6.3"),
)


def fill(shelf: FolderBackend, entries: int) -> None:
    """Put that many names on a shelf, each with two verdicts and a history of two."""
    digest = f"sha256:{hashlib.sha256(b'x').hexdigest()}"
    for number in range(entries):
        framework, cuda = FRAMEWORKS[number % 3]
        verdicts = tuple(
            CheckSummary(
                report=digest,
                outcome="passed",
                level="full",
                when="2026-11-01T00:00:00Z",
                gpu=(gpu,),
                driver="550.54",
            )
            for gpu in ("NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB")
        )
        about = EntrySummary(
            summary=f"Recipe {number} of the lab", base="debian:bookworm", framework=framework, cuda=cuda, packages=80,
            python="3.11.2", platform="linux/amd64", direct=tuple(f"package{item}>=1.{number}" for item in range(9)),
        )  # fmt: skip
        entry = Entry(
            schema=1, name=f"recipe-{number:04d}", number=1, previous=None, who="ann", when="2026-11-01T00:00:00Z",
            envbuild="0.1.0", recipe=digest, lock=digest, locked=digest, definition=digest,
            verdicts=verdicts, about=about,
        )  # fmt: skip
        first = write_entry(entry)
        previous = f"sha256:{hashlib.sha256(first).hexdigest()}"
        second = write_entry(msgspec.structs.replace(entry, number=2, previous=previous))
        for slot, data in ((slot_name(entry.name, 1), first), (slot_name(entry.name, 2), second)):
            path = shelf.root / slot_path(slot)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)


def seconds_of(argv: list[str], env: dict[str, str], repeat: int) -> tuple[float, float, float]:
    """Return median and best wall seconds, and the best seconds of processor time."""
    walls, cpus = [], []
    for _ in range(repeat):
        before, started = os.times(), time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "envbuild", *argv],
            env=env,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        walls.append(time.monotonic() - started)
        after = os.times()
        cpus.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    return statistics.median(walls), min(walls), min(cpus)


def search(entries: int, repeat: int) -> None:
    """Measure searches."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        env = {
            **kept,
            "HOME": folder,
            "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
            "ENVBUILD_STORE": f"{folder}/store",
        }
        subprocess.run(
            [sys.executable, "-m", "envbuild", "-q", "shelf", "add", "lab", f"{folder}/shelf"],
            env=env,
            check=True,
        )
        fill(FolderBackend(Path(folder) / "shelf"), entries)
        for words in (
            ["recipe-0777"],
            ["package3", "--gpu", "a100"],
            ["--framework", "torch==2.5", "--json"],
        ):
            median, best, cpu = seconds_of(["shelf", "search", *words], env, repeat)
            told = f"median {median:.2f} s, best {best:.2f} s, processor {cpu:.2f} s"
            print(f"search {' '.join(words)} among {entries}: {told}")


def images(paths: list[Path]) -> None:
    """Measure what images add to a shelf, one after another."""
    with tempfile.TemporaryDirectory(dir=paths[0].parent) as folder:
        shelf = FolderBackend(Path(folder) / "shelf")
        shelf.create()
        for path in paths:
            started = time.monotonic()
            weight = describe_image(path, _lock(path))
            listed, new = store_image(path, weight, shelf, Lines())
            took = time.monotonic() - started
            count = len(json.loads(listed)["pieces"])
            print(
                f"{path.name}: {weight.size} bytes in {count} pieces, {new} new ({new / weight.size:.1%}), {took:.1f} s"
            )


def _lock(path: Path) -> str:
    from envbuild.build.image.verify import read_embedded_info
    from envbuild.lock.digest import lock_digest

    carried = read_embedded_info(path).lock
    return lock_digest(carried) if carried else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--images", type=Path, nargs="+")
    given = parser.parse_args()
    if given.images:
        images(given.images)
    else:
        search(given.entries, given.repeat)


if __name__ == "__main__":
    main()
