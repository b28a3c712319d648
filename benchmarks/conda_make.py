"""Time ``envbuild make`` of a conda environment against py-rattler's own install and mksquashfs, in one run.

    python benchmarks/conda_make.py [--packages 60] [--work FOLDER]

The packages are made here: a third holds a library of 4 MB with the prefix inside, a third modules of any Python, a
third text with the prefix.  Both ways start from the same Debian root in the store, and from archives on 127.0.0.1.
Cold: nothing of conda is there.  Warm: everything is there but the image.  More: one package more than before; by hand
the environment has it installed into the old prefix, and is packed again.  Bytes: a second store elsewhere gives the
same image.  Prints JSON; ratios are what to compare between machines.

envbuild is first installed into an environment of its own, as users have it: beside the tools of its tests, one of
its libraries imports a package that no user has (trio), and a working tree may lack its compiled modules.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from envbuild.run import Command, LocalRunner
from tests.conda.archives import PLACEHOLDER, Archive
from tests.conda.channels import index, serve
from tests.conda.real_python import MINOR, real_python

RUN = LocalRunner()
OLD = PLACEHOLDER.encode()
RECIPE = """\
[recipe]
name = "env"
[base]
bootstrap = "debian:bookworm"
[conda]
channels = ["lab"]
dependencies = [{names}]
[check]
imports = []
"""


def main() -> None:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=int, default=60)
    parser.add_argument("--work", type=Path, help="a folder with 5 GB free")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="envbuild-bench-", dir=options.work) as folder:
        print(json.dumps(measure(Path(folder), options.packages), indent=1))


def measure(folder: Path, count: int) -> dict[str, object]:
    """Return the seconds of each way."""
    archives = [real_python(), *(make_package(number) for number in range(count))]
    channel = folder / "served/lab"
    for archive in archives:
        archive.write(channel / archive.subdir)
    index(channel)
    program = install_envbuild(folder / "program")
    found: dict[str, object] = {"load": os.getloadavg()[0]}
    first, more = archives[:-1], archives
    with serve(folder / "served") as served:
        project = write_project(folder / "p", served.url, program)
        lock(project, first)
        found["cold"] = timed(lambda: make(project))
        (project / "env.sif").unlink()
        found["warm"] = timed(lambda: make(project))
        lock(project, more)
        found["one more"] = timed(lambda: make(project))
        found["image bytes"] = (project / "env.sif").stat().st_size
        other = write_project(folder / "elsewhere", served.url, program)
        shutil.copytree(project / "lockfiles", other / "lockfiles")
        shutil.copy(project / "recipes/env.toml", other / "recipes/env.toml")
        make(other)
        found["same bytes"] = digest(project / "env.sif") == digest(other / "env.sif")
        found["by hand"] = by_hand(folder, f"{served.url}/lab", project, (first, more))
    for name in ("cold", "one more"):
        hand = found["by hand"][name]  # type: ignore[index]
        found[f"ratio {name}"] = round(hand / found[name], 1)  # type: ignore[operator]
    found["load after"] = os.getloadavg()[0]
    return found


def make_package(number: int) -> Archive:
    """Return one package of a kind by its number; the same every time."""
    source = random.Random(number)  # noqa: S311  (the same every time)
    name = f"package{number:02d}"
    if number % 3 == 0:
        code = source.randbytes(2_000_000) + OLD + b"/lib\0" + bytes(2_000_000)
        library = f"lib/lib{name}.so"
        return Archive(name=name, files={library: code}, binary=(library,))
    text = [f"value{line} = {source.random()}\n".encode() * 20 for line in range(200)]
    if number % 3 == 1:
        files = {f"site-packages/{name}/m{at}.py": data for at, data in enumerate(text)}
        points = (f"{name} = {name}.m0:main",)
        return Archive(
            name=name,
            noarch="python",
            subdir="noarch",
            files=files,
            entry_points=points,
            depends=("python",),
        )
    files = {f"share/{name}/{at}.txt": OLD + b"\n" + data for at, data in enumerate(text)}
    return Archive(name=name, files=files, text=tuple(files))


def write_project(folder: Path, url: str, program: Path) -> Path:
    """Return a folder with an empty home, a store, the channel's address and envbuild."""
    for name in ("home/.config/envbuild", "recipes"):
        (folder / name).mkdir(parents=True)
    (folder / "envbuild").symlink_to(program)
    text = f'[channels]\nlab = "{url}/lab"\n'
    (folder / "home/.config/envbuild/config.toml").write_text(text)
    # the Debian root is not what is measured
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envbuild-tests/v1"
    (folder / "store/v1").mkdir(parents=True)
    for name in ("bases", "facts", "metadata", "apt"):
        if (kept / name).is_dir():
            (folder / "store/v1" / name).symlink_to(kept / name)
    return folder


def install_envbuild(folder: Path) -> Path:
    """Install this working tree into an environment of its own; return its program."""
    root = Path(__file__).resolve().parents[1]
    RUN(Command(argv=(sys.executable, "-m", "venv", str(folder)), timeout=300))
    argv = (str(folder / "bin/pip"), "install", "--quiet", str(root))
    RUN(Command(argv=argv, timeout=900))
    return folder / "bin/envbuild"


def envbuild(project: Path, *arguments: str) -> None:
    """Run a verb in a project."""
    env = {**os.environ, "HOME": str(project / "home"), "ENVBUILD_STORE": str(project / "store")}
    argv = (str(project / "envbuild"), *arguments)
    RUN(Command(argv=argv, cwd=project, env=env, timeout=1200))


def lock(project: Path, archives: list[Archive]) -> None:
    """Write the recipe of these packages and lock it."""
    names = ", ".join(f'"{archive.name}"' for archive in archives if archive.name != "python")
    text = RECIPE.format(names=f'"python {MINOR}.*", {names}')
    (project / "recipes/env.toml").write_text(text)
    envbuild(project, "lock", "env")


def make(project: Path) -> None:
    """Make the image, without its check."""
    envbuild(project, "make", "env", "--mode", "flat", "--no-check")


def by_hand(
    folder: Path, url: str, project: Path, sets: tuple[list[Archive], list[Archive]]
) -> dict[str, float]:
    """Return the seconds of py-rattler's install into an unpacked root, and mksquashfs of it all."""
    root = folder / "root"
    tar = max((project / "store/v1/bases").glob("*.tar"), key=lambda path: path.stat().st_mtime)
    with tarfile.open(tar) as packed:
        packed.extractall(root, [m for m in packed if not m.isdev()])  # noqa: S202  (our own root)
    seconds = {}
    for name, archives in zip(("cold", "one more"), sets, strict=True):
        started = time.monotonic()
        asyncio.run(install(url, archives, root / "opt/env", folder / "cache"))
        seconds[f"{name}: install"] = round(time.monotonic() - started, 2)
        image = folder / f"{name.replace(' ', '-')}.sqfs"
        argv = (
            "mksquashfs",
            str(root),
            str(image),
            "-comp",
            "zstd",
            "-noappend",
            "-quiet",
            "-no-progress",
        )
        RUN(Command(argv=argv, timeout=1200))
        seconds[name] = round(time.monotonic() - started, 2)
        image.unlink()
    return seconds


async def install(url: str, archives: list[Archive], prefix: Path, cache: Path) -> None:
    """Let py-rattler solve for the packages and install them for /opt/env."""
    import rattler

    records = await rattler.solve(
        sources=[rattler.Channel(url)],
        specs=[archive.name for archive in archives],
        platforms=["linux-64", "noarch"],
    )
    await rattler.install(
        records, prefix, cache_dir=cache, alternative_target_prefix="/opt/env", show_progress=False
    )


def timed(work: Callable[[], None]) -> float:
    """Return the seconds that something takes."""
    started = time.monotonic()
    work()
    return round(time.monotonic() - started, 2)


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


if __name__ == "__main__":
    main()
