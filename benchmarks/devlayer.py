"""Measure one package more: a layer over the image, a venv in the container, and a full make.

    python benchmarks/devlayer.py [--recipe NAME] [--work FOLDER] [--ranks N] [--kills N]
                                  [--only PART ...] [--json FILE] [PACKAGE[=MODULE] ...]

For every package three ways are timed, each from the command to the end of the first import:
`add --dev` and `exec` (a second time with its wheel in the store), `venv` with pip in a folder of the project, and
`add`, which makes and checks the whole image.  Files and bytes are what each way leaves in the project's folder.
Then N processes import at once, with and without the layer; `add --dev` is killed at random
moments, and what it left must still work; and the promoted image is compared with one that never
had a layer.  Seconds are of the wall, beside those of the processor; the machine's load is told
with them, as every figure depends on it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

from envbuild.recipe.find import find_recipe
from envbuild.settings import load_settings

CERTIFICATES = "/etc/ssl/certs"
ENVBUILD = (sys.executable, "-m", "envbuild")
PARTS = ("layer", "venv", "add", "ranks", "kills", "promote")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to one package: seconds to the end of the first import, and what it left behind."""

    package: str
    way: str
    seconds: float
    processor: float
    files: int
    bytes: int
    load: float


class Bench:
    """A project folder with an image; every way starts from the same."""

    def __init__(self, recipe: str, folder: Path) -> None:
        self.recipe, self.folder = recipe, folder
        self.image = folder / f"{recipe}.sif"

    def run(self, *words: str, cwd: Path | None = None) -> str:
        """Run envbuild in the project; end with its message where it fails."""
        return run_words((*ENVBUILD, *words), cwd or self.folder)

    def measure(self, package: str, way: str, *commands: tuple[str, ...]) -> Row:
        """Time commands one after the other, and count what is new in the folder."""
        before, spent, started = tree_of(self.folder), processor_seconds(), time.monotonic()
        for command in commands:
            run_words(command, self.folder)
        seconds = time.monotonic() - started
        after = tree_of(self.folder)
        new = {path: size for path, size in after.items() if before.get(path) != size}
        row = Row(
            package=package,
            way=way,
            seconds=round(seconds, 1),
            processor=round(processor_seconds() - spent, 1),
            files=len(new),
            bytes=sum(new.values()),
            load=round(os.getloadavg()[0], 1),
        )
        print(
            f"{package:14} {way:28} {row.seconds:7.1f} s {row.processor:6.1f} s of processor "
            f"{row.files:6} files {row.bytes:12,} bytes  load {row.load}",
            flush=True,
        )
        return row


def processor_seconds() -> float:
    """Return what all ended processes of this one have used of the processor (seconds)."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_words(words: tuple[str, ...], folder: Path) -> str:
    """Run a command and return what it printed; end where it fails."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def tree_of(folder: Path) -> dict[str, int]:
    """Return the files below a folder and their sizes."""
    paths = (Path(top) / name for top, _, names in os.walk(folder) for name in names)
    return {str(path): path.lstat().st_size for path in paths}


def venv_commands(bench: Bench, package: str, code: str) -> list[tuple[str, ...]]:
    """Return what people type without envbuild: a venv over the image, on the project's disk."""
    inside = (
        "apptainer",
        "--quiet",
        "exec",
        "--userns",
        "--containall",
        "--no-home",
        "--cleanenv",
        "--home",
        "/tmp",
    )
    inside += (
        "--bind",
        f"{bench.folder}:{bench.folder}",
        "--bind",
        CERTIFICATES,
        "--pwd",
        str(bench.folder),
    )
    inside += ("--env", f"PIP_CERT={CERTIFICATES}/ca-certificates.crt", str(bench.image))
    python = f"{bench.folder}/venv/bin/python"
    return [
        (*inside, "python3", "-m", "venv", "--system-site-packages", "--without-pip", "venv"),
        (*inside, "python3", "-m", "pip", "--python", python, "install", "--quiet", package),
        (*inside, python, "-c", code),
    ]


def measure_ways(bench: Bench, package: str, module: str, parts: list[str]) -> list[Row]:
    """Measure the ways to one package that are asked for, and leave the project as it was."""
    code = f"import {module}"
    enter = (*ENVBUILD, "exec", bench.recipe, "--", "python3", "-c", code)
    add = (*ENVBUILD, "add", "--dev", bench.recipe, package)
    rows = []
    if "layer" in parts:
        for way in ("layer, first", "layer, wheel in the store"):
            rows.append(bench.measure(package, way, add, enter))
            bench.run("dev", bench.recipe, "--clear")
    if "venv" in parts:
        commands = venv_commands(bench, package, code)
        rows.append(bench.measure(package, "venv in the container", *commands))
        shutil.rmtree(bench.folder / "venv")
    if "add" in parts:
        whole = (*ENVBUILD, "add", bench.recipe, package)
        rows.append(bench.measure(package, "add: recipe, lock, image", whole, enter))
        bench.run("remove", bench.recipe, package, "--no-make")
        bench.run("make", bench.recipe, "--no-check")
    return rows


def measure_ranks(bench: Bench, package: str, module: str, count: int) -> dict[str, float]:
    """Return the seconds that so many processes need to import at once, without and with a layer."""
    seconds = {}
    for way, wanted in (("image alone", "sys"), ("with the layer", module)):
        if way != "image alone":
            bench.run("add", "--dev", bench.recipe, package)
        words = (*ENVBUILD, "exec", bench.recipe, "--", "python3", "-c", f"import {wanted}")
        started = time.monotonic()
        ranks = [subprocess.Popen(words, cwd=bench.folder) for _ in range(count)]
        if any(rank.wait() for rank in ranks):
            sys.exit(f"{way}: a process failed")
        seconds[way] = round(time.monotonic() - started, 1)
    bench.run("dev", bench.recipe, "--clear")
    return seconds


def survive_kills(bench: Bench, package: str, module: str, count: int) -> int:
    """Kill `add --dev` at so many random moments; return how often the old layer stayed.

    Ends where no layer works after a kill, or where the next `add --dev` gives other bytes than an
    undisturbed one.
    """
    first = ("add", "--dev", bench.recipe, package)
    second = ("add", "--dev", bench.recipe, "toolz")
    seconds, kept = 0.0, 0
    for _ in ("its wheels come", "they are there"):
        bench.run("dev", bench.recipe, "--clear")
        bench.run(*first)
        old, started = layer_of(bench), time.monotonic()
        bench.run(*second)
        wanted, seconds = layer_of(bench), time.monotonic() - started
    for _ in range(count):
        bench.run("dev", bench.recipe, "--clear")
        bench.run(*first)
        running = subprocess.Popen(
            (*ENVBUILD, *second),
            cwd=bench.folder,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(random.uniform(0, seconds))  # noqa: S311  (no secret)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        bench.run("exec", bench.recipe, "--", "python3", "-c", f"import {module}")
        kept += layer_of(bench) == old
        bench.run(*second)
        if layer_of(bench) != wanted:
            sys.exit("a layer after a kill has other bytes")
    bench.run("dev", bench.recipe, "--clear")
    return kept


def layer_of(bench: Bench) -> str:
    """Return the sha256 of the layer that the record names."""
    record = json.loads((bench.folder / f"{bench.recipe}.dev.json").read_bytes())
    return digest_of(bench.folder / record["layer"])


def compare_promoted(bench: Bench, package: str) -> bool:
    """Tell whether a promoted image has the bytes of one that never had a layer."""
    bench.run("add", "--dev", bench.recipe, package)
    bench.run("promote", bench.recipe)
    fresh = bench.folder.parent / "fresh"
    shutil.copytree(bench.folder / "recipes", fresh / "recipes")
    bench.run("make", bench.recipe, "--no-proof", "--no-check", cwd=fresh)
    digests = [digest_of(folder / bench.image.name) for folder in (bench.folder, fresh)]
    shutil.rmtree(fresh)
    return digests[0] == digests[1]


def digest_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_bench(recipe: str, work: Path) -> Bench:
    """Lay out a recipe with its lock and make its image."""
    folder = (work / "project").resolve()
    (folder / "recipes").mkdir(parents=True)
    source = find_recipe(recipe, load_settings())
    shutil.copytree(source.path.parent, folder / "recipes", dirs_exist_ok=True)
    (folder / "lockfiles").mkdir()
    shutil.copy(source.lock, folder / "lockfiles")
    bench = Bench(recipe, folder)
    started = time.monotonic()
    bench.run("make", recipe, "--no-check")
    seconds, size = time.monotonic() - started, bench.image.stat().st_size
    print(f"make {recipe}: {seconds:.1f} s, {size:,} bytes", flush=True)
    return bench


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="keras-bert")
    parser.add_argument("--work", type=Path, default=Path("devlayer-bench"))
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--kills", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("packages", nargs="*", default=["humanize", "polars"])
    given = parser.parse_args()
    bench = make_bench(given.recipe, given.work)
    pairs = [(text.partition("=")[0], text.partition("=")[2] or text) for text in given.packages]
    found: dict[str, object] = {}
    ways = (measure_ways(bench, package, module, given.only) for package, module in pairs)
    found["rows"] = [asdict(row) for row in chain.from_iterable(ways)]
    if "ranks" in given.only:
        found["ranks"] = measure_ranks(bench, *pairs[0], given.ranks)
        print(f"{given.ranks} processes at once: {found['ranks']}", flush=True)
    if "kills" in given.only:
        found["kept"] = survive_kills(bench, *pairs[0], given.kills)
        print(
            f"{given.kills} kills: every layer worked, the old one {found['kept']} times",
            flush=True,
        )
    if "promote" in given.only:
        found["same"] = compare_promoted(bench, pairs[0][0])
        print(f"promoted image and fresh one: {'the same sha256' if found['same'] else 'OTHER'}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    if not found.get("same", True):
        sys.exit(1)


if __name__ == "__main__":
    main()
