"""Whether every shared object below site-packages finds its libraries, without running any.

A library that is only found elsewhere below site-packages counts as "preloaded": its package loads
it itself before (wheels of PyTorch, TensorFlow plug-ins, NVIDIA's own).

Parameters: ``wanted`` (import name of a framework -> ``openers``, shell patterns of the objects
that open libraries at run time, the first that is there counts; ``before``, objects that are loaded
before; ``names``, the sonames that some release opens), ``families`` (shell patterns of libraries
of which every copy is listed), ``toolkits`` (patterns of folders where CUDA is installed),
``driver`` (patterns of sonames that come with the driver), ``optional`` (patterns of objects that
may lack libraries).
"""

import fnmatch
import functools
import glob
import importlib.machinery
import re
import site
import subprocess
import sysconfig
import time

BIGGEST_TREE = 2000000
SHOWN = 8
RUNTIME_LIBRARIES = "/.singularity.d/libs"
real_path = functools.lru_cache(maxsize=None)(os.path.realpath)
TOOLS = ("ptxas", "libdevice.10.bc")  # XLA and triton compile with them


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
    """Every file that is called like a shared object, and the tools among them by name."""
    found = []
    tools = {name: [] for name in TOOLS}
    count = 0
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


def find_compilers():
    """What Triton and Inductor build code with at run time: compilers on PATH, Python's header."""
    folders = listed_folders("PATH")

    def first(*names):
        for name in names:
            for place in [os.path.join(folder, name) for folder in folders]:
                if os.path.isfile(place) and os.access(place, os.X_OK):
                    return [place]
        return []

    includes = [sysconfig.get_paths()["include"]] + listed_folders("CPATH")
    headers = [os.path.join(place, "Python.h") for place in includes]
    chosen = os.environ.get("CC", "").split()[:1]
    own = {"CC": first(*chosen)} if chosen else {}  # Triton takes it in the place of all others
    return {
        **own,
        "gcc": first("gcc", "clang", "cc"),
        "g++": first("g++", "clang++", "c++"),
        "Python.h": [header for header in headers if os.path.isfile(header)],
    }


def other_tools(tools):
    """The same tools on PATH and in the toolkit's own folder, where XLA looks too."""
    roots = []
    for pattern in PARAMETERS["toolkits"]:
        roots += glob.glob(pattern)
    roots.sort()
    places = [os.path.join(folder, "ptxas") for folder in listed_folders("PATH")]
    places += [os.path.join(root, "bin/ptxas") for root in roots]
    places += [os.path.join(root, "nvvm/libdevice/libdevice.10.bc") for root in roots]
    for place in places:
        name = os.path.basename(place)
        if os.path.isfile(place) and place not in tools[name]:
            tools[name].append(place)
    return tools


def survey_objects(search, objects):
    """What is missing, what is only elsewhere below site-packages, what could not be read."""
    inside = {}
    for path in objects:
        inside.setdefault(os.path.basename(path), path)
        elf = search.elf(path)
        if isinstance(elf, Elf) and elf.soname:
            inside.setdefault(elf.soname, path)
    missing = {}
    preloaded = {}
    damaged = []
    outdated = {}
    foreign = 0
    needers = {}
    needs = {}
    own = set(objects)
    queue = list(objects)
    seen = set(objects)
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
        origin = os.path.dirname(real_path(path))
        rpath = expand(elf.rpath, origin)
        runpath = expand(elf.runpath, origin)
        versions = needed_versions(elf) if path in own else {}
        for soname in elf.needed:
            place = search.find(soname, rpath, runpath)
            held = place or inside.get(soname)
            needs.setdefault(real_path(path), {})[soname] = held and real_path(held)
            for version in search.lacks(place, versions.get(soname, ())) if place else ():
                outdated.setdefault(soname, {}).setdefault(version, []).append(path)
            if place is None:
                where = preloaded if soname in inside else missing
                where.setdefault(soname, []).append(path)
            else:
                needers.setdefault(real_path(place), []).append(path)
                if place not in seen:
                    seen.add(place)
                    queue.append(place)
    # what comes with the driver is in no image: nothing is asked about who lacks it
    asked = [paths for soname, paths in missing.items() if not from_driver(soname)]
    lacking = set().union(*asked)
    needed_by = {path: needers.get(real_path(path), []) for path in sorted(lacking)}
    return missing, preloaded, damaged, outdated, foreign, needed_by, needs


def idle_objects(needed_by, folders):
    """Objects that lack a library and that nothing loads: no module, not needed, in no Python file.

    What NVIDIA's wheels hold is opened by others, so it counts.
    """
    alone = [
        path
        for path, needers in needed_by.items()
        if not needers and "/nvidia/" not in path and not is_optional(path) and not is_module(path)
    ]
    return [path for path in alone if not is_named(path, folders)]


def is_optional(path):
    """Tell whether an object is a part that its package goes without."""
    return any(fnmatch.fnmatch(path, pattern) for pattern in PARAMETERS["optional"])


def for_other_pythons(objects):
    """Modules that a package has for other Pythons or systems only: not a wheel for this one."""
    stems = {}
    here = set()
    served = set()
    for path in objects:
        folder, name = os.path.split(path)
        top = re.match(r".*/(?:site|dist)-packages/[^/]+", path)
        found = re.match(r"(\w+)(\.(?:cpython-[\w-]+\.|abi3\.)?so)$", name)
        if found is None:
            continue
        stem = (folder, found.group(1))
        if found.group(2) in importlib.machinery.EXTENSION_SUFFIXES:
            here.add(stem)
            served.add(top and top.group())
        else:
            stems.setdefault(stem, (path, top and top.group()))
    # a package that has modules for this Python brings the others for parts of its own
    return sorted(
        path for stem, (path, top) in stems.items() if stem not in here and top not in served
    )


def is_module(path):
    """Tell whether Python or its package loads a shared object: by its name, else by its start."""
    name = os.path.basename(path)
    if not name.startswith("lib") or ".cpython-" in name or name.endswith(".abi3.so"):
        return True
    try:
        with open(path, "rb") as file:
            return b"\0PyInit_" in file.read(BIGGEST_TABLE)
    except OSError:
        return True


def is_named(path, folders):
    """Tell whether a Python file of its package names a shared object, to open it with ctypes."""
    stem = re.escape(os.path.basename(path).split(".so")[0].replace("lib", "", 1)).encode()
    word = re.compile(rb"\b(?:lib)?" + stem + rb"\b")
    for folder in folders:
        if not path.startswith(folder + "/"):
            continue
        top = os.path.join(folder, path[len(folder) + 1 :].split("/", 1)[0])
        for parent, _, names in os.walk(top if os.path.isdir(top) else folder):
            if any(holds_word(os.path.join(parent, name), word) for name in names):
                return True
    return False


def holds_word(place, word):
    """Tell whether a Python file has a word in it."""
    if not place.endswith((".py", ".json")):
        return False
    try:
        with open(place, "rb") as file:
            return word.search(file.read()) is not None
    except OSError:
        return False


def needed_versions(elf):
    try:
        return elf.versions_needed()
    except BROKEN:
        return {}


def opened_libraries(search, objects, folders, row, library_path):
    """What a framework opens at run time: soname -> where the object that opens it finds it."""
    process = Process(search, library_path)
    callers = find_objects(objects, folders, row["openers"])
    caller = callers[0] if callers else None
    for path in find_objects(objects, folders, row["before"]):
        process.load(path)
    if caller:
        process.load(caller)
    places = {}
    for name in row["names"]:
        place, lost = process.open(name, caller)
        real = os.path.realpath(place) if place else None
        places[name] = {"path": place, "real": real, "lost": lost[:SHOWN]}
    return places


def find_objects(objects, folders, patterns):
    """Objects whose path below a folder of packages matches a shell pattern, in its order."""
    found = []
    for pattern in patterns:
        for folder in folders:
            paths = glob.glob(os.path.join(glob.escape(folder), pattern))
            found += [path for path in paths if path in objects or os.path.isfile(path)]
    return found


def wanted_libraries(search, objects, folders, row):
    """Where opened libraries are found, in both orders: ``nv`` where Apptainer 1.5 differs.

    Where an image sets no LD_LIBRARY_PATH, --nv of Apptainer 1.5 puts every folder of its ldconfig
    there (action_script.sh), so that they come before RUNPATH.
    """
    places = opened_libraries(search, objects, folders, row, search.library_path)
    if any(folder != RUNTIME_LIBRARIES for folder in search.library_path):
        return places
    cached = {os.path.dirname(path) for path in set().union(*search.cache.values())}
    others = opened_libraries(search, objects, folders, row, sorted(cached))
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
    """Call cudnnGetVersion() in its own process; needs no GPU.  9.1.0 is 90100, 8.9.4 is 8904."""
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


def find_copies(search, objects, patterns):
    """Every copy of a family: in site-packages, LD_LIBRARY_PATH, the cache, default folders."""
    found = {}
    wanted = [(pattern, re.compile(fnmatch.translate(pattern))) for pattern in patterns]
    of_any = re.compile("|".join(compiled.pattern for _, compiled in wanted))
    paths = list(objects)
    for folder in search.library_path + search.defaults:
        paths += [os.path.join(folder, name) for name in search.names(folder)]
    for targets in search.cache.values():
        paths += targets
    for path in paths:
        name = path.rpartition("/")[2]
        for pattern, compiled in wanted if of_any.match(name) else ():
            if compiled.match(name) and search.fits(path):
                found.setdefault(pattern, set()).add(os.path.realpath(path))
    return {pattern: sorted(places) for pattern, places in sorted(found.items())}


def sort_paths(by_name, most=None):
    """The same names with their paths in order, at most so many of each."""
    return {name: sorted(paths)[:most] for name, paths in by_name.items()}


def main():
    started = time.time()
    search = Search()
    folders = site_folders()
    objects, tools = shared_objects(folders)
    missing, preloaded, damaged, outdated, foreign, needed_by, needs = survey_objects(
        search, objects
    )
    known = set(objects)
    idle = idle_objects(needed_by, folders)
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
            "missing": sort_paths(missing),
            "outdated": {name: sort_paths(outdated[name], SHOWN) for name in sorted(outdated)},
            "preloaded": sort_paths(preloaded, SHOWN),
            "other_pythons": for_other_pythons(objects)[:SHOWN],
            "needed_by": needed_by,
            "idle": idle,
            "unnamed": unnamed_objects(idle, objects, missing),
            "wanted": places,
            "cudnn": cudnn_versions(places),
            "lost_symbols": lost_symbols(search, objects, needs)[:SHOWN],
            "copies": find_copies(search, objects, PARAMETERS["families"]),
            "tools": dict(other_tools(tools), **find_compilers()),
            "library_path": search.library_path,
            "cached": len(search.cache),
            "seconds": round(time.time() - started, 3),
        }
    )


main()
