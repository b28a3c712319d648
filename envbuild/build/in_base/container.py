"""Run a script of ours in the Python of a root that exists only as a packed part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from envbuild.build.in_base.exchange import GIVEN, Exchange
from envbuild.context import Context
from envbuild.errors import ToolFailedError
from envbuild.failures import explain_failure
from envbuild.formats.block_codec import Codec
from envbuild.formats.file_tree import merge_parts
from envbuild.formats.sif_writer import partition_object, write_sif
from envbuild.formats.squashfs.writer import write_squashfs
from envbuild.lock.model import LockedBase
from envbuild.parts.cache import CachedPart
from envbuild.parts.compact import drop_unused_blocks
from envbuild.records import frozen_record, replace
from envbuild.run import Result
from envbuild.runtime import ExecOptions
from envbuild.store.atomic import os_errors_as

SECONDS = 3600.0
LARGE = re.compile(
    r"/(?:site|dist)-packages/|(?:^|/)(?:cuda-[0-9.]+|conda/pkgs|nvidia|share/(?:doc|man|locale))/"
)
"""What compiling needs nothing of, and would only be copied."""


@frozen_record
class BaseContainer:
    """A root that can run; ``folder`` is a working folder that no run sees."""

    image: Path
    folder: Path
    python: str
    context: Context

    def run(
        self,
        script: str,
        *arguments: str,
        between: Exchange,
        env: Mapping[str, str],
        more: Sequence[tuple[Path, str]] = (),
        on_line: Callable[[str], None] | None = None,
    ) -> Result:
        """Run one of the scripts of envbuild.build.in_base.scripts and return what it said.

        ``between`` are its folders, ``more`` others that it may read, by their names below /mnt;
        ``on_line`` is called with every line while the script runs.
        Raises ToolFailedError with its last lines when it fails.
        """
        between.write(
            script, resources.files("envbuild.build.in_base.scripts").joinpath(script).read_bytes()
        )
        # no user site, and no bytecode written beside our script
        argv = (self.python, "-s", "-B", f"{GIVEN}/{script}", *arguments)
        command = self.context.runtime.exec_command(
            self.image,
            argv,
            ExecOptions(binds=between.binds(*more), env=env, timeout=SECONDS, network=False),
        )
        result = self.context.runner(replace(command, on_line=on_line), check=False)
        if result.code != 0:
            failure = explain_failure(result)
            raise ToolFailedError.of(result, failure.what, hint=failure.hint)
        return result


@contextmanager
def open_container(
    root: Sequence[CachedPart],
    *,
    base: LockedBase,
    codec: Codec,
    context: Context,
    lean: bool,
    python: str,
) -> Iterator[BaseContainer]:
    """Yield a container of a root, the lowest part first; it and its folder vanish afterwards.

    ``python`` is another one than the base's. A ``lean`` one lacks packages, CUDA and the like: it starts a Python with its standard library
    and no more.
    """
    with context.store.work("inside") as work:
        image, folder = work / "root.sif", work / "runs"
        folder.mkdir()
        write_root(image, root, machine=base.machine, codec=codec, lean=lean)
        python = python or base.python_path
        yield BaseContainer(image=image, folder=folder, python=python, context=context)


def write_root(
    path: Path, root: Sequence[CachedPart], *, machine: str, codec: Codec, lean: bool = False
) -> None:
    """Write a plain image of a root, for a run on this machine."""
    tree = merge_parts([part.part for part in root])
    if lean:
        # starting a Python needs its standard library:
        # copying gigabytes of CUDA would take longer than compiling
        tree = {name: held for name, held in tree.items() if not LARGE.search(name)}
    tree, parts = drop_unused_blocks(tree, root)
    with os_errors_as(path), path.open("wb") as out:
        object_ = partition_object(
            lambda file: write_squashfs(file, tree, parts, epoch=0, compressor=codec.compressor),
            machine=machine,
        )
        identity = " ".join(part.part.key for part in root)
        write_sif(out, [object_], machine=machine, epoch=0, identity=identity)
        path.chmod(0o644)  # where root runs this, its containers are another user
