"""Comes after loader: symbols that an object takes from a library of a package without them.

An extension is linked with one release of what it needs.  The loader finds the library of another
release by its name, and ends with "undefined symbol" where the extension is loaded, often long
after the import of its package.
"""

import fnmatch
import functools
import mmap
import re

DT_HASH = 4
DT_SYMTAB = 6
DT_GNU_HASH = 0x6FFFFEF5
MOST_SYMBOLS = 1000000
LONGEST_NAME = 65536
LONGEST_CHAIN = 4096
WORD = struct.Struct("<I").unpack_from
ROW = struct.Struct("<IBBHQQ").unpack_from
NUMBERS = re.compile(r"[0-9]+")
FROM_ELSEWHERE = re.compile(rb"_?Py|cu[A-Z]|nvml|NvEnc")
"""How names begin that Python itself has, or a library of the driver, which is in no image."""
OF_CPP = b"_Z"
"""How names of C++ begin: NVIDIA's libraries have none for others."""


class Symbols(object):
    """The dynamic symbols of an object of 64 bits; Unreadable for others."""

    def __init__(self, elf):
        if elf.machine[0] != 2 or elf.tables is None:
            raise Unreadable("it has no table of symbols")
        _, self.texts, place, values = elf.tables
        self.rows = place(values[DT_SYMTAB])
        with open(elf.path, "rb") as file:
            self.raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.defined = None
        if DT_GNU_HASH in values:
            start = place(values[DT_GNU_HASH])
            self.count, self.first, blooms = struct.unpack_from("<III", self.raw, start)
            self.buckets = start + 16 + 8 * blooms
            self.chains = self.buckets + 4 * (self.count - self.first)
        else:
            (self.first,) = WORD(self.raw, place(values[DT_HASH]) + 4)
            self.defined = {self.name(row) for row in self.list_first() if row[3]}

    def list_first(self):
        """The rows before those that the GNU hash table lists; without one all."""
        for number in range(1, min(self.first, MOST_SYMBOLS)):
            yield ROW(self.raw, self.rows + 24 * number)

    def name(self, row):
        start = self.texts + row[0]
        return self.raw[start : self.raw.find(b"\0", start, start + LONGEST_NAME)]

    def list_wanted(self):
        """Names that some other object has to have; a weak one may be nowhere."""
        for row in self.list_first():
            if row[3] == 0 and row[1] >> 4 == 1:
                yield self.name(row)

    def has(self, name):
        """Whether a name is defined here."""
        if self.defined is not None:
            return name in self.defined
        code = hash_of(name)
        (number,) = WORD(self.raw, self.buckets + 4 * (code % self.count))
        last = 0
        if number >= self.first:
            last = number + LONGEST_CHAIN
        while number < last:
            (found,) = WORD(self.raw, self.chains + 4 * number)
            row = ROW(self.raw, self.rows + 24 * number)
            if found | 1 == code | 1 and row[3] and self.name(row) == name:
                return True
            if found & 1:
                break
            number += 1
        return False


@functools.lru_cache(maxsize=None)
def hash_of(name):
    code = 5381
    for byte in bytearray(name):
        code = (code * 33 + byte) & 0xFFFFFFFF
    return code


def owner_of(path, search):
    """The package that an object belongs to, by its folder; else its folder in LD_LIBRARY_PATH."""
    found = re.match(r".*/(?:site|dist)-packages/((?:nvidia/)?[^/]+?)(?:\.libs)?/", path)
    folder = os.path.dirname(path)
    if found or folder not in search.library_path:
        return found and found.group(1)
    return folder


class SymbolSearch(object):
    """Looks names up as the loader would, in all that an object ``needs``; reads each file once."""

    def __init__(self, search, needs):
        self.search = search
        self.needs = needs
        self.tables = {}
        self.homes = {}
        needed = search.elf(sys.executable).needed + ["libm.so.6", "libdl.so.2"]
        self.python = [sys.executable] + list(filter(None, map(search.find, needed)))

    def read(self, path):
        if path not in self.tables:
            try:
                self.tables[path] = Symbols(self.search.elf(path))
            except (Unreadable, AttributeError, KeyError, TypeError) + BROKEN:
                self.tables[path] = None
        return self.tables[path]

    def find_all(self, path):
        """The objects that one needs, and what they need; None where a library is nowhere."""
        found = list(self.python)
        queue = [path]
        while queue:
            for soname, place in self.needs.get(queue.pop(), {}).items():
                if place is None and not from_driver(soname):
                    return None
                if place and place not in found:
                    found.append(place)
                    queue.append(place)
        return found

    def list_lost(self, path, others):
        """Names that nothing which an object needs has, nor what else those packages bring."""
        own = self.read(path)
        paths = self.find_all(path) or ()
        tables = [self.read(one) for one in paths]
        if own is None or not tables or None in tables:
            return []
        left = [name for name in own.list_wanted() if not self.has(name, tables)]
        left = [name for name in left if not FROM_ELSEWHERE.match(name)]
        more = list(filter(None, map(self.read, others if left else ())))
        return [name for name in left if not self.has(name, more)]

    def has(self, name, tables):
        """Whether one of several objects has a name; the last one is asked first."""
        if self.homes.get(name) in tables:
            return True
        for table in tables:
            if table.has(name):
                self.homes[name] = table
                return True
        return False


def lost_symbols(search, objects, needs):
    """Symbols that objects take from other packages, and that those do not have.

    Rows of the object, the symbol and the package. Of objects that differ in numbers only, for
    several releases of the other package, one is enough.
    """
    look = SymbolSearch(search, needs)
    by_owner = {}
    found = []
    fine = set()
    for path in objects:
        by_owner.setdefault(owner_of(path, search), []).append(path)
    for path in objects:
        mine = owner_of(path, search)
        places = filter(None, needs.get(real_path(path), {}).values())
        owners = {owner_of(place, search) for place in places} - {mine, None}
        if not owners:
            continue
        others = list(by_owner[mine])
        for owner in owners:
            others += by_owner.get(owner, ())
        try:
            names = look.list_lost(real_path(path), others)
        except (ZeroDivisionError,) + BROKEN:
            continue  # a table that is damaged says nothing
        if not names:
            fine.add(NUMBERS.sub("", path))
            continue
        if names[0].startswith(OF_CPP):
            owners = {one for one in owners if not one.startswith("nvidia/")} or {mine}
        found.append([path, names[0].decode("utf-8", "replace"), max(owners)])
    return [row for row in found if NUMBERS.sub("", row[0]) not in fine]


def unnamed_objects(idle, objects, missing):
    """Idle objects without one of CUDA's libraries that no other object names, to open them."""
    lacking = set()
    for soname, paths in missing.items():
        if any(fnmatch.fnmatch(soname, pattern) for pattern in PARAMETERS["families"]):
            lacking.update(paths)
    found = [path for path in idle if path in lacking]
    return [path for path in found if not is_in_objects(path, objects)]


def is_in_objects(path, objects):
    """Tell whether the name of a shared object stands in another one."""
    stem = os.path.basename(path).split(".so")[0]
    name = stem.encode() + b".so"
    for other in objects:
        if other == path or not os.path.getsize(other):
            continue
        with open(other, "rb") as file:
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if whole.find(name) >= 0:
                return True
    return False
