"""An image with this machine's Python, mpi4py and Open MPI, so that ranks started outside find each other inside."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path

from envbuild.run import Command, LocalRunner
from envbuild.runtime import BuildOptions
from tests.tiny_image import open_folder, runtime, sandbox

PLACES = (
    "/usr/lib/*/openmpi",
    "/usr/lib/*/pmix2",
    "/usr/share/openmpi",
    "/usr/share/pmix",
    "/etc/openmpi",
)
PYTHON = Path("/usr/bin/python3")
TORCHRUN = """
import argparse, os, socket, subprocess, sys, time
parser = argparse.ArgumentParser()
for name in ("nnodes", "nproc_per_node", "rdzv_id", "rdzv_backend", "rdzv_endpoint"):
    parser.add_argument("--" + name, required=True)
parser.add_argument("--no_python", action="store_true", required=True)
parser.add_argument("command", nargs=argparse.REMAINDER)
given = parser.parse_args()
(host, port), nodes, each = given.rdzv_endpoint.split(":"), int(given.nnodes), int(given.nproc_per_node)
node = 0
if nodes > 1 and socket.gethostname() == host:
    server = socket.create_server(("", int(port)))
    for number in range(1, nodes):
        server.accept()[0].sendall(bytes([number]))
elif nodes > 1:
    for _ in range(100):
        try:
            node = socket.create_connection((host, int(port))).recv(1)[0]
            break
        except OSError:
            time.sleep(0.1)
ranks = []
for local in range(each):
    env = {"RANK": str(node * each + local), "WORLD_SIZE": str(nodes * each)}
    ranks.append(subprocess.Popen(given.command, env={**os.environ, **env}))
sys.exit(max(process.wait() for process in ranks))
"""
"""Stands for PyTorch, which is 800 MB: reads torchrun's options as PyTorch 1.13 does and meets at the endpoint."""


@functools.cache
def mpi_image() -> Path:
    """Return the image; it is built once per run."""
    root = open_folder() / "mpi-sandbox"
    shutil.copytree(sandbox(), root, symlinks=True)
    library = _python_library()
    shutil.copytree(
        library,
        root / str(library).lstrip("/"),
        ignore=shutil.ignore_patterns("test", "__pycache__"),
    )
    mpi4py = Path("/usr/lib/python3/dist-packages/mpi4py")
    shutil.copytree(mpi4py, root / str(mpi4py).lstrip("/"))
    for pattern in PLACES:
        for place in Path("/").glob(pattern.lstrip("/")):
            _copy(place, root)
    (root / "usr/bin").mkdir(parents=True, exist_ok=True)
    shutil.copy2(PYTHON.resolve(), root / "usr/bin/python3")
    (root / "usr/bin/python").symlink_to("python3")
    binaries = [PYTHON.resolve(), *mpi4py.glob("*.so"), *library.glob("lib-dynload/*.so")]
    binaries += [
        path for pattern in PLACES[:2] for path in Path("/").glob(f"{pattern.lstrip('/')}/**/*.so")
    ]
    _copy_libraries(binaries, root)
    target = open_folder() / "mpi.sif"
    definition = open_folder() / "mpi.def"
    definition.write_text(f"Bootstrap: localimage\nFrom: {root}\n")
    packer = "-comp zstd -Xcompression-level 1"
    LocalRunner()(
        runtime().build_command(
            target, definition, open_folder(), BuildOptions(packer_arguments=packer, timeout=200)
        )
    )
    return target


def _python_library() -> Path:
    answer = LocalRunner()(Command(argv=(str(PYTHON), "-c", "import os; print(os.__file__)")))
    return Path(answer.stdout.strip()).parent


def _copy(place: Path, root: Path) -> None:
    target = root / str(place).lstrip("/")
    if place.is_dir():
        shutil.copytree(place, target, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(place, target)


def _copy_libraries(binaries: list[Path], root: Path) -> None:
    listed = LocalRunner()(Command(argv=("ldd", *map(str, binaries))), check=False).stdout
    for name in dict.fromkeys(re.findall(r"(/\S+) \(0x", listed)):
        target = root / name.lstrip("/")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path(name).resolve(), target)
