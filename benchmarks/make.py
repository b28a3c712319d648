"""Time ``envbuild make keras-bert`` against the same job by hand, stage by stage, in one run on one machine.

    python benchmarks/make.py [--recipe keras-bert] [--mode auto] [--work FOLDER] [--no-by-hand]

Cold: an empty store.  Warm: every file and the Debian root in the store, the image not.  By hand: a definition with apt
and one pip line (benchmarks/by-hand), built by ``apptainer build --fakeroot`` on the same Debian root.  Prints one line
a figure and a JSON document last; ratios are what to compare between machines, not seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

from envbuild.run import Command, LocalRunner

HERE = Path(__file__).resolve().parent
RUN = LocalRunner()


def main() -> None:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="keras-bert")
    parser.add_argument(
        "--work", type=Path, help="a folder with 25 GB free (default: a temporary one)"
    )
    parser.add_argument("--mode", default="auto", help="how to build: auto, flat, fakeroot")
    parser.add_argument("--no-by-hand", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="envbuild-bench-", dir=options.work and options.work.resolve()
    ) as folder:
        print(json.dumps(measure(Path(folder), options, by_hand=not options.no_by_hand), indent=1))


def measure(folder: Path, options: argparse.Namespace, *, by_hand: bool) -> dict[str, object]:
    """Return seconds by stage of each way, and the image's size in bytes."""
    store, recipe, mode = folder / "store", options.recipe, options.mode
    found: dict[str, object] = {"start-up": start_up()}
    found["cold"] = make(folder, store, recipe, mode)
    image = folder / f"{recipe}.sif"
    found["image bytes"] = image.stat().st_size
    for kept in (store / "v1/images").glob("*.sif"):
        kept.unlink()
    found["warm"] = make(folder, store, recipe, mode)
    found["nothing changed"] = make(folder, store, recipe, mode)
    if by_hand:
        found["by hand"] = build_by_hand(folder, store, recipe)
    return found


def make(folder: Path, store: Path, recipe: str, mode: str) -> dict[str, float]:
    """Make the recipe and return seconds by stage, as envbuild itself tells them, and in all."""
    env = {**os.environ, "ENVBUILD_STORE": str(store), "TMPDIR": str(folder)}
    started = time.monotonic()
    argv = (sys.executable, "-m", "envbuild", "make", recipe, "--mode", mode)
    result = RUN(Command(argv=argv, cwd=folder, env=env))
    stages = {"all": round(time.monotonic() - started, 1)}
    for line in result.stderr.splitlines():
        if match := re.fullmatch(
            r"(.+?): (?:.* in )?(?:(\d+) min ?)?(?:([\d.]+) s)?(?: \(.*\))?", line
        ):
            title, minutes, seconds = match.groups()
            if minutes or seconds:
                stages[title] = 60.0 * int(minutes or 0) + float(seconds or 0)
    print(f"{recipe}: {stages}", file=sys.stderr)
    return stages


def build_by_hand(folder: Path, store: Path, recipe: str) -> dict[str, float]:
    """Build the by-hand definition on envbuild's own Debian root and return seconds."""
    root = next((store / "v1/bases").glob("*.tar"))
    (folder / "base.def").write_text(
        f'Bootstrap: scratch\n\n%setup\n    tar -C "$APPTAINER_ROOTFS" --numeric-owner -xf {root}\n',
        encoding="utf-8",
    )
    shutil.copy(HERE / "by-hand" / f"{recipe}.def", folder / "by-hand.def")
    env = {
        **os.environ,
        "TMPDIR": str(folder),
        "APPTAINER_TMPDIR": str(folder),
        "APPTAINER_NO_MOUNT": "tmp",
    }
    seconds = {}
    for name in ("base", "by-hand"):
        (folder / f"{name}.sif").unlink(missing_ok=True)  # of the run before
        started = time.monotonic()
        RUN(
            Command(
                argv=("apptainer", "build", "--fakeroot", f"{name}.sif", f"{name}.def"),
                cwd=folder,
                env=env,
            )
        )
        seconds[name] = round(time.monotonic() - started, 1)
        print(f"{name}: {seconds[name]} s", file=sys.stderr)
    return {**seconds, "image bytes": float((folder / "by-hand.sif").stat().st_size)}


def start_up() -> dict[str, float]:
    """Return the median of 7 runs of ``envbuild --help`` and of an empty Python, in seconds."""

    def median(*argv: str) -> float:
        return sorted(RUN(Command(argv=(sys.executable, *argv))).seconds for _ in range(7))[3]

    return {
        "envbuild --help": round(median("-m", "envbuild", "--help"), 3),
        "python -c pass": round(median("-c", "pass"), 3),
    }


if __name__ == "__main__":
    main()
