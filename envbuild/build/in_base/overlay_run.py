"""Run something over a root without being root, and keep what it changed as a part: Debian packages, lines of a recipe.

The run sees the root below an overlay folder; what is in that folder afterwards is read as a layer of an image is.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from envbuild.base.model import DebianPackage
from envbuild.build.in_base.container import write_root
from envbuild.build.in_base.exchange import (
    GIVEN,
    INSIDE,
    Exchange,
    give_file,
    make_open,
    open_exchange,
    take_file,
)
from envbuild.errors import ToolFailedError
from envbuild.failures import explain_failure
from envbuild.formats.block_codec import Codec
from envbuild.lock.model import LockedBase
from envbuild.parts.cache import CachedPart, PackContext, cached_part, part_key, provide_part
from envbuild.parts.from_layer import fill_layer
from envbuild.plan import shell
from envbuild.run import Command, Result, Runner
from envbuild.runtime import Runtime
from envbuild.store.atomic import os_errors_as

SECONDS = 7200.0
SLACK = 1_000_000_000
"""Nanoseconds by which a file's time may lie before the clock's, on a file system that counts in seconds."""
REFUSED = re.compile(
    r"fuse-overlayfs|newuidmap|newgidmap|subuid|user namespace|while applying fakeroot"
)
NO_OVERLAY = (
    "this needs what apptainer build --fakeroot needs: a line for the user in /etc/subuid and /etc/subgid, "
    "fuse-overlayfs, and /dev/fuse; envbuild doctor tells which is missing\n"
    "or make the image on another machine and copy the .sif here"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OverlayContext:
    """What a captured run needs of the machine."""

    runtime: Runtime
    runner: Runner
    packing: PackContext


@dataclass(frozen=True, kw_only=True, slots=True)
class OverlayScript:
    """What is run: a shell script, files that it sees below /mnt/in/files (name, place, sha256), its variables."""

    name: str
    script: tuple[str, ...]
    files: tuple[tuple[str, Path, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    hint: str = ""


def debian_install_script(
    packages: Iterable[DebianPackage], means: OverlayContext, epoch: int
) -> OverlayScript:
    """Return the installation of locked Debian packages; their maintainer scripts run, services do not start."""
    chosen = tuple(packages)
    store = means.packing.store
    return OverlayScript(
        name=f"install {len(chosen)} Debian packages",
        script=(
            "set -eu",
            "umask 022",
            f"files={GIVEN}/files",
            "mkdir -p /usr/sbin",
            "policy=/usr/sbin/policy-rc.d",
            "had=; if [ -e $policy ]; then had=yes; fi",
            "if [ -z \"$had\" ]; then printf '#!/bin/sh\\nexit 101\\n' >$policy; chmod 755 $policy; fi",
            *shell.install_debian(chosen),
            'if [ -z "$had" ]; then rm -f $policy; fi',
        ),
        files=tuple((f"debian/{p.file}", store.artifact(p.sha256), p.sha256) for p in chosen),
        environment=(
            ("SOURCE_DATE_EPOCH", str(epoch)),
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("DEBCONF_NONINTERACTIVE_SEEN", "true"),
            ("PYTHONHASHSEED", "0"),
            ("LC_ALL", "C.UTF-8"),
            ("TZ", "UTC"),
        ),
        hint="the base holds other versions than the release's main suite: take a newer tag, or leave the package out",
    )


def post_script(lines: Sequence[str], *, old_cuda: bool = False) -> OverlayScript:
    """Return the lines of [system] post, as the definition runs them: last, and without a network where that can be.

    ``old_cuda`` tells that the base is older than the key of its CUDA package source, which is switched off before.
    """
    own = shell.write_heredoc("$offline /bin/sh -eu", "RECIPE", lines) if lines else ()
    return OverlayScript(
        name="run [system] post" if lines else "switch off the old CUDA package source",
        script=(
            "set -eu",
            "umask 022",
            "offline=",
            "if unshare --net true 2>/dev/null; then offline='unshare --net'; fi",
            *(shell.switch_off_cuda_sources() if old_cuda else ()),
            *own,
        ),
        hint="mend the line of [system] post; it has no network and runs in /bin/sh -eu",
    )


def run_captured(
    act: OverlayScript,
    below: Sequence[CachedPart],
    base: LockedBase,
    means: OverlayContext,
    inputs: Mapping[str, str],
) -> CachedPart:
    """Return the part of what an act changes in the root that these parts make.

    ``inputs`` name whatever else decides it.  Raises ToolFailedError with the script's last lines, HostError where
    nothing can be run over an overlay here.
    """
    text = (
        resources.files("envbuild.build.in_base.scripts").joinpath("capture.py").read_text("utf-8")
    )
    key = part_key(
        "captured",
        below=[part.part.key for part in below],
        script=list(act.script),
        environment=dict(act.environment),
        inputs=dict(inputs),
        capture=text,
        epoch=base.epoch,
        packer=means.packing.codec.key,
    )
    found = cached_part(key, means.packing.store)
    if found is not None:
        return found
    store = means.packing.store
    with means.packing.report.stage(act.name), store.work("capture") as work:
        overlay = work / "overlay"
        make_open(overlay)
        _run_script(act, below, base, means, overlay)
        return provide_part(
            key,
            means.packing,
            lambda writer: fill_layer(
                writer, work / "layer.tar", None, where=act.name, captured=True
            ),
            layer=True,
        )


def _run_script(
    act: OverlayScript,
    below: Sequence[CachedPart],
    base: LockedBase,
    means: OverlayContext,
    overlay: Path,
) -> None:
    """Run an act over a root and leave what it changed as ``layer.tar`` beside the overlay."""
    image, done = overlay.with_name("root.sif"), False
    codec: Codec = means.packing.codec
    write_root(image, below, machine=base.machine, codec=codec)
    order = {"epoch": base.epoch, "started": time.time_ns() - SLACK}
    try:
        with open_exchange(overlay.parent) as between:
            for name, kept, sha256 in act.files:
                give_file(kept, between.given / "files" / name, sha256)
            between.write("act.sh", ("\n".join(act.script) + "\n").encode())
            argv = ("/bin/sh", f"{GIVEN}/act.sh")
            result = means.runner(
                _run_command(means, image, argv, between, act, overlay=overlay), check=False
            )
        if result.code != 0:
            raise _run_failure(act, result)
        _collect_changes(means, base, order, overlay, act)
        done = True
    finally:
        if not done:
            _collect_changes(means, base, {**order, "only-remove": 1}, overlay, act)


def _collect_changes(
    means: OverlayContext,
    base: LockedBase,
    order: Mapping[str, int],
    overlay: Path,
    act: OverlayScript,
) -> None:
    """Read the overlay in a namespace like the one that wrote it, and remove it there: by scripts laid anew."""
    removes = "only-remove" in order
    image = overlay.with_name("root.sif")
    text = resources.files("envbuild.build.in_base.scripts").joinpath("capture.py").read_bytes()
    with open_exchange(overlay.parent) as between:
        between.write("capture.py", text)
        between.write("order.json", json.dumps(order).encode())
        names = (f"{INSIDE}/overlay/upper", f"{INSIDE}/layer.tar", f"{GIVEN}/order.json")
        argv = (base.python_path, "-s", "-B", f"{GIVEN}/capture.py", *names)
        result = means.runner(
            _run_command(means, image, argv, between, act, read=overlay), check=False
        )
        if removes:
            return
        if result.code != 0:
            raise _run_failure(act, result)
        take_file(between.out, "layer.tar", overlay.with_name("layer.tar"))


def _run_command(
    means: OverlayContext,
    image: Path,
    argv: tuple[str, ...],
    between: Exchange,
    act: OverlayScript,
    *,
    overlay: Path | None = None,
    read: Path | None = None,
) -> Command:
    """Return the command of one run: over an ``overlay``, or beside one to ``read`` and remove."""
    binds = between.binds()
    if read is not None:
        with os_errors_as(between.out):
            (between.out / "overlay").mkdir()
        binds = (*binds, (read, f"{INSIDE}/overlay", True))
    return means.runtime.root_command(
        image,
        argv,
        overlay=overlay,
        binds=binds,
        # dpkg need not sync every file: a run that is cut off leaves nothing, and what it leaves else is packed
        env={**dict(act.environment), "DPKG_FORCE": "unsafe-io"},
        timeout=SECONDS,
    )


def _run_failure(act: OverlayScript, result: Result) -> ToolFailedError:
    told = explain_failure(result)
    refused = REFUSED.search(result.stderr)
    return ToolFailedError.of(
        result,
        f"{act.name}: {told.what}",
        hint=NO_OVERLAY if refused else told.hint or act.hint,
    )
