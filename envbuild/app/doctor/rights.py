"""The doctor on rights: what this user may do, alone and in a user namespace."""

from __future__ import annotations

from envbuild.app.doctor.finding import Finding, broken, differs, fine
from envbuild.host import ID_COUNT, Host

NAMES = (
    "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service "
    "net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin "
    "sys_boot sys_nice sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override "
    "mac_admin syslog wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore"
)
"""Names of capabilities by bit (linux/capability.h), without the "cap_" before each."""


FUSE_MEND = (
    "root: modprobe fuse; chmod 666 /dev/fuse\n"
    "and to last over a restart: echo fuse >/etc/modules-load.d/fuse.conf; "
    'echo \'KERNEL=="fuse", MODE="0666"\' >/etc/udev/rules.d/90-fuse.rules'
)


def judge_rights(host: Host) -> Finding:
    """Judge what the user may do: an ordinary user and a whole root are fine, a root without capabilities differs."""
    who = f"{host.user} (uid {host.uid})"
    if not host.crippled_root:
        return fine("rights", who)
    lacking = ", ".join(capability(bit) for bit in sorted(host.missing_capabilities)[:4])
    value = f"{who} without {len(host.missing_capabilities)} of root's capabilities ({lacking}): runs with --userns"
    return differs("rights", value)


def capability(bit: int) -> str:
    """Return the name of a capability, "bit 50" for one that is younger than this list."""
    names = NAMES.split()
    return f"cap_{names[bit]}" if bit < len(names) else f"bit {bit}"


def judge_namespaces(host: Host, *, works: bool | None) -> Finding:
    """Judge user namespaces, in which everybody but a whole root builds.

    ``works`` is None where nothing was tried.
    """
    name, limit = "user namespaces", host.user_namespace_limit
    if works is None and limit != 0:
        return differs(name, "not tried: there is no unshare program")
    if works:
        return fine(name, f"usable (limit {limit})" if limit is not None else "usable")
    value = "switched off (user.max_user_namespaces = 0)" if limit == 0 else "unshare -U is refused"
    if host.uid == 0 and not host.crippled_root:
        return differs(name, f"{value}; root needs none")
    return broken(name, value, _mend_namespaces(host))


def _mend_namespaces(host: Host) -> str:
    """Return what lets user namespaces, over a restart too: the settings that this kernel has."""
    if not host.switches:
        return "no setting of this kernel forbids it, so a container or a security module does: ask its administrator"
    words = " ".join(host.switches)
    return f"root: printf '%s\\n' {words} >/etc/sysctl.d/90-user-namespaces.conf; sysctl --system\n(or: apptainer-suid)"


def judge_ids(host: Host) -> Finding:
    """Judge the user's ranges in /etc/subuid and /etc/subgid: builds need ID_COUNT ids of each."""
    name = "subuid, subgid"
    if not host.missing_ids and host.subuid is not None:
        return fine(name, f"{host.subuid[1]} ids from {host.subuid[0]}")
    files = " and ".join(host.missing_ids)
    value = f"no range of {ID_COUNT} ids for {host.user} in {files}"
    if host.uid == 0 and not host.crippled_root:
        return differs(name, f"{value}; root needs none")
    return broken(name, value, host.ids_remedy)


def judge_fuse(host: Host) -> Finding:
    """Judge /dev/fuse, through which everybody but a whole root mounts images."""
    if host.fuse:
        return fine("/dev/fuse", "usable")
    if host.uid == 0 and not host.crippled_root:
        return differs("/dev/fuse", "cannot be opened; root needs none")
    if host.crippled_root:
        value = "cannot be opened: images cannot be run"
        return broken("/dev/fuse", value, FUSE_MEND)
    return differs(
        "/dev/fuse",
        "cannot be opened: images are unpacked before each run, which is slow",
        FUSE_MEND,
    )
