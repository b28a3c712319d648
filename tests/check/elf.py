"""Small ELF files that hold nothing but a dynamic section, and the functions of the probe that reads them."""

from __future__ import annotations

import struct
import types
from collections.abc import Sequence

from envbuild.check.plan import ProbeRequest
from envbuild.check.probe_runner import probe_source

NEEDED, STRTAB, SONAME, RPATH, RUNPATH = 1, 5, 14, 15, 29
X86_64 = 62


def shared_object(
    needed: Sequence[str] = (),
    *,
    soname: str = "",
    rpath: str = "",
    runpath: str = "",
    bits: int = 64,
    order: str = "<",
    machine: int = X86_64,
    address: int = 0x10000,
) -> bytes:
    """Return the bytes of a shared object; ``address`` is where its one segment claims to be loaded."""
    strings = b"\0"
    tags: list[tuple[int, int]] = []
    for tag, text in [(NEEDED, n) for n in needed] + [
        (SONAME, soname),
        (RPATH, rpath),
        (RUNPATH, runpath),
    ]:
        if text:
            tags.append((tag, len(strings)))
            strings += text.encode() + b"\0"
    entry, head, segment = ("QQ", 64, 56) if bits == 64 else ("II", 52, 32)
    dynamic_at = head + 2 * segment
    strings_at = dynamic_at + (len(tags) + 2) * struct.calcsize(order + entry)
    dynamic = b"".join(
        struct.pack(order + entry, *pair)
        for pair in [*tags, (STRTAB, address + strings_at), (0, 0)]
    )
    size = strings_at + len(strings)
    ident = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    if bits == 64:
        header = ident + struct.pack(
            order + "HHIQQQIHHHHHH", 3, machine, 1, 0, head, 0, 0, head, segment, 2, 0, 0, 0
        )
        table = struct.pack(order + "IIQQQQQQ", 1, 4, 0, address, address, size, size, 4096)
        table += struct.pack(
            order + "IIQQQQQQ",
            2,
            4,
            dynamic_at,
            address + dynamic_at,
            0,
            len(dynamic),
            len(dynamic),
            8,
        )
    else:
        header = ident + struct.pack(
            order + "HHIIIIIHHHHHH", 3, machine, 1, 0, head, 0, 0, head, segment, 2, 0, 0, 0
        )
        table = struct.pack(order + "IIIIIIII", 1, 0, address, address, size, size, 4, 4096)
        table += struct.pack(
            order + "IIIIIIII",
            2,
            dynamic_at,
            address + dynamic_at,
            0,
            len(dynamic),
            len(dynamic),
            4,
            4,
        )
    return header + table + dynamic + strings


def library_probe() -> types.SimpleNamespace:
    """Load the probe's functions without letting it answer."""
    source = probe_source(
        ProbeRequest(name="libraries_probe", parts=("elf", "loader", "symbols"))
    ).removesuffix("main()\n")
    space: dict[str, object] = {"PARAMETERS": {"driver": []}}
    exec(compile(f"import os, sys\n{source}", "libraries_probe", "exec"), space)  # noqa: S102
    return types.SimpleNamespace(**space)
