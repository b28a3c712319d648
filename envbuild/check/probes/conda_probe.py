"""A conda environment: its records against its files, who wrote over whom, libraries that are twice.

Parameters: ``prefix`` ("" for what an image on its own has), ``locked`` (names of packages that the
lock brings), ``openmp`` (shell patterns of libraries of which one may be in a process), ``driver``.
"""

import fnmatch
import glob
import hashlib
import re
import sys

SHOWN = 20
MOST_OBJECTS = 20000
OF_GLIBC = re.compile(
    r"(lib(c|m|dl|rt|pthread|util|resolv|nsl|anl|mvec)|ld-linux.*|linux-vdso)\.so"
)


def read_records(prefix):
    """Return the records of installed packages; one that cannot be read is none."""
    found = []
    for path in sorted(glob.glob(os.path.join(prefix, "conda-meta/*.json"))):
        try:
            with open(path, encoding="utf-8") as text:
                record = json.load(text)
            record["paths"] = {
                item["_path"]: item for item in record.get("paths_data", {}).get("paths", ())
            }
            if all(isinstance(record[key], str) for key in ("name", "version", "build")):
                found.append(record)
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return found


def asked_fields(record):
    """Return what is asked of a package; others' records may hold anything."""
    flags = record["flags"] if isinstance(record.get("flags"), list) else []
    channel = record["channel"] if isinstance(record.get("channel"), str) else ""
    return {
        "name": record["name"],
        "version": record["version"],
        "build": record["build"],
        "channel": channel,
        "flags": [flag for flag in flags if isinstance(flag, str)],
    }


def lost_files(prefix, records):
    """Return paths of packages that are gone, each with its package.

    What others have installed may lack what an image was made smaller by: only code counts.
    """
    found = []
    for record in records:
        ours = record["name"] in PARAMETERS["locked"]
        for path in record["paths"] or record.get("files", ()):
            if not ours and not (path.endswith(".py") or ".so" in path):
                continue
            if not os.path.lexists(os.path.join(prefix, path)):
                found.append([record["name"], path])
    return found


def of_other_python(records):
    """Return packages whose modules lie where the environment's Python does not look, or will not load.

    Each with a path and the Python's minor version.
    """
    versions = [record["version"] for record in records if record["name"] == "python"]
    if not versions:
        return []
    minor = ".".join(versions[0].split(".")[:2])
    tag = "cpython-" + minor.replace(".", "")
    found = []
    for record in records:
        for path in record["paths"]:
            folder = re.match(r"lib/python(\d+\.\d+)/site-packages/", path)
            built = re.search(r"\.(cpython-\d+)-[^/]*\.so$", path)
            wrong_folder = folder and folder.group(1) != minor
            if wrong_folder or (folder and built and built.group(1) != tag):
                found.append([record["name"], path, minor])
                break
    return found


def read_pip(prefix, owners):
    """Yield each distribution that conda did not bring: name, version, paths in the prefix."""
    pattern = os.path.join(prefix, "lib/python*/site-packages/*.dist-info")
    for folder in sorted(glob.glob(pattern)):
        inside = os.path.relpath(folder, prefix)
        if inside + "/METADATA" in owners:
            continue
        try:
            with open(os.path.join(folder, "RECORD"), encoding="utf-8") as text:
                rows = [line.split(",")[0].strip('"') for line in text]
        except (OSError, ValueError):
            continue
        site = os.path.dirname(inside)
        stem = os.path.basename(folder)[: -len(".dist-info")]
        name, _, version = stem.partition("-")
        yield name, version, [os.path.normpath(os.path.join(site, row)) for row in rows if row]


def is_condas(prefix, path, item):
    """Tell whether a file holds what conda's record says."""
    try:
        with open(os.path.join(prefix, path), "rb") as file:
            found = hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return False
    return found == (item.get("sha256_in_prefix") or item.get("sha256"))


def overlaps(prefix, records):
    """Return what pip and conda both own: distribution, package, files, example, whose is there."""
    owners = {path: record for record in records for path in record["paths"]}
    found = []
    for name, version, paths in read_pip(prefix, owners):
        both = {}
        for path in paths:
            if path in owners and not path.endswith(".pyc"):
                both.setdefault(owners[path]["name"], []).append(path)
        for package, shared in both.items():
            changed = [
                path for path in shared if not is_condas(prefix, path, owners[path]["paths"][path])
            ]
            found.append(
                {
                    "dist": name,
                    "version": version,
                    "package": package,
                    "files": len(shared),
                    "changed": len(changed),
                    "example": (changed or shared)[0],
                }
            )
    return found


def same_runtimes(prefix, patterns):
    """Return the different files among libraries of which one may be in a process."""
    found = {}
    folders = [os.path.join(prefix, "lib")]
    folders += glob.glob(os.path.join(prefix, "lib/python*/site-packages/*.libs"))
    folders += glob.glob(os.path.join(prefix, "lib/python*/site-packages/*/lib"))
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, "lib*omp*.so*"))):
            if any(fnmatch.fnmatch(os.path.basename(path), pattern) for pattern in patterns):
                found.setdefault(os.path.realpath(path), path)
    return sorted(found.values())


def loaded_objects(prefix):
    """Return the shared objects and programs of an environment, real files only."""
    found = []
    for pattern in ("lib/*.so*", "bin/*", "lib/python*/lib-dynload/*.so"):
        found += glob.glob(os.path.join(prefix, pattern))
    for folder in glob.glob(os.path.join(prefix, "lib/python*/site-packages")):
        for place, _, names in os.walk(folder):
            found += [os.path.join(place, name) for name in names if ".so" in name]
    return [path for path in sorted(found)[:MOST_OBJECTS] if not os.path.islink(path)]


def survey_libraries(prefix):
    """Return what the loader takes from before the prefix, from outside it, and from nowhere.

    Each library is asked for as the environment's Python would load it (ld.so(8), DT_RPATH first),
    each program as a process of its own.
    """
    search = Search()
    process, alone = Process(search, None), Process(search, None)
    python = os.path.join(prefix, "bin/python")
    if os.path.exists(python):
        process.load(os.path.realpath(python))
    names, before, outside, lost, needed = library_names(prefix), {}, {}, [], set()
    for path in loaded_objects(prefix):
        elf = search.elf(path)
        if not isinstance(elf, Elf):
            continue
        needed.update(elf.needed)
        process.loader.setdefault(path, os.path.realpath(python))
        is_program = os.path.dirname(path) == os.path.join(prefix, "bin")
        for soname in elf.needed:
            place = (alone if is_program else process).find(soname, path)
            if from_driver(soname) or OF_GLIBC.match(soname):
                continue
            if place is None:
                lost.append((soname, path))
            elif not os.path.realpath(place).startswith(prefix + "/"):
                if soname in names:
                    before.setdefault(os.path.dirname(place), set()).add(soname)
                else:
                    outside[soname] = place
    # what nothing here needs is a plug-in for a library that is not installed
    wanted = [row for row in lost if os.path.basename(row[1]) in needed or "/bin/" in row[1]]
    return {
        "before": {folder: sorted(found)[:SHOWN] for folder, found in sorted(before.items())},
        "outside": sorted(outside.values())[:SHOWN],
        "missing": sorted(set(wanted))[:SHOWN],
    }


def library_names(prefix):
    """Return the names in the folder of libraries."""
    lib = os.path.join(prefix, "lib")
    return set(os.listdir(lib)) if os.path.isdir(lib) else set()


def find_prefix():
    """Return the environment that is asked for, or the one that an image on its own has."""
    asked = PARAMETERS["prefix"]
    homes = [os.path.dirname(os.path.dirname(os.path.realpath(sys.executable)))]
    homes += [os.environ.get("CONDA_PREFIX") or "", "/opt/conda"]
    for folder in [asked] if asked else homes:
        if folder and os.path.isdir(os.path.join(folder, "conda-meta")):
            return os.path.realpath(folder)
    return asked or None


def main():
    """Answer for the prefix of the parameters."""
    prefix = find_prefix()
    records = read_records(prefix) if prefix else []
    if not records:
        answer({"prefix": None})
        return
    lost = lost_files(prefix, records)
    answer(
        {
            "prefix": prefix,
            "packages": [asked_fields(record) for record in records],
            "lost": lost[:SHOWN],
            "lost_count": len(lost),
            "other_python": of_other_python(records)[:SHOWN],
            "overlaps": overlaps(prefix, records)[:SHOWN],
            "runtimes": same_runtimes(prefix, PARAMETERS["openmp"]),
            **survey_libraries(prefix),
        }
    )


main()
