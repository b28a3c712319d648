"""Measure one package more: a layer over the image, a venv in the container, and a full make.

    python benchmarks/devlayer.py [--recipe NAME] [--work FOLDER] [--ranks N] [--json FILE] [PACKAGE[=MODULE] ...]

For every package three ways are timed, each from the command to the end of the first import:
`add --dev` and `exec` (a second time with its wheel in the store), `venv` with pip in a folder of the project, and
`add`, which makes and checks the whole image.  Files and bytes are what each way leaves in the project's folder.
Then N processes import at once, with and without the layer, and the promoted image is compared with one that never
had a layer.  Seconds are of the wall; the machine's load is told with them, as every figure depends on it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from envbuild.recipe.find import find_recipe
from envbuild.settings import load_settings

CERTIFICATES = "/etc/ssl/certs"
ENVBUILD = (sys.executable, "-m", "envbuild")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to one package: seconds to the end of the first import, and what it left behind."""

    package: str
    way: str
    seconds: float
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
        before, started = tree_of(self.folder), time.monotonic()
        for command in commands:
            run_words(command, self.folder)
        seconds = time.monotonic() - started
        after = tree_of(self.folder)
        new = {path: size for path, size in after.items() if before.get(path) != size}
        row = Row(
            package=package,
            way=way,
            seconds=round(seconds, 1),
            files=len(new),
            bytes=sum(new.values()),
            load=round(os.getloadavg()[0], 1),
        )
        print(
            f"{package:14} {way:28} {row.seconds:7.1f} s {row.files:6} files {row.bytes:12,} bytes  load {row.load}",
            flush=True,
        )
        return row


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


def measure_ways(bench: Bench, package: str, module: str) -> list[Row]:
    """Measure every way to one package, and leave the project as it was."""
    code = f"import {module}"
    enter = (*ENVBUILD, "exec", bench.recipe, "--", "python3", "-c", code)
    add = (*ENVBUILD, "add", "--dev", bench.recipe, package)
    rows = [bench.measure(package, "layer, first", add, enter)]
    bench.run("dev", bench.recipe, "--clear")
    rows.append(bench.measure(package, "layer, wheel in the store", add, enter))
    bench.run("dev", bench.recipe, "--clear")
    rows.append(
        bench.measure(package, "venv in the container", *venv_commands(bench, package, code))
    )
    shutil.rmtree(bench.folder / "venv")
    rows.append(
        bench.measure(
            package, "add: recipe, lock, image", (*ENVBUILD, "add", bench.recipe, package), enter
        )
    )
    bench.run("remove", bench.recipe, package)
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


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="keras-bert")
    parser.add_argument("--work", type=Path, default=Path("devlayer-bench"))
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--json", type=Path)
    parser.add_argument("packages", nargs="*", default=["humanize", "polars"])
    given = parser.parse_args()
    folder = (given.work / "project").resolve()
    (folder / "recipes").mkdir(parents=True)
    source = find_recipe(given.recipe, load_settings())
    shutil.copytree(source.path.parent, folder / "recipes", dirs_exist_ok=True)
    (folder / "lockfiles").mkdir()
    shutil.copy(source.lock, folder / "lockfiles")
    bench = Bench(given.recipe, folder)
    started = time.monotonic()
    bench.run("make", given.recipe, "--no-check")
    print(
        f"make {given.recipe}: {time.monotonic() - started:.1f} s, {bench.image.stat().st_size:,} bytes",
        flush=True,
    )
    pairs = [(text.partition("=")[0], text.partition("=")[2] or text) for text in given.packages]
    rows = [row for package, module in pairs for row in measure_ways(bench, package, module)]
    ranks = measure_ranks(bench, *pairs[0], given.ranks)
    print(f"{given.ranks} processes at once: {ranks}", flush=True)
    same = compare_promoted(bench, pairs[0][0])
    print(f"promoted image and fresh one: {'the same sha256' if same else 'OTHER BYTES'}")
    if given.json:
        found = {"rows": [asdict(row) for row in rows], "ranks": ranks, "same": same}
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main()
