"""A conda environment: its records against its files, who wrote over whom, libraries that are twice.

Parameters: ``prefix``, ``openmp`` (shell patterns of libraries of which one may be in a process).
"""

import fnmatch
import glob
import hashlib

SHOWN = 20
RUNTIME = "/.singularity.d/libs"


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
            found.append(record)
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return found


def lost_files(prefix, records):
    """Return paths of packages that are gone, each with its package."""
    found = []
    for record in records:
        for path in record["paths"] or record.get("files", ()):
            if not os.path.lexists(os.path.join(prefix, path)):
                found.append([record["name"], path])
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


def before_condas(prefix):
    """Return libraries of LD_LIBRARY_PATH that come before those of the prefix, by folder."""
    lib = os.path.join(prefix, "lib")
    own = set(os.listdir(lib)) if os.path.isdir(lib) else set()
    found = {}
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        inside = os.path.realpath(folder).startswith(os.path.realpath(prefix) + "/")
        if not folder or inside or folder == RUNTIME or not os.path.isdir(folder):
            continue
        both = [name for name in sorted(os.listdir(folder)) if name in own and ".so." in name]
        if both:
            found[folder] = both[:SHOWN]
    return found


def main():
    """Answer for the prefix of the parameters."""
    prefix = PARAMETERS["prefix"]
    records = read_records(prefix)
    lost = lost_files(prefix, records)
    told = ("name", "version", "build", "channel", "flags")
    answer(
        {
            "packages": [{key: record[key] for key in told if key in record} for record in records],
            "lost": lost[:SHOWN],
            "lost_count": len(lost),
            "overlaps": overlaps(prefix, records)[:SHOWN],
            "runtimes": same_runtimes(prefix, PARAMETERS["openmp"]),
            "before": before_condas(prefix),
        }
    )


main()
