"""The command line that makes a root file system from a folder of Debian packages."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from envbuild.base.model import DebianPackage
from envbuild.names import Texts

CLEAN = (
    "/etc/apt/sources.list",  # names the folder the packages came from
    "/etc/hostname",  # the building machine's
    "/etc/resolv.conf",
)
"""Files that mmdebstrap copies from the building machine; they are emptied."""
PARTIAL = ("/var/lib/apt/lists/partial", "/var/cache/apt/archives/partial")
"""Folders of apt's user _apt; apt sets that only where this user may enter the root."""


def mmdebstrap_arguments(
    packages: Iterable[DebianPackage],
    *,
    repository: str,
    target: str,
    mode: str,
    hooks: Iterable[str] = (),
    over: Path | None = None,
) -> Texts:
    """Return the command that makes a root from .deb files and their Packages file.

    ``target`` ends with ".tar", or is "-" (a tar at the standard output) or a folder; ``mode`` is "root" or "unshare"; ``hooks`` run in
    the finished root before it is cleaned; ``over`` is the tar of a root to start from.
    SOURCE_DATE_EPOCH has to be in the environment.  ``repository`` is a folder's path as part of a
    URL; others have to be able to read both in mode "unshare".
    """
    names = sorted({package.name for package in packages if package.group == "base"})
    source = f"deb [trusted=yes] copy:{repository} ./"
    begin: Texts = ()
    if over is not None:
        listed = f'printf "%s\\n" {shlex.quote(source)} > "$1"/etc/apt/sources.list'  # the tar has an empty one
        # mmdebstrap's own tar-in sends 4 kB at a time and waits for an answer to each
        unpack = f'tar --numeric-owner --xattrs --xattrs-include="*" -C "$1" -xf {shlex.quote(str(over))}'
        # the tar has no /dev; without the folder mmdebstrap gives maintainer scripts no /dev/null
        # in mode unshare
        devices = 'mkdir -p "$1"/dev'
        begin = tuple(f"--setup-hook={hook}" for hook in (unpack, listed, devices))
    clean = [f'rm -f "$1"{path} && : > "$1"{path} && chmod 644 "$1"{path}' for path in CLEAN]
    owned = f'chroot "$1" chown _apt:root {" ".join(PARTIAL)}'
    last = [f"--customize-hook={hook}" for hook in (*hooks, owned, *clean)]
    return (
        "mmdebstrap",
        f"--mode={mode}",
        f"--variant={'minbase' if over is None else 'custom'}",
        *begin,
        "--format=tar" if target.endswith((".tar", "-")) else "--format=directory",
        f"--include={','.join(names)}",
        # device nodes cannot be unpacked without root, and every runtime mounts its own
        "--skip=output/dev",
        *last,
        "",  # no suite: all that the folder has, and nothing else
        target,
        source,
    )
