"""Run something over a root without being root, and keep what it changed as a part.

Debian packages, lines of a recipe. The run sees the root below an overlay folder; what is in that
folder afterwards is read as a layer of an image is.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
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
from envbuild.context import Context
from envbuild.errors import ToolFailedError
from envbuild.failures import explain_failure
from envbuild.formats.block_codec import Codec
from envbuild.host_python import PLACE, open_host_python
from envbuild.lock.model import LockedBase
from envbuild.names import Pairs, Texts
from envbuild.parts.cache import CachedPart, PackContext, cached_part, part_key, provide_part
from envbuild.parts.from_layer import fill_layer
from envbuild.plan import shell
from envbuild.progress import Stage
from envbuild.records import frozen_record, replace
from envbuild.run import Command, Result
from envbuild.runtime import Bind
from envbuild.store.atomic import os_errors_as
from envbuild.store.layout import Store
from envbuild.store.units import count_noun

SECONDS = 7200.0
CAPTURE = Path(__file__).parent / "scripts" / "capture.py"
"""Run inside the base: reads what is in the overlay folder as a layer of an image."""
SLACK = 1_000_000_000
"""Nanoseconds by which a file's time may lie before the clock's.

Some file systems count seconds.
"""
REFUSED = re.compile(
    r"fuse-overlayfs|newuidmap|newgidmap|subuid|user namespace|while applying fakeroot"
)
DPKG_STEPS = ("Unpacking ", "Setting up ")
NO_OVERLAY = (
    "this needs what apptainer build --fakeroot needs: a line for the user in /etc/subuid and /etc/subgid, "
    "fuse-overlayfs, and /dev/fuse; envbuild doctor shows which is missing\n"
    "or make the image on another machine and copy the .sif here"
)


@frozen_record
class OverlayScript:
    """A shell script, its variables, and its files below /mnt/in/files (name, place, sha256)."""

    name: str
    script: Texts
    files: tuple[tuple[str, Path, str], ...] = ()
    environment: Pairs = ()
    hint: str = ""

    @property
    def steps(self) -> int:
        """What dpkg tells of: each package is unpacked and set up; 0 where nobody can know."""
        return 2 * len(self.files)

    def counts(self, line: str) -> bool:
        """Tell whether a line of the run's output is a step, or, of unknown ones, any line."""
        return not self.files or line.startswith(DPKG_STEPS)


def debian_install_script(
    packages: Iterable[DebianPackage], store: Store, epoch: int
) -> OverlayScript:
    """Return the installation of locked Debian packages.

    Their maintainer scripts run, services do not start.
    """
    chosen = tuple(packages)
    return OverlayScript(
        name=f"install {count_noun(len(chosen), 'Debian package')}",
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


def post_script(lines: Sequence[str], *, old_cuda: bool) -> OverlayScript:
    """Return the lines of [system] post, as the definition runs them.

    Last, and without a network where that can be. ``old_cuda`` says that the base is older than
    the key of its CUDA package source, which is switched off before.
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


def captured_key(
    script: OverlayScript, below: Iterable[str], base: LockedBase, codec: Codec
) -> str:
    """Return the key of what a script changes in the root that the parts of these keys make."""
    return part_key(
        "captured",
        below=list(below),
        script=list(script.script),
        environment=dict(script.environment),
        inputs={name: sha256 for name, _, sha256 in script.files},
        capture=CAPTURE.read_text("utf-8"),
        epoch=base.epoch,
        packer=codec.key,
    )


def run_captured(
    script: OverlayScript,
    below: Sequence[CachedPart],
    base: LockedBase,
    packing: PackContext,
    context: Context,
) -> CachedPart:
    """Return the part of what a script changes in the root that these parts make.

    Raises ToolFailedError with the script's last lines, HostError where nothing can be run over an
    overlay here.
    """
    key = captured_key(script, [part.part.key for part in below], base, packing.codec)
    found = cached_part(key, packing.store)
    if found is not None:
        return found
    stage_of_all = packing.report.stage(script.name, total=script.steps or None, unit="line")
    with stage_of_all as stage, packing.store.work("capture") as work:
        overlay = work / "overlay"
        make_open(overlay)
        image = overlay.with_name("root.sif")
        write_root(image, below, machine=base.machine, codec=packing.codec)
        _OverlayRun(
            script=script, base=base, context=context, image=image, overlay=overlay, stage=stage
        ).run()
        return provide_part(
            key,
            packing,
            lambda writer: fill_layer(
                writer, work / "layer.tar", None, where=script.name, captured=True
            ),
            layer=True,
        )


@frozen_record
class _OverlayRun:
    """One run of a script in ``image`` over an ``overlay`` folder."""

    script: OverlayScript
    base: LockedBase
    context: Context
    image: Path
    overlay: Path
    stage: Stage

    def run(self) -> None:
        """Run the script, leave what it changed as ``layer.tar``, and remove the overlay."""
        # files that are younger than this were written by the run: their times become the epoch
        order = {"epoch": self.base.epoch, "started": time.time_ns() - SLACK}
        done = False
        try:
            with open_exchange(self.overlay.parent) as between:
                for name, stored, sha256 in self.script.files:
                    give_file(stored, between.given / "files" / name, sha256)
                between.write("act.sh", ("\n".join(self.script.script) + "\n").encode())
                argv = ("/bin/sh", f"{GIVEN}/act.sh")
                command = self._command(argv, between.binds(), overlay=self.overlay)
                result = self.context.runner(replace(command, on_line=self._count), check=False)
            if result.code != 0:
                raise _run_failure(self.script, result)
            self._collect(order)
            done = True
        finally:
            # its files belong to ids of the namespace:
            # only a run like the one that wrote them can remove them
            if not done:
                self._collect({**order, "only-remove": 1})

    def _count(self, line: str) -> None:
        if self.script.counts(line):
            self.stage.advance()

    def _collect(self, order: Mapping[str, int]) -> None:
        """Read the overlay in a namespace like the one that wrote it, and remove it there.

        By scripts laid anew.
        """
        with open_exchange(self.overlay.parent) as between:
            between.write("capture.py", CAPTURE.read_bytes())
            between.write("order.json", json.dumps(order).encode())
            names = (f"{INSIDE}/overlay/upper", f"{INSIDE}/layer.tar", f"{GIVEN}/order.json")
            with os_errors_as(between.out):
                (between.out / "overlay").mkdir()
            binds = (*between.binds(), (self.overlay, f"{INSIDE}/overlay", True))
            words = ("-s", "-B", f"{GIVEN}/capture.py", *names)
            result = self._run_python(words, binds, between)
            if "only-remove" in order:
                return
            if result.code != 0:
                raise _run_failure(self.script, result)
            take_file(between.out, "layer.tar", self.overlay.with_name("layer.tar"))

    def _run_python(self, words: Sequence[str], binds: Sequence[Bind], between: Exchange) -> Result:
        """Run the base's Python; where it has none, this machine's."""
        runner = self.context.runner
        if self.base.python:
            return runner(self._command((self.base.python_path, *words), binds), check=False)
        with open_host_python(self.context) as host:
            with os_errors_as(between.out):
                (between.out / Path(PLACE).name).mkdir()
            binds = (*binds, *host.binds)
            return runner(self._command((*host.argv, *words), binds), check=False)

    def _command(
        self, argv: Sequence[str], binds: Sequence[Bind], overlay: Path | None = None
    ) -> Command:
        return self.context.runtime.root_command(
            self.image,
            argv,
            overlay=overlay,
            binds=binds,
            # dpkg need not sync every file: a run that is cut off leaves nothing, and what it
            # leaves else is packed
            env={**dict(self.script.environment), "DPKG_FORCE": "unsafe-io"},
            timeout=SECONDS,
        )


def _run_failure(script: OverlayScript, result: Result) -> ToolFailedError:
    failure = explain_failure(result)
    refused = REFUSED.search(result.stderr)
    return ToolFailedError.of(
        result,
        f"{script.name}: {failure.what}",
        hint=NO_OVERLAY if refused else failure.hint or script.hint,
    )
