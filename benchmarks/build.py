"""Time ``flat`` and ``layered`` against the definition written by hand, on the same base in the same run.

    python benchmarks/build.py [--recipe keras-bert] [--work FOLDER] [--repeat 3] [--no-by-hand]

Every figure is a median; the check is left out (``--no-check``) and timed beside.  "base present" is the Debian root
without the recipe's own Debian packages, on both sides.  Beside the seconds stand those of the processor, of all
processes of the run, which depend less on what else the machine does.  Peak memory is that of the largest process of a
mode's cold runs, temporary disk the most that the store's working folder held in its cold and warm runs.  Prints each
figure when it is known, and a JSON document last; ratios are what to compare between machines, not seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import tomli

from envbuild.run import Command, LocalRunner
from envbuild.settings import shipped_folder

sys.path.insert(0, str(Path(__file__).resolve().parent))
from make import build_by_hand

RUN = LocalRunner()
ADDED = "tomli"
"""A small package with nothing it requires."""
MEASURED = """
import json, os, resource, sys
code = os.spawnv(os.P_WAIT, sys.argv[2], sys.argv[2:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    json.dump([used.ru_utime + used.ru_stime, used.ru_maxrss * 1024], file)
sys.exit(code)
"""
"""Runs a command and writes what it and all below it used: a process of its own, for the kernel only tells totals."""
FRAMEWORKS = {"keras-bert": "tensorflow", "torch-mnist": "torch"}


@dataclass(frozen=True)
class Run:
    """What a command took: seconds, those of the processor, and bytes of memory of its largest process."""

    seconds: float
    processor: float
    memory: int


class Bench:
    """One recipe in a folder of its own with a store of its own."""

    def __init__(self, folder: Path, recipe: str, repeat: int) -> None:
        self.folder, self.recipe, self.repeat = folder, recipe, repeat
        self.store = folder / "store"
        # an installed program has its bytecode
        kept = {
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        }
        self.env = {**kept, "ENVBUILD_STORE": str(self.store), "TMPDIR": str(folder)}
        shipped = shipped_folder()
        for name in ("recipes", "lockfiles"):
            shutil.copytree(shipped / name, folder / name)
        lock = tomli.loads((folder / "lockfiles" / f"{recipe}.lock").read_text("utf-8"))
        self.base = lock["base"]["digest"].replace(":", "-")

    def envbuild(self, *arguments: str, **env: str) -> Run:
        """Run envbuild and return what it took."""
        used = self.folder / "used.json"
        argv = (
            sys.executable,
            "-c",
            MEASURED,
            str(used),
            sys.executable,
            "-m",
            "envbuild",
            *arguments,
        )
        seconds = RUN(Command(argv=argv, cwd=self.folder, env={**self.env, **env})).seconds
        return Run(seconds, *json.loads(used.read_text("utf-8")))

    def clear(self, *names: str) -> None:
        """Remove folders of the store; of Debian roots the base itself stays."""
        for name in names:
            for path in sorted((self.store / "v1" / name).rglob("*"), reverse=True):
                if path.is_file() and not (name == "bases" and path.stem == self.base):
                    path.unlink()
        (self.folder / f"{self.recipe}.sif").unlink(missing_ok=True)

    def cleared(self, clear: tuple[str, ...], *arguments: str) -> list[Run]:
        """Clear and run, several times."""
        taken = []
        for _ in range(self.repeat):
            self.clear(*clear)
            taken.append(self.envbuild(*arguments))
        return taken

    def mode(self, mode: str) -> dict[str, float]:
        """Return the figures of one mode."""
        make = ("make", self.recipe, "--mode", mode, "--no-check")
        packed = ("layers", "built", "images", "bases", "delivered")
        disk = Disk(self.store / "v1/tmp")
        found: dict[str, float] = {}

        def note(what: str, taken: list[Run]) -> None:
            found[what] = told(f"{mode}, {what}", statistics.median(run.seconds for run in taken))
            processor = statistics.median(run.processor for run in taken)
            found[f"{what}, processor"] = told(f"{mode}, {what}, of the processor", processor)

        cold = self.cleared(("artifacts", *packed), *make)
        note("cold", cold)
        note("warm", self.cleared(packed, *make))
        found["peak memory bytes"] = float(max(run.memory for run in cold))
        found["temporary bytes"] = float(disk.end())
        note("one package added", self.one_more(mode))
        self.envbuild(*make)
        note("nothing changed", [self.envbuild(*make) for _ in range(max(self.repeat, 5))])
        note("second user", self.second_user(make, mode))
        found["bytes"] = float((self.folder / f"{self.recipe}.sif").stat().st_size)
        found["import"] = self.imported(self.folder / f"{self.recipe}.sif", mode)
        return found

    def one_more(self, mode: str) -> list[Run]:
        """Time the recipe with one more package, when all the others are in the store."""
        text = (self.folder / "recipes" / f"{self.recipe}.toml").read_text("utf-8")
        more = re.sub(r"(dependencies = \[)", rf'\1\n  "{ADDED}",', text, count=1)
        more = more.replace(f'name = "{self.recipe}"', 'name = "more"', 1)
        (self.folder / "recipes" / "more.toml").write_text(more, "utf-8")
        shutil.copy(
            self.folder / "lockfiles" / f"{self.recipe}.lock",
            self.folder / "lockfiles" / "more.lock",
        )
        self.envbuild("lock", "more")
        taken = []
        for _ in range(self.repeat):
            self.clear("images", "delivered")
            self.envbuild("make", self.recipe, "--mode", mode, "--no-check")
            before = set((self.store / "v1/layers").iterdir())
            taken.append(self.envbuild("make", "more", "--mode", mode, "--no-check"))
            for path in set((self.store / "v1/layers").iterdir()) - before:
                path.unlink()
            (self.folder / "more.sif").unlink()
        return taken

    def second_user(self, make: tuple[str, ...], mode: str) -> list[Run]:
        """Time another user who has nothing but the lab's store below."""
        taken = []
        for number in range(self.repeat):
            (self.folder / f"{self.recipe}.sif").unlink()
            own = self.folder / f"own-{mode}-{number}"
            taken.append(
                self.envbuild(*make, ENVBUILD_STORE=str(own), ENVBUILD_STORE_BELOW=str(self.store))
            )
        return taken

    def imported(self, image: Path, what: str) -> float:
        """Time the framework's import in an image."""
        module = FRAMEWORKS[self.recipe]
        argv = (
            "apptainer",
            "--quiet",
            "exec",
            "--userns",
            "--cleanenv",
            str(image),
            "python3",
            "-c",
            f"import {module}",
        )
        taken = [RUN(Command(argv=argv, env=self.env)).seconds for _ in range(max(self.repeat, 3))]
        return told(f"{what}, import {module}", statistics.median(taken))


def told(what: str, seconds: float) -> float:
    """Print a figure and return it."""
    print(f"{what}: {seconds:.2f} s", file=sys.stderr, flush=True)
    return round(seconds, 2)


class Disk:
    """The most that a folder's temporary files took, looked at twice a second."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.most, self.stop = folder, 0, threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.stop.wait(0.5):
            size = 0
            for top, _, names in os.walk(self.folder):
                for name in names:
                    with contextlib.suppress(OSError):
                        size += (Path(top) / name).lstat().st_size
            self.most = max(self.most, size)

    def end(self) -> int:
        """Stop looking and return the most that was there, in bytes."""
        self.stop.set()
        self.thread.join()
        return self.most


def main() -> None:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="keras-bert", choices=sorted(FRAMEWORKS))
    parser.add_argument(
        "--work", type=Path, help="a folder with 30 GB free (default: a temporary one)"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-by-hand", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="envbuild-bench-", dir=options.work and options.work.resolve()
    ) as name:
        bench = Bench(Path(name), options.recipe, options.repeat)
        bench.envbuild(
            "make", options.recipe, "--no-check"
        )  # the base, and the operating system's cache
        started = time.monotonic()
        modes = {mode: bench.mode(mode) for mode in ("flat", "layered")}
        found: dict[str, object] = {**modes}
        found["check"] = told("the check, beside", bench.envbuild("check", options.recipe).seconds)
        if not options.no_by_hand:
            bench.clear("bases")  # the base alone is what by hand starts from too
            runs = [
                build_by_hand(bench.folder, bench.store, options.recipe)
                for _ in range(options.repeat)
            ]
            by_hand = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            by_hand["import"] = bench.imported(bench.folder / "by-hand.sif", "by hand")
            found["by hand"] = by_hand
            found["ratios"] = ratios(modes, by_hand)
        print(f"all in {time.monotonic() - started:.0f} s", file=sys.stderr)
        print(json.dumps(found, indent=1))


def ratios(
    modes: dict[str, dict[str, float]], by_hand: dict[str, float]
) -> dict[str, dict[str, float]]:
    """Return how many times faster than by hand each figure is, and the size as a share of that by hand."""
    out = {}
    for mode, figures in modes.items():
        out[mode] = {
            key: round(by_hand["by-hand"] / figures[key], 1)
            for key in ("cold", "warm", "one package added")
        }
        out[mode]["import"] = round(by_hand["import"] / figures["import"], 2)
        out[mode]["size"] = round(figures["bytes"] / by_hand["image bytes"], 3)
    return out


if __name__ == "__main__":
    main()
