"""Write what a run changed in an overlay as the tar of an image layer; argv: upper folder, tar, settings (JSON).

Marks of overlayfs and fuse-overlayfs become those of image layers; caches, logs, identities and seeds are left out.
The same content gives the same bytes: sorted names, no times of this run.
"""

import io
import json
import os
import re
import shutil
import stat
import sys
import tarfile

LEFT_OUT = re.compile(
    r"(dev|proc|sys|tmp|run|mnt|var/tmp|root/\.cache|\.singularity\.d|var/cache/(man|fontconfig|apt/archives))(/.*)?"
    r"|var/lib/apt/lists/.+|var/cache/apt/[^/]*\.bin|var/cache/ldconfig/aux-cache|var/(lib/dpkg|cache/debconf)/[^/]+-old"
    r"|var/lib/dpkg/lock.*|var/log/.+|var/lib/dbus/machine-id|var/lib/(systemd|urandom)/random-seed"
    r"|etc/(passwd|group|shadow|gshadow|subuid|subgid)-|etc/\.pwd\.lock|etc/ssh/ssh_host_.*|etc/(hosts|resolv\.conf|mtab)"
    r"|environment|singularity"
)
EMPTY = ("etc/machine-id",)
OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque", "user.fuseoverlayfs.opaque")
OWN = re.compile(r"(trusted|user)\.(overlay|fuseoverlayfs|containers)\.")


def attributes(path):
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return {}
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names}


def shadow(data, day):
    """Set the day of the last change, which useradd takes from the clock, to a fixed one where it is later."""
    lines = []
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isdigit() and int(fields[2]) > day:
            fields[2] = str(day)
        lines.append(":".join(fields))
    return "\n".join(lines).encode("utf-8", "surrogateescape")


class Capture:
    def __init__(self, upper, tar, order):
        self.upper, self.tar, self.order = upper, tar, order
        self.seen = {}

    def mark(self, name):
        entry = tarfile.TarInfo(name)
        entry.mtime = self.order["epoch"]
        self.tar.addfile(entry)

    def add(self, path, name):
        info = os.lstat(path)
        held = attributes(path)
        folder, base = os.path.split(name)
        if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:
            self.mark(os.path.join(folder, ".wh." + base))
            return
        if base.startswith(".wh."):
            self.mark(name)
            return
        entry = self.tar.gettarinfo(path, name)
        if entry is None:  # a socket
            return
        entry.uname = entry.gname = ""
        entry.mtime = (
            self.order["epoch"] if info.st_mtime_ns >= self.order["started"] else int(info.st_mtime)
        )
        entry.pax_headers = {
            "SCHILY.xattr." + key: value.decode("utf-8", "surrogateescape")
            for key, value in sorted(held.items())
            if not OWN.match(key) and key.startswith(("user.", "security.capability"))
        }
        if stat.S_ISDIR(info.st_mode):
            self.tar.addfile(entry)
            if any(held.get(key) in (b"y", b"x") for key in OPAQUE):
                self.mark(os.path.join(name, ".wh..wh..opq"))
            return
        if entry.islnk() or (info.st_nlink > 1 and stat.S_ISREG(info.st_mode)):
            first = self.seen.setdefault((info.st_dev, info.st_ino), name)
            if first != name:
                entry.type, entry.linkname, entry.size = tarfile.LNKTYPE, first, 0
                self.tar.addfile(entry)
                return
            entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", info.st_size
        self.content(path, name, entry)

    def content(self, path, name, entry):
        if not entry.isreg():
            self.tar.addfile(entry)
        elif name in EMPTY or name == "etc/shadow":
            with open(path, "rb") as file:
                data = (
                    shadow(file.read(), self.order["epoch"] // 86400) if name not in EMPTY else b""
                )
            entry.size = len(data)
            self.tar.addfile(entry, io.BytesIO(data))
        else:
            with open(path, "rb") as file:
                self.tar.addfile(entry, file)

    def walk(self, folder, inside):
        for base in sorted(os.listdir(folder)):
            path, name = os.path.join(folder, base), os.path.join(inside, base)
            shown = name.replace("/.wh.", "/")
            if LEFT_OUT.fullmatch(shown):
                continue
            self.add(path, name)
            if os.path.isdir(path) and not os.path.islink(path):
                self.walk(path, name)


def main():
    upper, target = sys.argv[1:3]
    with open(sys.argv[3]) as file:
        order = json.load(file)
    if os.path.isdir(upper) and not order.get("only-remove"):
        with tarfile.open(
            target, "w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
        ) as tar:
            Capture(upper, tar, order).walk(upper, "")
    # files of other users of this namespace: from outside nobody but root could remove them
    for name in ("upper", "work"):
        shutil.rmtree(os.path.join(os.path.dirname(upper), name), ignore_errors=True)


main()
