"""A real image of a few megabytes for live tests: this machine's shell and a few programs, built once per run."""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import tempfile
from pathlib import Path

from envbuild.run import Command, LocalRunner, Result
from envbuild.runtime import BuildOptions, Runtime
from envbuild.runtime_search import find_runtime
from envbuild.settings import load_settings

PROGRAMS = ("sh", "cat", "chown", "df", "env", "id", "ls", "mkdir", "pwd", "sleep", "touch")
FOLDERS = ("bin", "dev", "etc", "home", "mnt", "opt", "proc", "root", "sys", "tmp", "var/tmp")
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--")
"""Prefix that makes root an ordinary user who has no subuid line."""

AS_READER = (
    *AS_NOBODY[:-2],
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=+dac_read_search",
    "--",
)
"""The same, but able to read this checkout wherever root keeps it."""


def runtime() -> Runtime:
    return find_runtime(load_settings(), LocalRunner())


@functools.cache
def open_folder() -> Path:
    """A folder that every user may enter (pytest's own ones are closed), removed when the tests end."""
    folder = Path(tempfile.mkdtemp(prefix="envbuild-tiny-"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def sandbox() -> Path:
    """The unpacked root file system."""
    root = open_folder() / "sandbox"
    for name in FOLDERS:
        (root / name).mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found is not None
        shutil.copy2(os.path.realpath(found), root / "bin" / name)
        listed = LocalRunner()(Command(argv=("ldd", found))).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            target = root / library.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(library), target)
    return root


def definition(body: str, name: str = "tiny.def") -> Path:
    path = open_folder() / name
    path.write_text(f"Bootstrap: localimage\nFrom: {sandbox()}\n{body}", encoding="utf-8")
    return path


@functools.cache
def tiny_image() -> Path:
    """The image as a SIF."""
    target = open_folder() / "tiny.sif"
    command = runtime().build_command(
        target,
        definition("\n%environment\n    export FROM_IMAGE=yes\n"),
        open_folder(),
        BuildOptions(packer_arguments="-comp zstd -Xcompression-level 3", timeout=120),
    )
    LocalRunner()(command)
    return target


def as_nobody(command: Command, *, home: Path) -> Result:
    """Run a command of the runtime as an ordinary user: an ordinary caller stays who he is."""
    env = {**(command.env or {}), "HOME": str(home)}
    become = () if os.getuid() else AS_NOBODY
    return LocalRunner()(
        Command(argv=(*become, *command.argv), cwd=home, env=env, timeout=120), check=False
    )
