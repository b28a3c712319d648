"""Comes before probes that read shared objects: the dynamic section of ELF files (elf(5))."""

import os
import struct

PT_LOAD = 1
PT_DYNAMIC = 2
DT_NEEDED = 1
DT_STRTAB = 5
DT_SONAME = 14
DT_RPATH = 15
DT_RUNPATH = 29
DT_TEXTS = (DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH)
DT_VERDEF = 0x6FFFFFFC
DT_VERDEFNUM = 0x6FFFFFFD
DT_VERNEED = 0x6FFFFFFE
DT_VERNEEDNUM = 0x6FFFFFFF
MOST_VERSIONS = 4096
BIGGEST_TABLE = 64 << 20
BROKEN = (struct.error, IndexError, OverflowError, MemoryError, ValueError, OSError)
"""What reading a damaged file raises."""


class Unreadable(Exception):
    pass


class Elf(object):
    """Dynamic section of one ELF file."""

    __slots__ = ("machine", "needed", "path", "rpath", "runpath", "soname", "tables")

    def __init__(self, path):
        self.path = path
        self.tables = None
        with open(path, "rb") as file:
            try:
                self._parse(file)
            except BROKEN:
                raise Unreadable("it is cut off")

    def _parse(self, file):
        head = file.read(64)
        if head[:4] != b"\x7fELF":
            raise Unreadable("no ELF file")
        wide = head[4] == 2
        order = "<" if head[5] == 1 else ">"
        self.machine = (head[4],) + struct.unpack_from(order + "H", head, 18)
        if wide:
            (offset,) = struct.unpack_from(order + "Q", head, 32)
            size, count = struct.unpack_from(order + "HH", head, 54)
        else:
            (offset,) = struct.unpack_from(order + "I", head, 28)
            size, count = struct.unpack_from(order + "HH", head, 42)
        file.seek(offset)
        table = file.read(size * count)
        loads = []
        dynamic = None
        for number in range(count):
            if wide:
                kind, _, where, address, _, length = struct.unpack_from(
                    order + "IIQQQQ", table, number * size
                )
            else:
                kind, where, address, _, length = struct.unpack_from(
                    order + "IIIII", table, number * size
                )
            if kind == PT_LOAD:
                loads.append((address, length, where))
            elif kind == PT_DYNAMIC:
                dynamic = (where, length)
        size = os.fstat(file.fileno()).st_size
        if any(where + length > size for _, length, where in loads):
            raise Unreadable("it is cut off")
        self.needed = []
        self.rpath = ""
        self.runpath = ""
        self.soname = None
        if dynamic is None:
            return
        self._read_dynamic(file, order, "QQ" if wide else "II", loads, dynamic)

    def _read_dynamic(self, file, order, entry, loads, dynamic):
        file.seek(dynamic[0])
        raw = file.read(min(dynamic[1], BIGGEST_TABLE))
        step = struct.calcsize(order + entry)
        tags = []
        for at in range(0, len(raw) - step + 1, step):
            tag, value = struct.unpack_from(order + entry, raw, at)
            if tag == 0:
                break
            tags.append((tag, value))
        values = dict(tags)
        if DT_STRTAB not in values:
            return

        def place(virtual):
            return next(
                (w + virtual - a for a, length, w in loads if a <= virtual < a + length), None
            )

        base = place(values[DT_STRTAB])
        if base is None:
            raise Unreadable("its string table is outside the file")
        self.tables = (order, base, place, values)
        texts = [(tag, text_at(file, base + value)) for tag, value in tags if tag in DT_TEXTS]
        self.needed = [text for tag, text in texts if tag == DT_NEEDED]
        named = dict(texts)
        self.soname = named.get(DT_SONAME)
        self.rpath = named.get(DT_RPATH, "")
        self.runpath = named.get(DT_RUNPATH, "")

    def versions_needed(self):
        """library -> names of the symbol versions that it must have.  Raises what BROKEN has."""
        found = {}
        for file, at, count, order, base in self._versions(DT_VERNEED, DT_VERNEEDNUM):
            for _ in range(count):
                file.seek(at)
                _, names, library, first, following = struct.unpack(order + "HHIII", file.read(16))
                inner = at + first
                for _ in range(min(names, MOST_VERSIONS)):
                    file.seek(inner)
                    _, flags, _, name, step = struct.unpack(order + "IHHII", file.read(16))
                    if not flags & 2:  # VER_FLG_WEAK
                        found.setdefault(text_at(file, base + library), []).append(
                            text_at(file, base + name)
                        )
                    inner += step
                    if not step:
                        break
                at += following
                if not following:
                    break
        return found

    def versions_defined(self):
        """Names of the symbol versions that this library has.  Raises what BROKEN has."""
        found = set()
        for file, at, count, order, base in self._versions(DT_VERDEF, DT_VERDEFNUM):
            for _ in range(count):
                file.seek(at)
                _, _, _, _, _, first, following = struct.unpack(order + "HHHHIII", file.read(20))
                file.seek(at + first)
                found.add(text_at(file, base + struct.unpack(order + "I", file.read(4))[0]))
                at += following
                if not following:
                    break
        return found

    def _versions(self, table, number):
        """The open file, where a table of versions starts and how many rows it has.

        At most one item.
        """
        if self.tables is None:
            return
        order, base, place, values = self.tables
        start = place(values[table]) if table in values else None
        if start is not None:
            with open(self.path, "rb") as file:
                yield file, start, min(values.get(number, 0), MOST_VERSIONS), order, base


def text_at(file, at):
    file.seek(at)
    return file.read(4096).split(b"\0", 1)[0].decode("utf-8", "replace")
