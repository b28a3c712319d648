"""Build shipped recipes twice, as two users on two machines would, and compare the bytes.

    python benchmarks/same.py [RECIPE…] [--work FOLDER] [--artifacts STORE]

The second build has another HOME, TMPDIR (which nobody else may enter), store, umask, locale, time zone, hash seed and
number of cores, and where the program faketime is installed another date.  Nothing is shared but downloads.  Prints a
line for a recipe and mode, and where they differ the layer and its member; exit code 1 then.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from envbuild.build.image.compare import describe_difference
from envbuild.run import Command, LocalRunner
from envbuild.settings import shipped_folder

RUN = LocalRunner()
OTHERWISE = (
    "import os, sys; os.umask(0o077); os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
    "os.execv(sys.executable, [sys.executable, '-m', 'envbuild', *sys.argv[1:]])"
)
MODES = ("flat", "layered")


def main() -> int:
    """Build and compare; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="*", help="default: every shipped one that has a lock")
    parser.add_argument(
        "--work", type=Path, help="a folder with 30 GB free (default: a temporary one)"
    )
    parser.add_argument(
        "--artifacts", type=Path, help="a store whose downloads are used (default: an empty one)"
    )
    options = parser.parse_args()
    locks = sorted((shipped_folder() / "lockfiles").glob("*.lock"))
    failed = 0
    with tempfile.TemporaryDirectory(
        prefix="envbuild-same-", dir=options.work and options.work.resolve()
    ) as name:
        downloads = (
            (options.artifacts / "v1/artifacts") if options.artifacts else Path(name, "artifacts")
        )
        downloads.mkdir(parents=True, exist_ok=True)
        for recipe in options.recipes or [lock.stem for lock in locks]:
            failed += compare(recipe, Path(name), downloads.resolve())
    return 1 if failed else 0


def compare(recipe: str, work: Path, downloads: Path) -> int:
    """Build one recipe in two places; return how many modes differ."""
    folders = [work / "one", work / "der zweite"]
    failed = 0
    work.chmod(0o755)
    for folder in folders:
        (folder / "store/v1").mkdir(parents=True)
        (folder / "store/v1/artifacts").symlink_to(downloads)
        (folder / "tmp").mkdir()
    folders[1].chmod(0o700)  # nobody else may enter the second
    for mode in MODES:
        one, two = (
            build(recipe, mode, folder, otherwise=folder == folders[1]) for folder in folders
        )
        hashes = [sha256(one), sha256(two)]
        same = hashes[0] == hashes[1]
        print(
            f"{recipe} {mode}: {hashes[0] if same else describe_difference(one, two)}", flush=True
        )
        failed += not same
        one.unlink()
        two.unlink()
    for folder in folders:
        shutil.rmtree(folder)
    return failed


def build(recipe: str, mode: str, folder: Path, *, otherwise: bool) -> Path:
    """Make one image without checking it; return its path."""
    env = {
        **os.environ,
        "HOME": str(folder),
        "ENVBUILD_STORE": str(folder / "store"),
        "TMPDIR": str(folder / "tmp"),
    }
    start: tuple[str, ...] = (sys.executable, "-m", "envbuild")
    if otherwise:
        env |= {"LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
        clock = ("faketime", "-f", "+400d") if shutil.which("faketime") else ()
        start = (*clock, sys.executable, "-c", OTHERWISE)
    arguments = ("make", recipe, "--mode", mode, "--no-check", "-o", f"{recipe}-{mode}.sif")
    seconds = RUN(Command(argv=(*start, *arguments), cwd=folder, env=env)).seconds
    print(f"{recipe} {mode} in {folder.name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return folder / f"{recipe}-{mode}.sif"


def sha256(path: Path) -> str:
    """Return a file's hash."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
