"""Comes after elf: where the loader finds libraries.

Follows ld.so(8): DT_RPATH (where there is no DT_RUNPATH), LD_LIBRARY_PATH, DT_RUNPATH, /etc/ld.so.cache, default
folders; $ORIGIN, $LIB and $PLATFORM are replaced.  A process finds what it has loaded already first (dlopen(3)).
"""

import fnmatch
import itertools
import platform
import struct
import sysconfig


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


def listed_folders(variable):
    return [folder for folder in os.environ.get(variable, "").split(":") if folder]


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
        self.library_path = listed_folders("LD_LIBRARY_PATH")
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
        """Symbol versions that a library does not have.

        None for one that has no versions at all.
        """
        if path not in self.defined:
            try:
                self.defined[path] = self.elf(path).versions_defined()
            except (AttributeError,) + BROKEN:
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
        asked = self.places(soname, before + given + list(runpath))
        cached = filter(os.path.exists, self.cache.get(soname, ()))
        found = itertools.chain(asked, cached, self.places(soname, self.defaults))
        return next(filter(self.fits, found), None)

    def places(self, soname, folders):
        """Yield the paths of a library in those folders that list it."""
        for folder in folders:
            if soname in self.names(folder):
                yield os.path.join(folder, soname)


class Process(object):
    """What one process has loaded, by soname: ld.so(8) for NEEDED libraries, dlopen(3) for opened ones.

    ``library_path`` takes the place of LD_LIBRARY_PATH.
    """

    def __init__(self, search, library_path):
        self.search = search
        self.library_path = library_path
        self.loaded = {}
        self.loader = {}

    def find(self, soname, caller):
        """Where the loader finds a library for the object that asks for it.

        What is loaded already comes first.
        """
        if soname in self.loaded:
            return self.loaded[soname]
        elf = self.search.elf(caller) if caller else None
        if not isinstance(elf, Elf):
            return self.search.find(soname, library_path=self.library_path)
        # DT_RPATH holds for the whole chain of loaders; DT_RUNPATH for its own object only, and switches it off
        rpath = []
        one = caller
        while one and not elf.runpath:
            mine = self.search.elf(one)
            if isinstance(mine, Elf) and not mine.runpath:
                rpath += expand(mine.rpath, os.path.dirname(os.path.realpath(one)))
            one = self.loader.get(one)
        runpath = expand(elf.runpath, os.path.dirname(os.path.realpath(caller)))
        return self.search.find(soname, rpath, runpath, self.library_path)

    def load(self, path, caller=None):
        """Load an object and what it needs.

        Returns the names that are not found, with who needs them.
        """
        lost = []
        queue = [(path, caller)]
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
        """Open a library as dlopen(3) does: all that it needs or nothing.

        Returns (path or None, what is lost).
        """
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
