"""Build from the written definition with ``apptainer build --fakeroot``."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.build.model import DefinitionBuild
from envbuild.formats.block_codec import Codec
from envbuild.plan.shell import SUPPLIED
from envbuild.run import Command
from envbuild.runtime import BuildOptions, Runtime
from envbuild.store.atomic import write_text

HOST_FOLDERS = ("/tmp", "/var/tmp")  # noqa: S108  (paths in the container)


class Fakeroot:
    """Root is simulated by a user namespace, so that packages install as they expect to.

    What comes out is an image, or (``sandbox``) a writable tree.
    """

    def __init__(self, *, sandbox: bool = False) -> None:
        self._sandbox = sandbox

    def prepare(self, request: DefinitionBuild) -> None:
        """Write the definition."""
        write_text(request.target.with_suffix(".def"), request.definition)

    def commands(self, request: DefinitionBuild, runtime: Runtime) -> tuple[Command, ...]:
        """Return the build command.

        The files are bound in, and %setup gets the root that is there already. Apptainer
        mounts the host's /tmp and /var/tmp while %post runs; folders of the build's own take their
        place.
        """
        # read by the definition's own %setup: with these it downloads nothing
        env = {
            "ENVBUILD_FILES": str(request.files),
            "SOURCE_DATE_EPOCH": str(request.lock.base.epoch),
        }
        if request.root is not None:
            env["ENVBUILD_ROOT"] = str(request.root)
        command = runtime.build_command(
            request.target,
            request.target.with_suffix(".def"),
            request.tmpdir,
            BuildOptions(
                binds=(
                    (request.files.parent, SUPPLIED.rsplit("/", 1)[0], False),
                    *((request.scratch, folder, True) for folder in HOST_FOLDERS),
                ),
                packer_arguments=packer_arguments(request.codec),
                env=env,
                log=request.log,
                sandbox=self._sandbox,
                reads=None
                if self._sandbox
                else [*filter(None, (request.root,)), *_base_paths(request.definition)],
                test=False,
            ),
        )
        return (command,)


def _base_paths(definition: str) -> list[Path]:
    """Return the file or folder on this machine that a definition starts from."""
    return [Path(found) for found in re.findall(r"^From: (/.*)$", definition, re.MULTILINE)[:1]]


def packer_arguments(codec: Codec) -> str:
    """Return mksquashfs' arguments.

    Zstd packs 20 times faster than gzip at the same size, and unpacks faster.
    """
    return f"-comp {codec.compressor} -Xcompression-level {codec.level}"
