"""Whether every shared object below site-packages finds the libraries it needs, without running any of them.

Follows ld.so(8): DT_RPATH (where there is no DT_RUNPATH), LD_LIBRARY_PATH, DT_RUNPATH, /etc/ld.so.cache, default
folders; $ORIGIN, $LIB and $PLATFORM are replaced.  A library that is only found elsewhere below site-packages counts
as "preloaded": its package loads it itself before (wheels of PyTorch, TensorFlow plug-ins, NVIDIA's own).

Parameters: ``wanted`` (import name of a framework -> ``openers``, shell patterns of the objects that open libraries at
run time, the first that is there counts; ``before``, objects that are loaded before; ``names``, the sonames that some
release opens), ``families`` (shell patterns of libraries of which every copy is listed), ``toolkits`` (patterns of
folders where CUDA is installed), ``driver`` (patterns of sonames that come with the driver).
"""

import fnmatch
import glob
import mmap
import platform
import re
import site
import struct
import subprocess
import sysconfig
import time

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 14, 15, 29
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
MOST_VERSIONS = 4096
BIGGEST_TABLE = 64 << 20
BIGGEST_TREE = 2000000
SHOWN = 8
RUNTIME_LIBRARIES = "/.singularity.d/libs"
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

    def find(self, soname, rpath=(), runpath=(), library_path=None):
        if "/" in soname:
            return soname if os.path.exists(soname) else None
        before = [] if runpath else list(rpath)
        given = self.library_path if library_path is None else library_path
        for folder in before + given + list(runpath):
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
    missing, preloaded, damaged, outdated, foreign, needers = {}, {}, [], {}, 0, {}
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
            else:
                needers.setdefault(os.path.realpath(place), []).append(path)
                if place not in seen:
                    seen.add(place)
                    queue.append(place)
    lacking = {path for paths in missing.values() for path in paths}
    needed_by = {path: needers.get(os.path.realpath(path), []) for path in sorted(lacking)}
    return missing, preloaded, damaged, outdated, foreign, needed_by


def idle_objects(needed_by, folders):
    """Objects that lack a library and that nothing loads: no module, needed by none, named by no other file.

    What NVIDIA's wheels hold is opened by others, so it counts.
    """
    alone = [
        path
        for path, needers in needed_by.items()
        if not needers and "/nvidia/" not in path and not is_module(path)
    ]
    return [path for path in alone if not is_named(path, folders)]


def for_other_pythons(objects):
    """Modules of which a package has builds for other Pythons only: the wheel was not made for this one."""
    stems, here = {}, set()
    for path in objects:
        folder, name = os.path.split(path)
        found = re.match(r"(\w+)\.(?:cpython-(\d+)-|(abi3)\.)?.*so$", name)
        if found is None:
            continue
        stem = (folder, found.group(1))
        if found.group(2) is None or found.group(2) == "%d%d" % sys.version_info[:2]:
            here.add(stem)
        else:
            stems.setdefault(stem, path)
    return sorted(path for stem, path in stems.items() if stem not in here)


def is_module(path):
    """Tell whether Python imports a shared object, or a package opens it as its own: by its name, else by its start."""
    name = os.path.basename(path)
    if not name.startswith("lib") or ".cpython-" in name or name.endswith(".abi3.so"):
        return True
    try:
        with open(path, "rb") as file:
            return b"\0PyInit_" in file.read(BIGGEST_TABLE)
    except OSError:
        return True


def is_named(path, folders):
    """Tell whether something of the same package names a shared object, to open it."""
    stem = re.escape(os.path.basename(path).split(".so")[0].replace("lib", "", 1)).encode()
    word = re.compile(rb"\b(?:lib)?" + stem + rb"\b")
    for folder in folders:
        if not path.startswith(folder + "/"):
            continue
        top = os.path.join(folder, path[len(folder) + 1 :].split("/", 1)[0])
        for parent, _, names in os.walk(top if os.path.isdir(top) else folder):
            if any(holds(os.path.join(parent, name), word, path) for name in names):
                return True
    return False


def holds(place, word, path):
    """Tell whether a Python file names an object, or another object has its whole name in it (dlopen)."""
    if place == path or not os.path.isfile(place):
        return False
    try:
        with open(place, "rb") as file:
            if place.endswith((".py", ".json")):
                return word.search(file.read()) is not None
            if not (place.endswith(".so") or ".so." in place):
                return False
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            try:
                return whole.find(b"\0" + os.path.basename(path).encode() + b"\0") >= 0
            finally:
                whole.close()
    except (OSError, ValueError):
        return False


def needed_versions(elf):
    try:
        return elf.versions_needed()
    except (OSError, struct.error):
        return {}


class Process(object):
    """What one process has loaded, by soname: ld.so(8) for NEEDED libraries, dlopen(3) for opened ones.

    ``library_path`` takes the place of LD_LIBRARY_PATH.
    """

    def __init__(self, search, library_path):
        self.search, self.library_path = search, library_path
        self.loaded, self.loader = {}, {}

    def find(self, soname, caller):
        """Where the loader finds a library for the object that asks for it; what is loaded already comes first."""
        if soname in self.loaded:
            return self.loaded[soname]
        elf = self.search.elf(caller) if caller else None
        if not isinstance(elf, Elf):
            return self.search.find(soname, library_path=self.library_path)
        # DT_RPATH holds for the whole chain of loaders; DT_RUNPATH for its own object only, and switches it off
        rpath, one = [], caller
        while one and not elf.runpath:
            mine = self.search.elf(one)
            if isinstance(mine, Elf) and not mine.runpath:
                rpath += expand(mine.rpath, os.path.dirname(os.path.realpath(one)))
            one = self.loader.get(one)
        runpath = expand(elf.runpath, os.path.dirname(os.path.realpath(caller)))
        return self.search.find(soname, rpath, runpath, self.library_path)

    def load(self, path, caller=None):
        """Load an object and what it needs; returns the names that are not found, with who needs them."""
        lost, queue = [], [(path, caller)]
        while queue:
            path, caller = queue.pop(0)
            if path in self.loader:
                continue
            self.loader[path] = caller
            elf = self.search.elf(path)
            if not isinstance(elf, Elf):
                continue
            for name in (elf.soname, os.path.basename(path)):
                if name:
                    self.loaded.setdefault(name, path)
            for soname in elf.needed:
                place = self.find(soname, path)
                if place:
                    queue.append((place, path))
                elif not from_driver(soname):
                    lost.append([soname, path])
        return lost

    def open(self, soname, caller):
        """Open a library as dlopen(3) does: all that it needs or nothing; returns (path or None, what is lost)."""
        place = self.find(soname, caller)
        if place is None:
            return None, []
        before = dict(self.loaded), dict(self.loader)
        lost = self.load(place, caller)
        if lost:
            self.loaded, self.loader = before
        return place, lost


def from_driver(soname):
    return any(fnmatch.fnmatch(soname, pattern) for pattern in PARAMETERS["driver"])


def opened_libraries(search, objects, folders, row, library_path):
    """What a framework opens at run time: soname -> where it is found from the object that opens it."""
    process = Process(search, library_path)
    callers = [path for pattern in row["openers"] for path in under(objects, folders, pattern)]
    caller = callers[0] if callers else None
    for path in [one for pattern in row["before"] for one in under(objects, folders, pattern)]:
        process.load(path)
    if caller:
        process.load(caller)
    places = {}
    for name in row["names"]:
        place, lost = process.open(name, caller)
        real = os.path.realpath(place) if place else None
        places[name] = {"path": place, "real": real, "lost": lost[:SHOWN]}
    return places


def under(objects, folders, pattern):
    """Objects whose path below a folder of packages matches a shell pattern."""
    found = []
    for folder in folders:
        whole = os.path.join(glob.escape(folder), pattern)
        found += [path for path in glob.glob(whole) if path in objects or os.path.isfile(path)]
    return found


def wanted_libraries(search, objects, folders, row):
    """Where opened libraries are found, under both orders: ``nv`` where Apptainer 1.5 makes another choice.

    Where an image sets no LD_LIBRARY_PATH, --nv of Apptainer 1.5 puts every folder of its ldconfig there
    (action_script.sh), so that they come before RUNPATH.
    """
    places = opened_libraries(search, objects, folders, row, search.library_path)
    if any(folder != RUNTIME_LIBRARIES for folder in search.library_path):
        return places
    cached = sorted({os.path.dirname(path) for paths in search.cache.values() for path in paths})
    others = opened_libraries(search, objects, folders, row, cached)
    for name, place in places.items():
        if others[name]["real"] != place["real"]:
            place["nv"] = others[name]["real"]
    return places


def cudnn_versions(places):
    """path of a libcudnn -> its version, as it says itself: its file name seldom does."""
    found = {}
    for rows in places.values():
        for name, place in rows.items():
            for path in (place["real"], place.get("nv")):
                if name.startswith("libcudnn.so") and path and path not in found:
                    found[path] = ask_cudnn(path)
    return {path: version for path, version in found.items() if version}


def ask_cudnn(path):
    """Call cudnnGetVersion() in a process of its own; needs no GPU.  9.1.0 is 90100, 8.9.4 is 8904."""
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).cudnnGetVersion())"
    folder = os.path.dirname(path)
    try:
        text = subprocess.check_output(
            [sys.executable, "-S", "-E", "-c", code, path],
            stderr=subprocess.DEVNULL,
            env=dict(os.environ, LD_LIBRARY_PATH=folder),
            timeout=20,
        )
        number = int(text)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    step = 10000 if number >= 90000 else 1000
    return "%d.%d.%d" % (number // step, number % step // 100, number % 100)


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
            if compiled.match(os.path.basename(path)) and search.fits(path):
                found.setdefault(pattern, set()).add(os.path.realpath(path))
    return {pattern: sorted(places) for pattern, places in sorted(found.items())}


def main():
    started = time.time()
    search = Search()
    folders = site_folders()
    objects, tools = shared_objects(folders)
    missing, preloaded, damaged, outdated, foreign, needed_by = survey(search, objects)
    known = set(objects)
    places = {
        framework: wanted_libraries(search, known, folders, row)
        for framework, row in sorted(PARAMETERS["wanted"].items())
    }
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
            "other_pythons": for_other_pythons(objects)[:SHOWN],
            "needed_by": needed_by,
            "idle": idle_objects(needed_by, folders),
            "wanted": places,
            "cudnn": cudnn_versions(places),
            "copies": copies(search, objects, PARAMETERS["families"]),
            "tools": dict(other_tools(tools), **compilers()),
            "library_path": search.library_path,
            "cached": len(search.cache),
            "seconds": round(time.time() - started, 3),
        }
    )


main()
