"""Run a command without a network, whatever the network of the build.

It gets an empty network of its own. Where the kernel gives none (most engines), system calls are
filtered: there are no sockets then but local ones.
"""

import ctypes
import os
import platform
import struct
import sys

NEW_NETWORK = 0x40000000  # of sched.h
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2  # of prctl.h and seccomp.h
# what audit.h calls a machine, and its number of socket(), hexadecimal
MACHINES = {}
# what lets a process open local sockets only (bpf_common.h): code, jumps if true and if not, value
PROGRAM = """\
20 0 0 4          load what the system call's machine is called
15 0 7 {machine}  another than this one: refuse
20 0 0 0          load the number of the system call
35 5 0 40000000   one of x32: refuse
15 4 0 1a9        io_uring_setup(), which opens sockets too: refuse
15 0 4 {socket}   not socket(): allow
20 0 0 10         load the family of the socket
15 2 0 1          AF_UNIX: allow
15 1 0 10         AF_NETLINK: allow
06 0 0 50061      refuse: EAFNOSUPPORT
06 0 0 7fff0000   allow
"""


def socket_filter(machine):
    """Return the program as the kernel takes it."""
    audited, socket = MACHINES[machine]
    rows = PROGRAM.format(machine=audited, socket=socket).splitlines()
    words = [[int(word, 16) for word in row.split()[:4]] for row in rows]
    return b"".join(struct.pack("=HBBI", *row) for row in words)


def leave_network(libc):
    """Leave the network of the build; tell whether that could be done."""
    if libc.unshare(NEW_NETWORK) == 0:
        return True
    machine = platform.machine()
    if machine not in MACHINES or libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    code = ctypes.create_string_buffer(socket_filter(machine))
    size = (len(code) - 1) // 8
    program = ctypes.create_string_buffer(struct.pack("@HP", size, ctypes.addressof(code)))
    return libc.prctl(SET_SECCOMP, FILTER, program, 0, 0) == 0


def main(*command):
    """Leave the network, and become the command."""
    if not leave_network(ctypes.CDLL(None)):
        raise SystemExit("nothing here can leave the build's network: build with envbuild make")
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(*sys.argv[1:])
