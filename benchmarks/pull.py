"""Time "from a registry's image to a checked name" against ``apptainer pull`` of the same image, in the same run.

    python benchmarks/pull.py [--small] [--repeat 3] [--work FOLDER]

A registry on 127.0.0.1 serves the image that the tests build keras-bert-hub on: a Debian with its Python, and wheels
of TensorFlow 2.15 without CUDA (700 MB in two layers); --small takes one of this machine's programs and a Python, for a
try.  envbuild starts with an empty store, Apptainer with an empty cache; both write a .sif.  Turns alternate.  Prints
one line a figure and, last, one JSON document with all seconds, their medians, and bytes: what the registry sent, the
image, and what was left on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from envbuild.run import Command, LocalRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from envbuild.store.gc import tree_size
from tests.base.interpreters import interpreter
from tests.base.ociimages import Image, image_of, programs, push, python_tar
from tests.base.tensorflow_image import tensorflow_image

ROOT = Path(__file__).resolve().parents[1]
RUN = LocalRunner()
RECIPE = '[recipe]\nname = "base"\n[base]\nimage = "docker://{host}/lab/base:1"\n'
LOCK, ENVBUILD, PULL = "envbuild lock", "envbuild lock and make", "apptainer pull"


def small_image() -> Image:
    """Return an image of this machine's programs and a Python."""
    python = interpreter("3.11")
    if python is None:
        raise SystemExit("no Python 3.11 on this machine")
    return image_of(
        programs(),
        python_tar(python.resolve(), "/opt/conda"),
        env=("PATH=/opt/conda/bin:/usr/bin:/bin",),
    )


def registry(*arguments: str) -> str:
    """Run the script that starts and stops a registry, and return its last line."""
    command = Command(
        argv=("bash", str(ROOT / "scripts/setup-registry.sh"), *arguments), timeout=120
    )
    return (RUN(command).stdout.strip().splitlines() or [""])[-1]


def by_envbuild(work: Path, host: str) -> tuple[dict[str, float], int, int]:
    """Lock and make with nothing in the store; return seconds, the image's bytes and those left on the disk."""
    folder = work / "envbuild"
    (folder / "recipes").mkdir(parents=True)
    (folder / "recipes/base.toml").write_text(RECIPE.replace("{host}", host), "utf-8")
    env = {
        **os.environ,
        "HOME": str(folder),
        "ENVBUILD_STORE": str(folder / "store"),
        "TMPDIR": str(work),
    }
    seconds = []
    for arguments in (("lock", "base"), ("make", "base", "--no-check")):
        argv = (sys.executable, "-m", "envbuild", *arguments)
        seconds.append(RUN(Command(argv=argv, cwd=folder, env=env)).seconds)
    told = {LOCK: seconds[0], ENVBUILD: sum(seconds)}
    return told, (folder / "base.sif").stat().st_size, tree_size(folder)


def by_apptainer(work: Path, host: str) -> tuple[dict[str, float], int, int]:
    """Pull with nothing in the cache; return the same."""
    folder = work / "apptainer"
    folder.mkdir()
    env = {
        **os.environ,
        "HOME": str(folder),
        "APPTAINER_CACHEDIR": str(folder / "cache"),
        "TMPDIR": str(work),
    }
    argv = (
        "apptainer",
        "pull",
        "--no-https",
        str(folder / "base.sif"),
        f"docker://{host}/lab/base:1",
    )
    seconds = RUN(Command(argv=argv, cwd=folder, env=env)).seconds
    return {PULL: seconds}, (folder / "base.sif").stat().st_size, tree_size(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="an image of 40 MB, for a try")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--work", type=Path, help="a folder with room (default: TMPDIR)")
    given = parser.parse_args()
    if given.repeat < 1:
        parser.error("--repeat: at least 1")
    with tempfile.TemporaryDirectory(prefix="envbuild-pull-", dir=given.work) as name:
        work = Path(name)
        url = registry("registry", str(work / "registry"))
        try:
            image = small_image() if given.small else tensorflow_image(work / "root")
            push(image, url, "lab/base", "1")
            sent = sum(len(blob) for blob in image.blobs.values())
            seconds: dict[str, list[float]] = {}
            sizes: dict[str, int] = {}
            disk: dict[str, int] = {}
            for turn in range(given.repeat):
                for way, run in ((ENVBUILD, by_envbuild), (PULL, by_apptainer)):
                    timed, sizes[way], disk[way] = run(work, url.removeprefix("http://"))
                    for what, one in timed.items():
                        seconds.setdefault(what, []).append(round(one, 1))
                        print(f"turn {turn + 1}: {what}: {one:.1f} s", flush=True)
                    for folder in ("envbuild", "apptainer"):
                        shutil.rmtree(work / folder, ignore_errors=True)
        finally:
            registry("stop", str(work / "registry"))
    medians = {what: statistics.median(several) for what, several in seconds.items()}
    told = {
        "registry_bytes": sent,
        "seconds": seconds,
        "median_seconds": medians,
        "image_bytes": sizes,
        "disk_bytes": disk,
        "times_faster": {
            "to a .sif": round(medians[PULL] / medians[ENVBUILD], 1),
            "to the facts": round(medians[PULL] / medians[LOCK], 1),
        },
    }
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
