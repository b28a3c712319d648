"""``docker``: an engine builds the Dockerfile, the runtime packs what came out."""

from __future__ import annotations

import re
import shutil

from envbuild.build.model import DefinitionBuild
from envbuild.build.modes.fakeroot import packer_arguments
from envbuild.errors import HostError
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Lock
from envbuild.plan.definition import ROOT_TAR
from envbuild.plan.dockerfile import render_dockerfile
from envbuild.run import Command
from envbuild.runtime import BuildOptions, Runtime
from envbuild.store.atomic import link_or_copy, os_errors_as, write_text

ENGINES = ("docker", "podman")
BUILD_SECONDS = 7200.0


class Docker:
    """The build has no network but the engine's own, by which it pulls the base."""

    def prepare(self, request: DefinitionBuild) -> None:
        """Write the Dockerfile beside the supplied files: their folder is the build's context."""
        context = request.files.parent
        write_text(
            context / "Dockerfile",
            render_dockerfile(request.plan, root=ROOT_TAR, files=request.files.name),
        )
        if request.root is not None:
            with os_errors_as(context):
                link_or_copy(request.root, context / ROOT_TAR)
        saved = request.target.with_suffix(".tar")
        # the label is for those who ask an image for its lock: they do not look into its files
        label = f"%labels\n    envbuild.lock {lock_digest(request.lock)}\n"
        write_text(
            request.target.with_suffix(".def"),
            f"Bootstrap: docker-archive\nFrom: {saved}\n\n{label}",
        )

    def commands(self, request: DefinitionBuild, runtime: Runtime) -> tuple[Command, ...]:
        """Return the commands: the engine builds and saves, the runtime packs.

        Raises HostError where there is no engine.
        """
        engine = _find_engine(runtime)
        tag = _image_tag(request.name, request.lock)
        env = {**runtime.environment, "DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"}
        context = str(request.files.parent)
        build = (
            engine,
            "build",
            "--network",
            "none",
            "--tag",
            tag,
            "--file",
            f"{context}/Dockerfile",
            context,
        )
        save = (engine, "save", "--output", str(request.target.with_suffix(".tar")), tag)
        pack = runtime.build_command(
            request.target,
            request.target.with_suffix(".def"),
            request.tmpdir,
            BuildOptions(
                packer_arguments=packer_arguments(request.codec),
                env={"SOURCE_DATE_EPOCH": str(request.lock.base.epoch)},
                log=request.log,
                test=False,
            ),
        )
        return (
            Command(argv=build, env=env, log=request.log, timeout=BUILD_SECONDS),
            Command(argv=save, env=env, log=request.log, timeout=BUILD_SECONDS),
            pack,
        )


def _image_tag(name: str, lock: Lock) -> str:
    """Return the name under which the engine keeps the image.

    The recipe's, and the lock's digest as its tag.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "image"
    return f"envbuild/{plain}:{lock_digest(lock).removeprefix('sha256:')[:12]}"


def _find_engine(runtime: Runtime) -> str:
    for name in ENGINES:
        found = shutil.which(name, path=runtime.environment.get("PATH"))
        if found:
            return found
    raise HostError(
        "neither docker nor podman was found on PATH",
        hint="install one, or build without: envbuild make --mode fakeroot",
    )
