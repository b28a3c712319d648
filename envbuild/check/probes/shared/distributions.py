"""Comes before probes that ask what is installed: distributions, their files and the modules they own."""

import csv
import fnmatch
import hashlib
import importlib.util
import re

NO_PACKAGES = ("", "..", "__pycache__")
PRIVATE = {
    "test",
    "tests",
    "testing",
    "doc",
    "docs",
    "example",
    "examples",
    "benchmark",
    "benchmarks",
    "scripts",
    "build",
    "dist",
    "tools",
    "conftest",
    "setup",
}


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def header(text, key):
    found = re.search(r"^%s:[ \t]*(.*?)[ \t]*$" % key, text.split("\n\n", 1)[0], re.M | re.I)
    return found.group(1) if found else ""


def find_distributions():
    """Every *.dist-info and *.egg-info on sys.path, in the order in which Python finds them."""
    found, folders = [], set()
    for folder in sys.path:
        real = os.path.realpath(folder)
        if real in folders or not os.path.isdir(real):
            continue
        folders.add(real)
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if name.endswith(".dist-info"):
                metadata = read(os.path.join(path, "METADATA"))
            elif name.endswith(".egg-info"):
                metadata = (
                    read(os.path.join(path, "PKG-INFO")) if os.path.isdir(path) else read(path)
                )
            else:
                continue
            project, version = header(metadata, "Name"), header(metadata, "Version")
            if not project and os.path.isfile(os.path.join(path, "RECORD")):
                # without METADATA it is there for the file system only
                project, _, version = name[: -len(".dist-info")].partition("-")
            if project:
                found.append(
                    {
                        "name": canonical(project),
                        "version": version,
                        "folder": folder,
                        "info": path,
                    }
                )
    seen = set()
    for item in found:
        item["shadowed"] = item["name"] in seen
        seen.add(item["name"])
    return found


def read_record(item):
    """The rows (path, hash, size) of RECORD; None where the distribution has none."""
    path = os.path.join(item["info"], "RECORD")
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        raw = file.read()
    item["record"] = hashlib.sha256(raw).hexdigest()
    rows = []
    for row in csv.reader(raw.decode("utf-8", "replace").splitlines()):
        if row and row[0]:
            rows.append((row[0], row[1] if len(row) > 1 else "", row[2] if len(row) > 2 else ""))
    return rows


def owned(item, rows):
    """Paths relative to the folder that a distribution owns.

    From top_level.txt or its name where RECORD has none.
    """
    if rows:
        return [row[0] for row in rows]
    listed = read(os.path.join(item["info"], "top_level.txt")).split() or [
        item["name"].replace("-", "_")
    ]
    return [
        name + ("/__init__.py" if os.path.isdir(os.path.join(item["folder"], name)) else ".py")
        for name in listed
    ]


def packages(paths):
    """The outermost importable names among paths: packages with __init__, and single modules."""
    names = set()
    for path in paths:
        top = path.split("/", 1)[0]
        if top.endswith((".dist-info", ".egg-info", ".data")) or top in NO_PACKAGES:
            continue
        folders, file = path.split("/")[:-1], path.rpartition("/")[2]
        stem = file.split(".")[0]
        if not file.endswith((".py", ".so")):
            continue
        if not folders:
            names.add(stem)
        elif stem == "__init__" and all(folder.isidentifier() for folder in folders):
            names.add(".".join(folders))
    outermost = {
        name
        for name in names
        if not any(".".join(name.split(".")[:n]) in names for n in range(1, name.count(".") + 1))
    }
    return sorted(
        name for name in outermost if not name.startswith("_") and name.split(".")[0] not in PRIVATE
    )


def import_names(name, candidates):
    """The names to import for a distribution: the one that is called like it, else all."""
    plain = canonical(name).replace("-", "_")
    like = [item for item in candidates if item.lower().replace(".", "_") == plain]
    return like or candidates[:4]


def owners(records, module):
    """Distributions that own a module's __init__ (or its single file), each with its version."""
    start = module.replace(".", "/")
    wanted = {start + "/__init__.py", start + ".py"}
    found = []
    for item, _ in records:
        below = "." in module and any(path.startswith(start + "/") for path in item["paths"])
        if below or wanted & item["known"]:
            found.append(
                {"name": item["name"], "version": item["version"], "folder": item["folder"]}
            )
    return found


def module_file(name):
    try:
        spec = importlib.util.find_spec(name.split(".")[0])
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return spec.origin or (folders[0] if folders else None)


def all_records():
    """Every distribution with its RECORD's rows, and the files that it owns: a list and a set."""
    records = []
    for item in find_distributions():
        rows = read_record(item)
        item["paths"] = owned(item, rows)
        item["known"] = set(item["paths"])
        records.append((item, rows))
    return records


def direct_imports(records, names):
    """distribution -> import names, for some distributions."""
    return {
        item["name"]: import_names(item["name"], packages(item["paths"]))
        for item, _ in records
        if item["name"] in names and not item["shadowed"]
    }


def read_requirements(records, names):
    """What distributions ask for in their metadata, by name."""
    found = {}
    for item, _ in records:
        if item["name"] in names and not item["shadowed"]:
            head = read(os.path.join(item["info"], "METADATA")).split("\n\n", 1)[0]
            found[item["name"]] = re.findall(
                r"^Requires-Dist:[ \t]*(.*?)[ \t]*$", head, re.M | re.I
            )
    return found


def is_brought_in_part(records, patterns):
    """Whether all that ask for a distribution ask for CUDA's wheels too, which they open."""
    asking = []
    for lines in read_requirements(records, {item["name"] for item, _ in records}).values():
        plain = [line for line in lines if "extra ==" not in line]
        names = [canonical(re.match(r"[\w.-]*", line).group()) for line in plain]
        if any(fnmatch.filter(names, pattern) for pattern in patterns):
            asking.append(names)
    return bool(asking) and all(fnmatch.filter(names, "nvidia-cu*") for names in asking)


def is_held(records, name):
    """Whether a distribution has the package of a module, or the module's folder without __init__."""
    if owners(records, name.split(".")[0]):
        return True
    start = name.replace(".", "/") + "/"
    for item, _ in records:
        if any(path.startswith(start) for path in item["paths"]):
            return True
    return False


def list_requirements(item):
    """What a distribution requires: canonical names, and what stands behind each."""
    head = read(os.path.join(item["info"], "METADATA")).split("\n\n", 1)[0]
    lines = re.findall(r"^Requires-Dist:[ \t]*([\w.-]+)([^\n]*)", head, re.M | re.I)
    return [(canonical(name), rest) for name, rest in lines]


def reach_requirements(records, names):
    """What distributions ask for, and these in turn, extras aside."""
    asks = {item["name"]: item for item, _ in records if not item["shadowed"]}
    found, left = set(), list(names)
    while left:
        item = asks.get(left.pop())
        if item is None or item["name"] in found:
            continue
        found.add(item["name"])
        left += [name for name, rest in list_requirements(item) if "extra ==" not in rest]
    return sorted(found)
