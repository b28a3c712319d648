"""Facts about this machine: who runs, with which rights, on which file systems, with which GPU driver."""

from __future__ import annotations

import os
import platform
import pwd
import re
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from envbuild.errors import HostError
from envbuild.names import Texts
from envbuild.records import frozen_record
from envbuild.run import Command, Runner

CAP_SYS_RESOURCE = 24
"""Bit of CAP_SYS_RESOURCE in a capability mask (linux/capability.h)."""
ID_COUNT = 65536
"""Ids that a Debian system uses: a shorter range in /etc/subuid breaks packages with high ids
(nobody is 65534)."""
FIRST_ID = 100000
"""Where ranges begin (SUB_UID_MIN in /etc/login.defs)."""
SWITCHES = {
    "user.max_user_namespaces": ("0", "15000"),
    "kernel.unprivileged_userns_clone": ("0", "1"),  # Debian's and Arch's kernels
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),  # Ubuntu 23.10 and newer
}
"""Settings of kernels that switch user namespaces off: the value that does, and one that does
not."""
OCTAL = re.compile(r"\\([0-7]{3})")
SLOW_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "fuse.glusterfs", "cifs", "afs", "ceph"}
)
"""Network file systems: slow for many small files, and often without the extended attributes that a
build needs."""


@frozen_record
class Host:
    """What this machine offers to the user who runs.

    ``missing_capabilities`` are the bits the kernel knows but this process lacks (all of them for
    an ordinary user); ``subuid`` and ``subgid`` are the first and the count of the user's own
    ranges, None without a line; ``user_namespace_limit`` is None where the kernel has no such file;
    ``driver`` is the NVIDIA driver's version. ``free_ids`` is the first of ID_COUNT ids that no
    line of /etc/subuid and /etc/subgid has; ``switches`` are the kernel's own settings that keep
    user namespaces from people, each with the value that lets them.
    """

    uid: int
    user: str
    architecture: str
    missing_capabilities: frozenset[int]
    subuid: tuple[int, int] | None
    subgid: tuple[int, int] | None
    user_namespace_limit: int | None
    fuse: bool
    driver: str | None
    free_ids: int = FIRST_ID
    switches: Texts = ()

    @property
    def crippled_root(self) -> bool:
        """Tell whether this is root without the full capability set, whom Apptainer refuses outside a namespace."""
        return self.uid == 0 and bool(self.missing_capabilities)

    @property
    def missing_ids(self) -> Texts:
        """The files that give the user fewer ids of their own than a build needs."""
        ranges = {"/etc/subuid": self.subuid, "/etc/subgid": self.subgid}
        return tuple(file for file, found in ranges.items() if (found or (0, 0))[1] < ID_COUNT)

    @property
    def ids_remedy(self) -> str:
        """What root may type, one line for each of these files."""
        line = f"{self.user}:{self.free_ids}:{ID_COUNT}"
        return "\n".join(f"root: echo {line} >>{file}" for file in self.missing_ids)


@frozen_record
class Space:
    """The file system below a folder: free bytes and inodes for this user (None: it counts no inodes), and its kind.

    ``total`` are all its bytes, ``device`` and ``mount`` what /proc/mounts calls it and where it
    hangs; ``options`` are those of its mount.
    """

    folder: Path
    free: int
    free_inodes: int | None
    kind: str
    total: int = 0
    device: str = ""
    mount: str = ""
    options: Texts = ()

    @property
    def slow(self) -> bool:
        """Tell whether this is a network file system."""
        return self.kind in SLOW_FILE_SYSTEMS


def read_host(*, root: Path = Path("/"), uid: int | None = None, user: str | None = None) -> Host:
    """Read the facts below ``root`` (tests pass a made-up one).

    Starts no process and never fails.
    """
    number = os.geteuid() if uid is None else uid
    name = user or user_name(number)
    return Host(
        uid=number,
        user=name,
        architecture=platform.machine(),
        missing_capabilities=_missing_capabilities(root),
        subuid=_id_range(root / "etc/subuid", name, number),
        subgid=_id_range(root / "etc/subgid", name, number),
        user_namespace_limit=_number(root / "proc/sys/user/max_user_namespaces"),
        fuse=os.access(root / "dev/fuse", os.R_OK | os.W_OK),
        driver=read_driver(root),
        free_ids=_free_ids(root),
        switches=_switches(root),
    )


def count_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def read_driver(root: Path = Path("/")) -> str | None:
    """Return the version of the loaded NVIDIA driver, None without driver or without its control device."""
    if not (root / "dev/nvidiactl").exists():
        return None
    # "… NVIDIA UNIX x86_64 Kernel Module  535.129.03 …"; open modules: "… Open Kernel Module for
    # x86_64  …"
    found = re.search(r"Module\b.*?\s(\d+(?:\.\d+)+)\s", _text(root / "proc/driver/nvidia/version"))
    return found[1] if found else None


def user_namespaces_work(runner: Runner) -> bool | None:
    """Tell whether this user can make a user namespace, by making one that ends at once.

    None without unshare(1).
    """
    try:
        return runner(Command(argv=("unshare", "-U", "true"), timeout=5), check=False).code == 0
    except HostError:
        return None


def root_is_mapped(root: Path = Path("/")) -> bool:
    """Tell whether user 0 is somebody else outside: root of a namespace that an ordinary user made."""
    first = _text(root / "proc/self/uid_map").split()
    return len(first) >= 2 and first[0] == "0" and first[1] != "0"


def require_tmpdir(folder: Path) -> None:
    """Raise HostError for a TMPDIR in which nothing can be written, or no program can be started."""
    if not os.access(folder, os.W_OK | os.X_OK):
        hint = "export TMPDIR=/tmp, or name another folder that you may write in"
        raise HostError("TMPDIR is no folder that you may write in", where=folder, hint=hint)
    # a build starts programs there
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        hint = "export TMPDIR=/var/tmp, or name another folder where programs may run"
        raise HostError(
            "TMPDIR is a folder where no program can be started (noexec)", where=folder, hint=hint
        )


def closed_above(folder: Path) -> Path | None:
    """Return the folder itself or the first above it that other users may not enter.

    None where they may.
    """
    real = folder.resolve()
    for place in (real, *real.parents):
        if place.is_dir() and not place.stat().st_mode & stat.S_IXOTH:
            return place
    return None


def network_namespaces_work() -> bool:
    """Tell whether the kernel gives networks of their own; one that does not say is taken to."""
    limit = _number(Path("/proc/sys/user/max_net_namespaces"))
    return limit is None or limit > 0


def free_bytes(folder: Path) -> int:
    """Return the bytes that may be written there: infinite where no size is reported."""
    found = shutil.disk_usage(folder)
    return found.free if found.total else sys.maxsize


def read_space(
    folder: Path,
    *,
    mounts: Path = Path("/proc/mounts"),
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs,
) -> Space:
    """Read free space and kind of the file system that holds a folder, or would once the folder is made."""
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    place = place.resolve()
    stat = statvfs(place)
    device, mount, kind, options = _file_system(place, _text(mounts))
    return Space(
        folder=folder,
        free=stat.f_bavail * stat.f_frsize,
        free_inodes=stat.f_favail if stat.f_files else None,
        kind=kind,
        total=stat.f_blocks * stat.f_frsize,
        device=device,
        mount=mount,
        options=tuple(options.split(",")),
    )


def _file_system(place: Path, mounts: str) -> tuple[str, str, str, str]:
    """Return device, point, type and options of the deepest mount above a place.

    Of two at one, the later counts.
    """
    found, depth = ("", "", "unknown", ""), -1
    for line in mounts.splitlines():
        device, written, kind, options = (*line.split(), "", "", "", "")[:4]
        if not kind:
            continue
        point = Path(unescape_mount(written))
        if place.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = (device, str(point), kind, options), len(point.parts)
    return found


def unescape_mount(text: str) -> str:
    """Return a field of a table of mounts: blank, tab, newline and backslash are octal there."""
    return OCTAL.sub(lambda code: chr(int(code[1], 8)), text)


def _missing_capabilities(root: Path) -> frozenset[int]:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", _text(root / "proc/self/status"), re.MULTILINE)
    last = _number(root / "proc/sys/kernel/cap_last_cap")
    if found is None or last is None:
        return frozenset()
    mask = int(found[1], 16)
    return frozenset(bit for bit in range(last + 1) if not mask >> bit & 1)


def _id_range(path: Path, user: str, uid: int) -> tuple[int, int] | None:
    for line in _text(path).splitlines():
        row = re.fullmatch(r"([^:]+):(\d+):(\d+)", line.strip())
        if row is None or row[1] not in (user, str(uid)):
            continue
        first, count = int(row[2]), int(row[3])
        if count > 0:
            return first, count
    return None


def _free_ids(root: Path) -> int:
    """Return the first of ID_COUNT ids that nobody has, in either file."""
    text = _text(root / "etc/subuid") + "\n" + _text(root / "etc/subgid")
    ranges = re.findall(r"^[^:\n]*:(\d+):(\d+)\s*$", text, re.MULTILINE)
    free = FIRST_ID
    for first, count in sorted((int(first), int(count)) for first, count in ranges):
        if first - free >= ID_COUNT:
            break
        free = max(free, first + count)
    return free


def _switches(root: Path) -> Texts:
    """Return "NAME=VALUE" for each setting that this kernel has and that keeps user namespaces from people."""
    off: list[str] = []
    for name, (closed, opened) in SWITCHES.items():
        path = root / "proc/sys" / name.replace(".", "/")
        if _text(path).strip() == closed:
            off.append(f"{name}={opened}")
    return tuple(off)


def user_name(uid: int) -> str:
    """Return the name of an account, its number where the node does not know it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # an account of the site's directory that this node does not know
        return str(uid)


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
