"""Whether every shared object below site-packages finds the libraries it needs, without running any of them.

Follows ld.so(8): DT_RPATH (where there is no DT_RUNPATH), LD_LIBRARY_PATH, DT_RUNPATH, /etc/ld.so.cache, default
folders; $ORIGIN, $LIB and $PLATFORM are replaced.  A library that is only found elsewhere below site-packages counts
as "preloaded": its package loads it itself before (wheels of PyTorch, TensorFlow plug-ins, NVIDIA's own).

Parameters: ``wanted`` (import name of a framework -> sonames that some release of it opens at run time), ``families``
(shell patterns of libraries of which every copy is listed), ``toolkits`` (patterns of folders where CUDA is installed).
"""

import fnmatch
import glob
import platform
import re
import site
import struct
import sysconfig
import time

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 14, 15, 29
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
MOST_VERSIONS = 4096
BIGGEST_TABLE = 64 << 20
BIGGEST_TREE = 2000000
SHOWN = 8
TOOLS = ("ptxas", "libdevice.10.bc")  # XLA and triton compile with them


class Unreadable(Exception):
    pass


class Elf(object):
    """Dynamic section of one ELF file."""

    __slots__ = ("machine", "needed", "path", "rpath", "runpath", "soname", "tables")

    def __init__(self, path):
        self.path, self.tables = path, None
        with open(path, "rb") as file:
            try:
                self._parse(file)
            except (struct.error, IndexError, OverflowError, MemoryError, ValueError, OSError):
                raise Unreadable("it is cut off")

    def _parse(self, file):
        head = file.read(64)
        if head[:4] != b"\x7fELF":
            raise Unreadable("no ELF file")
        wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
        self.machine = (head[4],) + struct.unpack_from(order + "H", head, 18)
        if wide:
            (offset,) = struct.unpack_from(order + "Q", head, 32)
            size, count = struct.unpack_from(order + "HH", head, 54)
        else:
            (offset,) = struct.unpack_from(order + "I", head, 28)
            size, count = struct.unpack_from(order + "HH", head, 42)
        file.seek(offset)
        table = file.read(size * count)
        loads, dynamic = [], None
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
        self.needed, self.rpath, self.runpath, self.soname = [], "", "", None
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
        for tag, value in tags:
            if tag == DT_NEEDED:
                self.needed.append(text_at(file, base + value))
            elif tag == DT_SONAME:
                self.soname = text_at(file, base + value)
            elif tag == DT_RPATH:
                self.rpath = text_at(file, base + value)
            elif tag == DT_RUNPATH:
                self.runpath = text_at(file, base + value)

    def versions_needed(self):
        """library -> names of the symbol versions that it must have."""
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
                at += following
        return found

    def versions_defined(self):
        """Names of the symbol versions that this library has."""
        found = set()
        for file, at, count, order, base in self._versions(DT_VERDEF, DT_VERDEFNUM):
            for _ in range(count):
                file.seek(at)
                _, _, _, _, _, first, following = struct.unpack(order + "HHHHIII", file.read(20))
                file.seek(at + first)
                found.add(text_at(file, base + struct.unpack(order + "I", file.read(4))[0]))
                at += following
        return found

    def _versions(self, table, number):
        """The open file, where a table of versions starts and how many rows it has; at most one item."""
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


def read_cache(path="/etc/ld.so.cache"):
    """soname -> paths from the loader's cache (glibc's "new" format, also where it follows the old one)."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError:
        return {}
    start = raw.find(b"glibc-ld.so.cache1.1")
    if start < 0:
        return {}
    found = {}
    try:
        (count,) = struct.unpack_from("=I", raw, start + 20)
        for number in range(min(count, 1 << 20)):
            _, key, value, _, _ = struct.unpack_from("=iIIIQ", raw, start + 48 + 24 * number)
            name, target = (
                raw[start + at : raw.index(b"\0", start + at)].decode("utf-8", "replace")
                for at in (key, value)
            )
            found.setdefault(name, []).append(target)
    except (struct.error, ValueError):
        pass
    return found


def default_folders():
    multiarch = sysconfig.get_config_var("MULTIARCH") or "%s-linux-gnu" % platform.machine()
    return [
        "/lib/" + multiarch,
        "/usr/lib/" + multiarch,
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    ]


def expand(paths, origin):
    folders = []
    for entry in paths.split(":"):
        for name, value in (("ORIGIN", origin), ("LIB", "lib64"), ("PLATFORM", platform.machine())):
            entry = entry.replace("${%s}" % name, value).replace("$" + name, value)
        if entry:
            folders.append(os.path.normpath(entry))
    return folders


class Search(object):
    """Finds libraries as the loader would; every file is opened once."""

    def __init__(self):
        self.known = {}
        self.machine = Elf(os.path.realpath("/proc/self/exe")).machine
        self.cache = read_cache()
        self.library_path = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
        self.defaults = default_folders()
        self.listed = {}
        self.defined = {}

    def elf(self, path):
        if path not in self.known:
            try:
                self.known[path] = Elf(path)
            except (Unreadable, OSError) as error:
                self.known[path] = error
        return self.known[path]

    def lacks(self, path, versions):
        """Symbol versions that a library does not have; none for one that has no versions at all."""
        if path not in self.defined:
            try:
                self.defined[path] = self.elf(path).versions_defined()
            except (AttributeError, OSError, struct.error):
                self.defined[path] = set()
        return [name for name in versions if self.defined[path] and name not in self.defined[path]]

    def fits(self, path):
        elf = self.elf(path)
        return isinstance(elf, Elf) and elf.machine == self.machine

    def names(self, folder):
        if folder not in self.listed:
            try:
                self.listed[folder] = set(os.listdir(folder))
            except OSError:
                self.listed[folder] = set()
        return self.listed[folder]

    def find(self, soname, rpath=(), runpath=()):
        if "/" in soname:
            return soname if os.path.exists(soname) else None
        before = [] if runpath else list(rpath)
        for folder in before + self.library_path + list(runpath):
            if soname in self.names(folder) and self.fits(os.path.join(folder, soname)):
                return os.path.join(folder, soname)
        for path in self.cache.get(soname, ()):
            if os.path.exists(path) and self.fits(path):
                return path
        for folder in self.defaults:
            if soname in self.names(folder) and self.fits(os.path.join(folder, soname)):
                return os.path.join(folder, soname)
        return None


def site_folders():
    folders = [f for f in sys.path if os.path.basename(f) in ("site-packages", "dist-packages")]
    for folder in list(getattr(site, "getsitepackages", lambda: [])()):
        if folder not in folders:
            folders.append(folder)
    real = []
    for folder in folders:
        if os.path.isdir(folder) and os.path.realpath(folder) not in [
            os.path.realpath(f) for f in real
        ]:
            real.append(folder)
    return real


def shared_objects(folders):
    """Every file below the folders that is called like a shared object, and the tools among them by name."""
    found, tools, count = [], {name: [] for name in TOOLS}, 0
    stack = list(folders)
    while stack and count < BIGGEST_TREE:
        try:
            entries = sorted(os.scandir(stack.pop()), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            count += 1
            if entry.is_dir(follow_symlinks=False):
                stack.append(entry.path)
            elif (entry.name.endswith(".so") or ".so." in entry.name) and entry.is_file():
                found.append(entry.path)
            elif entry.name in tools:
                tools[entry.name].append(entry.path)
    return found, tools


def compilers():
    """What Triton and Inductor build their own code with when a program runs: compilers on PATH, and Python's header."""
    folders = [folder for folder in os.environ.get("PATH", "").split(":") if folder]

    def first(*names):
        places = [os.path.join(folder, name) for name in names for folder in folders]
        return [place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)][
            :1
        ]

    includes = [sysconfig.get_paths()["include"]] + [
        place for place in os.environ.get("CPATH", "").split(":") if place
    ]
    headers = [os.path.join(place, "Python.h") for place in includes]
    return {
        "gcc": first("gcc", "clang", "cc"),
        "g++": first("g++", "clang++", "c++"),
        "Python.h": [header for header in headers if os.path.isfile(header)],
    }


def other_tools(tools):
    """The same tools on PATH and in the toolkit's own folder, where XLA looks too."""
    roots = sorted(root for pattern in PARAMETERS["toolkits"] for root in glob.glob(pattern))
    places = [
        os.path.join(folder, "ptxas") for folder in os.environ.get("PATH", "").split(":") if folder
    ]
    places += [os.path.join(root, "bin/ptxas") for root in roots]
    places += [os.path.join(root, "nvvm/libdevice/libdevice.10.bc") for root in roots]
    for place in places:
        name = os.path.basename(place)
        if os.path.isfile(place) and place not in tools[name]:
            tools[name].append(place)
    return tools


def survey(search, objects):
    """What is missing, what is only found elsewhere below site-packages, and what could not be read."""
    inside = {}
    for path in objects:
        inside.setdefault(os.path.basename(path), path)
        elf = search.elf(path)
        if isinstance(elf, Elf) and elf.soname:
            inside.setdefault(elf.soname, path)
    missing, preloaded, damaged, outdated, foreign = {}, {}, [], {}, 0
    own = set(objects)
    queue, seen = list(objects), set(objects)
    while queue:
        path = queue.pop()
        elf = search.elf(path)
        if not isinstance(elf, Elf):
            if path in own and "no ELF" not in str(elf):
                damaged.append([path, str(elf)])
            continue
        if elf.machine != search.machine:
            foreign += 1
            continue
        origin = os.path.dirname(os.path.realpath(path))
        rpath, runpath = expand(elf.rpath, origin), expand(elf.runpath, origin)
        versions = needed_versions(elf) if path in own else {}
        for soname in elf.needed:
            place = search.find(soname, rpath, runpath)
            for version in search.lacks(place, versions.get(soname, ())) if place else ():
                outdated.setdefault(soname, {}).setdefault(version, []).append(path)
            if place is None:
                where = preloaded if soname in inside else missing
                where.setdefault(soname, []).append(path)
            elif place not in seen:
                seen.add(place)
                queue.append(place)
    return missing, preloaded, damaged, outdated, foreign


def needed_versions(elf):
    try:
        return elf.versions_needed()
    except (OSError, struct.error):
        return {}


def wanted_libraries(search, objects, names, framework):
    """Where the libraries that a framework opens at run time are found: by its own RPATHs, then as all others."""
    rpath = []
    mark = "/%s/" % framework
    for path in objects:
        if mark in path:
            elf = search.elf(path)
            if isinstance(elf, Elf):
                for folder in expand(
                    elf.rpath + ":" + elf.runpath, os.path.dirname(os.path.realpath(path))
                ):
                    if folder not in rpath:
                        rpath.append(folder)
    places = {}
    for name in names:
        place = search.find(name, rpath)
        places[name] = {"path": place, "real": os.path.realpath(place) if place else None}
    return places


def copies(search, objects, patterns):
    """Every copy of a family of libraries: below site-packages, in LD_LIBRARY_PATH, the cache and default folders."""
    found = {}
    wanted = [(pattern, re.compile(fnmatch.translate(pattern))) for pattern in patterns]
    paths = list(objects)
    for folder in search.library_path + search.defaults:
        paths += [os.path.join(folder, name) for name in search.names(folder)]
    for targets in search.cache.values():
        paths += targets
    for path in paths:
        for pattern, compiled in wanted:
            if compiled.match(os.path.basename(path)) and os.path.exists(path):
                found.setdefault(pattern, set()).add(os.path.realpath(path))
    return {pattern: sorted(places) for pattern, places in sorted(found.items())}


def main():
    started = time.time()
    search = Search()
    folders = site_folders()
    objects, tools = shared_objects(folders)
    missing, preloaded, damaged, outdated, foreign = survey(search, objects)
    answer(
        {
            "folders": folders,
            "objects": len(objects),
            "foreign": foreign,
            "damaged": damaged[:SHOWN],
            "damaged_count": len(damaged),
            "missing": {name: sorted(paths) for name, paths in missing.items()},
            "outdated": {
                name: {version: sorted(paths)[:SHOWN] for version, paths in versions.items()}
                for name, versions in sorted(outdated.items())
            },
            "preloaded": {name: sorted(paths)[:SHOWN] for name, paths in preloaded.items()},
            "wanted": {
                framework: wanted_libraries(search, objects, names, framework)
                for framework, names in sorted(PARAMETERS["wanted"].items())
            },
            "copies": copies(search, objects, PARAMETERS["families"]),
            "tools": dict(other_tools(tools), **compilers()),
            "library_path": search.library_path,
            "cached": len(search.cache),
            "seconds": round(time.time() - started, 3),
        }
    )


main()
