"""Hosts that lack something, made of this one: private namespaces of one process tree, so that nothing else sees them."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from envbuild.run import Command, LocalRunner, Result
from tests.project import SMALL, shared_store

ROOT = Path(__file__).parents[1]
UID = 4242
RECIPE = SMALL.replace('script = "check.py"\n', "").replace(
    '[system]\npackages = ["hello-traditional"]\n', ""
)
SQUASHFUSE = ("squashfuse", "squashfuse_ll")
ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can make such hosts")

REACHABLE = r"""
set -eu
# the user has to reach the program under test, which may lie below a closed home folder
if [ "$(stat -c %a /root)" = 700 ]; then
    kept=$(mktemp -d)
    mount --rbind /root "$kept"
    mount -t tmpfs -o mode=755 tmpfs /root
    for place in $PLACES; do
        case $place in
        /root/*) mkdir -p "$place"; mount --rbind "$kept${place#/root}" "$place" ;;
        esac
    done
fi
etc=$(mktemp -d); chmod 755 "$etc"
{ cat /etc/passwd; echo "ada:x:$UID_HERE:$UID_HERE::$HOME:/bin/sh"; } >"$etc/passwd"
{ cat /etc/group; echo "ada:x:$UID_HERE:"; } >"$etc/group"
echo "$IDS" >"$etc/subuid"
chmod 644 "$etc"/*
for file in passwd group; do mount --bind "$etc/$file" "/etc/$file"; done
for file in subuid subgid; do mount --bind "$etc/subuid" "/etc/$file"; done
"""
AS_USER = f"setpriv --reuid={UID} --regid={UID} --clear-groups --inh-caps=-all --"
NO_NAMESPACES = (
    "unshare -U --map-current-user --keep-caps sh -c "
    "'echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all -- \"$@\"' sh"
)


@dataclass(frozen=True, kw_only=True)
class Lack:
    """What a host lacks; a host that lacks nothing is an ordinary user's on an ordinary node."""

    root: bool = False
    subuid: bool = False
    namespaces: bool = False
    fuse: bool = False
    squashfuse: bool = False
    network: bool = False
    programs: tuple[str, ...] = ()
    tmpdir: str | None = None
    """The size of a small TMPDIR ("64m")."""


def _script(lack: Lack, tmpdir: Path) -> str:
    lines = [] if lack.root else [REACHABLE]
    hidden = (*lack.programs, *(SQUASHFUSE if lack.squashfuse else ()))
    if lack.fuse:
        lines.append(
            "nodes=$(mktemp -d); mount -t tmpfs -o mode=755 tmpfs $nodes; mknod $nodes/fuse c 10 229;"
            "chmod 600 $nodes/fuse; mount --bind $nodes/fuse /dev/fuse"
        )
    for name in hidden:
        lines += [
            f"mount --bind /etc/group {shlex.quote(found)}"  # a file that nobody can start
            for folder in os.environ["PATH"].split(":")
            if (found := shutil.which(name, path=folder)) is not None
            and not Path(found).is_symlink()
        ]
    if lack.tmpdir:
        lines.append(
            f"mount -t tmpfs -o mode=1777,size={lack.tmpdir} tmpfs {shlex.quote(str(tmpdir))}"
        )
    start = [] if lack.root else [AS_USER]
    if lack.namespaces:
        start.append(NO_NAMESPACES)
    lines.append(f'cd "$HERE"; exec {" ".join(start)} "$@"')
    return "\n".join(lines)


class Bench:
    """A folder of a user on such a host, with a recipe, and a store that has the downloads (and what else is named)."""

    def __init__(
        self,
        folder: Path,
        kept: Sequence[str] = ("artifacts", "bases", "facts"),
        *,
        uid: int = UID,
        store: Path | None = None,
    ) -> None:
        self.uid = uid
        self.path = f"{Path(sys.prefix) / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.more: dict[str, str] = {}
        """Variables besides."""
        self.folder = folder / "work"
        self.home, self.tmpdir, self.below = folder / "home", folder / "tmp", folder / "below"
        for path in (self.folder / "recipes", self.home, self.tmpdir, self.below / "v1"):
            path.mkdir(parents=True)
        for name in kept:
            # not by symbolic links: a user below fakeroot has his home mounted over /root
            shutil.copytree(
                (store or shared_store()) / "v1" / name,
                self.below / "v1" / name,
                copy_function=os.link,
            )
        self.write("recipes/small.toml", RECIPE)
        for path in (folder, self.folder, self.folder / "recipes", self.home, self.tmpdir):
            os.chown(path, uid, uid)
            path.chmod(0o755)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for made in (path, path.parent):
            os.chown(made, self.uid, self.uid)
        return path

    def run(self, lack: Lack, *arguments: str, timeout: float = 1200, **more: str) -> Result:
        """Run the command line there."""
        return self.start(
            lack, sys.executable, "-m", "envbuild", *arguments, timeout=timeout, **more
        )

    def start(self, lack: Lack, *program: str, timeout: float = 1200, **more: str) -> Result:
        """Run any program there."""
        places = dict.fromkeys(map(str, (ROOT, sys.prefix, sys.base_prefix, shared_store())))
        env = {
            "PATH": self.path,
            "HOME": str(self.home),
            "TMPDIR": str(self.tmpdir),
            "ENVBUILD_STORE": str(
                self.folder.parent / ("root-store" if lack.root else "home/store")
            ),
            "ENVBUILD_STORE_BELOW": str(self.below),
            "PLACES": " ".join(places),
            "UID_HERE": str(UID),
            "IDS": "" if lack.subuid else "ada:200000:65536",
            "HERE": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
            **self.more,
            **more,
        }
        kept = {
            k: v
            for k, v in os.environ.items()
            if k.startswith(("PIP_", "UV_", "SSL_", "http", "no_proxy"))
        }
        unshare = ("unshare", "-m", *(("-n",) if lack.network else ()), "bash", "-c")
        argv = (*unshare, _script(lack, self.tmpdir), "bash", *program)
        return LocalRunner()(
            Command(argv=argv, cwd=Path("/"), env={**kept, **env}, timeout=timeout), check=False
        )
