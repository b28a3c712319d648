"""Time "from a registry's image to a checked name" against ``apptainer pull`` of the same image, in the same run.

    python benchmarks/pull.py [--wheel FILE …] [--repeat 2] [--work FOLDER]

A registry on 127.0.0.1 serves an image of this machine's programs, a Python, and the unpacked wheels (a TensorFlow of
475 MB makes it about as large as those of tensorflow.org).  envbuild starts with an empty store, Apptainer with an
empty cache; both write a .sif.  Bytes are what the registry sent and what was written.  Prints one JSON document last.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from envbuild.run import Command, LocalRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.base.interpreters import interpreter
from tests.base.ociimages import image_of, programs, push, python_tar

ROOT = Path(__file__).resolve().parents[1]
RUN = LocalRunner()
SITE = "opt/conda/lib/python3.11/site-packages"
RECIPE = '[recipe]\nname = "base"\n[base]\nimage = "docker://{host}/lab/base:1"\n'


def wheels_tar(wheels: list[Path]) -> bytes:
    """Return a layer with the files of wheels where they would be installed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                for info in (member for member in archive.infolist() if not member.is_dir()):
                    entry = tarfile.TarInfo(f"{SITE}/{info.filename}")
                    entry.size, entry.mode, entry.mtime = info.file_size, 0o644, 1_700_000_000
                    tar.addfile(entry, archive.open(info))
    return out.getvalue()


def registry(*arguments: str) -> str:
    """Run the script that starts and stops a registry, and return its last line."""
    command = Command(argv=("bash", str(ROOT / "scripts/setup-registry.sh"), *arguments), timeout=120)
    return (RUN(command).stdout.strip().splitlines() or [""])[-1]


def by_envbuild(work: Path, host: str) -> tuple[float, int]:
    """Lock and make with nothing in the store; return seconds (both) and the image's bytes."""
    folder = work / "envbuild"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "recipes").mkdir(parents=True)
    (folder / "recipes/base.toml").write_text(RECIPE.replace("{host}", host), "utf-8")
    env = {**os.environ, "HOME": str(folder), "ENVBUILD_STORE": str(folder / "store"), "TMPDIR": str(work)}
    seconds = 0.0
    for arguments in (("lock", "base"), ("make", "base", "--no-check")):
        argv = (sys.executable, "-m", "envbuild", *arguments)
        seconds += RUN(Command(argv=argv, cwd=folder, env=env)).seconds
    return seconds, (folder / "base.sif").stat().st_size


def by_apptainer(work: Path, host: str) -> tuple[float, int]:
    """Pull with nothing in the cache; return seconds and the image's bytes."""
    folder = work / "apptainer"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    env = {**os.environ, "HOME": str(folder), "APPTAINER_CACHEDIR": str(folder / "cache"), "TMPDIR": str(work)}
    argv = ("apptainer", "pull", "--no-https", str(folder / "base.sif"), f"docker://{host}/lab/base:1")
    return RUN(Command(argv=argv, cwd=folder, env=env)).seconds, (folder / "base.sif").stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheel", type=Path, action="append", default=[], help="a wheel to put into the image")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--work", type=Path, help="a folder with room (default: TMPDIR)")
    given = parser.parse_args()
    python = interpreter("3.11")
    if python is None:
        raise SystemExit("no Python 3.11 on this machine")
    with tempfile.TemporaryDirectory(prefix="envbuild-pull-", dir=given.work) as name:
        work = Path(name)
        url = registry("registry", str(work / "registry"))
        try:
            tars = (programs(), python_tar(python.resolve(), "/opt/conda"), wheels_tar(given.wheel))
            image = image_of(*tars, env=("PATH=/opt/conda/bin:/usr/bin:/bin",))
            push(image, url, "lab/base", "1")
            sent = sum(len(blob) for blob in image.blobs.values())
            host = url.removeprefix("http://")
            timed: dict[str, list[float]] = {"envbuild": [], "apptainer pull": []}
            sizes: dict[str, int] = {}
            for turn in range(given.repeat):
                for way, run in (("envbuild", by_envbuild), ("apptainer pull", by_apptainer)):
                    seconds, sizes[way] = run(work, host)
                    timed[way].append(round(seconds, 1))
                    print(f"turn {turn + 1}: {way}: {seconds:.1f} s, {sizes[way] / 1e6:.0f} MB", flush=True)
        finally:
            registry("stop", str(work / "registry"))
    medians = {way: statistics.median(seconds) for way, seconds in timed.items()}
    print(
        json.dumps(
            {
                "registry_bytes": sent,
                "seconds": timed,
                "image_bytes": sizes,
                "times_faster": round(medians["apptainer pull"] / medians["envbuild"], 1),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
