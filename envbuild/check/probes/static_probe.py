"""What is installed: distributions, owners of modules, files against RECORD, the interpreter.

Parameters: ``protected`` (shell patterns of distributions whose files are verified), ``hashed``
(those of them whose code is hashed; all other files are compared by size), ``hash_limit`` (bytes;
larger files are compared by size too), ``hash_all`` (hash every file whatever its size),
``modules`` (whose owners are wanted), ``direct`` (distributions whose import names are wanted),
``homes`` (the image's own), ``frameworks`` (whose build is read).
"""

import base64
import fnmatch
import glob
import site
import stat
import time
from concurrent.futures import ThreadPoolExecutor

SHOWN = 20
WORKERS = 4
CERTIFICATES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
)
"""Variables that name the certificates that OpenSSL, requests and curl read."""
VARIABLES = re.compile(
    r"^(PYTHON|LD_|PIP_|CONDA|VIRTUAL_ENV|CUDA|NVIDIA|XLA|JAX|TF_|KERAS|NUMBA|USE_|ACCELERATE"
    r"|TRITON|HIP|ROCR|DS_|DGL|PJRT|MPLBACKEND$|PROTOCOL_BUFFERS|HOME$|PATH$)"
)


def rows_to_verify(rows, hashed, shared):
    """Split the rows of a RECORD into those to hash and those to compare by size."""
    for path, digest, size in rows:
        if digest and not path.endswith(".pyc") and path not in shared:
            code = (
                path.endswith((".py", ".so"))
                or ".so." in path
                or "/" not in path
                or path.startswith("..")
            )
            yield path, digest, size, hashed == "all" or (hashed == "code" and code)


def matches_digest(path, digest, limit):
    """Hash a file up to ``limit`` bytes (None: any); None says that it was not hashed."""
    algorithm, _, expected = digest.partition("=")
    with open(path, "rb", buffering=0) as file:
        if limit is not None and os.fstat(file.fileno()).st_size > limit:
            return None
        try:
            seen = hashlib.new(algorithm)
        except ValueError:
            return None
        while True:
            chunk = file.read(1 << 20)
            if not chunk:
                break
            seen.update(chunk)
    return base64.urlsafe_b64encode(seen.digest()).rstrip(b"=").decode() == expected.rstrip("=")


def compare_file(folder, row, limit):
    """One file against its row: "hashed", "sized", "changed" or "missing"."""
    path, digest, size, to_hash = row
    full = os.path.normpath(os.path.join(folder, path))
    try:
        if size.isdigit() and int(size) != os.stat(full).st_size:
            return "changed"
        if not to_hash:
            return "sized"
        same = matches_digest(full, digest, limit)
    except OSError:
        return "missing"
    if same is None:
        return "sized"
    return "hashed" if same else "changed"


def shared_starts(records):
    """Paths of __init__.py that several distributions install, some of them empty.

    The last one wins, and an uninstall takes it along.
    All wheels of NVIDIA have nvidia/__init__.py; without it Python takes the folder for a
    namespace, which does as well.
    """
    counts, empty = {}, set()
    for _, rows in records:
        for path, _, size in rows or ():
            if path.endswith("/__init__.py") and path.count("/") == 1:
                counts[path] = counts.get(path, 0) + 1
                if size == "0":
                    empty.add(path)
    return {path for path in empty if counts[path] > 1}


def verify_files(item, rows, hashed, limit, shared):
    """Compare a distribution's files with its RECORD; returns counts and the first faults."""
    jobs = list(rows_to_verify(rows, hashed, shared))
    paths = {"hashed": [], "sized": [], "changed": [], "missing": []}

    def work(first):
        for job in jobs[first::WORKERS]:
            kind = compare_file(item["folder"], job, limit)
            # it is no code, and not every published wheel has it as its list says (torch 1.12.1)
            told = "sized" if job[0].endswith(".dist-info/METADATA") else "changed"
            paths[told if kind == "changed" else kind].append(job[0])

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    if limit is not None:  # headers and tests that a small image goes without
        paths["missing"] = [path for path in paths["missing"] if not ASIDE.search(path)]
    result = {"files": len(jobs), "hashed": len(paths["hashed"]), "sized": len(paths["sized"])}
    for kind in ("changed", "missing"):
        result[kind + "_count"], result[kind] = len(paths[kind]), sorted(paths[kind])[:SHOWN]
    return result


def find_overlaps(records):
    """Pairs of distributions of a folder that claim the same files: how many, how many differ.

    ``of`` is how many files the smaller one has, ``lost`` are those of the two whose own content
    of a file is not there.  A package's __init__.py may be many's.
    """
    first, pairs, counts = {}, {}, {}
    for index, (item, rows) in enumerate(records):
        for path, digest, size in rows or ():
            if not digest or path.startswith((".", "/")) or ".dist-info/" in path:
                continue
            if path.split("/")[0] in PRIVATE:
                continue
            counts[index] = counts.get(index, 0) + 1
            row = (path, digest, size)
            other, theirs = first.setdefault((item["folder"], path), (index, row))
            if other == index:
                continue
            entry = pairs.setdefault(
                (other, index), {"files": 0, "different": 0, "example": path, "lost": set()}
            )
            entry["files"] += 1
            if theirs != row:
                entry["different"] += not path.endswith("/__init__.py")
                entry["lost"].update(lost_owners(records, {other: theirs, index: row}))
    for (a, b), entry in pairs.items():
        entry["of"] = min(counts[a], counts[b])
        entry["dists"] = [records[a][0]["name"], records[b][0]["name"]]
        entry["lost"] = sorted(entry["lost"])
    return [pairs[both] for both in sorted(pairs)]


def lost_owners(records, rows):
    """Names of the owners whose row of a file says something else than the file."""
    same_size = len({size for _, _, size in rows.values()}) == 1
    for index, row in rows.items():
        item = records[index][0]
        # a size that one of them has alone tells whose file it is
        if compare_file(item["folder"], row + (same_size,), None) in ("changed", "missing"):
            yield item["name"]


def tensorflow_build(folder):
    """CUDA of a TensorFlow from its build_info.py, unimported (that would load TensorFlow)."""
    for package in ("tensorflow", "tensorflow_core"):
        text = read(os.path.join(folder, package, "python", "platform", "build_info.py"))
        if not text:
            continue

        def value(key, text=text):
            found = re.search(r"%s(?:_number)?['\"]?\s*[,:=]\s*['\"]([^'\"]+)['\"]" % key, text)
            return found.group(1) if found else None

        built = re.search(r"is_cuda_build['\"]?\s*[,:=]\s*(True|False)", text)
        rocm = re.search(r"is_rocm_build['\"]?\s*[,:=]\s*True", text)
        arches = re.search(r"cuda_compute_capabilities['\"]?\s*[,:]\s*\[([^\]]*)\]", text)
        return {
            "cuda": value("cuda_version"),
            "cudnn": value("cudnn_version"),
            "is_cuda": built.group(1) == "True" if built else None,
            "is_rocm": rocm is not None,
            "arches": re.findall(r"(?:sm|compute)_\d+a?", arches.group(1)) if arches else [],
        }
    return {}


def torch_build(folder):
    text = read(os.path.join(folder, "torch", "version.py"))
    found = re.search(r"^cuda\b[^=\n]*=\s*(?:'([^']*)'|\"([^\"]*)\"|None)", text, re.M)
    if not found:
        return {}
    cuda = found.group(1) or found.group(2)
    hip = re.search(r"^hip\b[^=\n]*=\s*['\"]", text, re.M)
    return {"cuda": cuda, "is_cuda": cuda is not None, "is_rocm": hip is not None}


def onnxruntime_build(folder):
    text = read(os.path.join(folder, "onnxruntime", "capi", "build_and_package_info.py"))
    found = re.search(r"^cuda_version\s*=\s*['\"]([\d.]+)['\"]", text, re.M)
    if not text:
        return {}
    return {"cuda": found.group(1) if found else None, "is_cuda": found is not None}


def framework_builds(names):
    builds = {}
    readers = (
        ("tensorflow", tensorflow_build),
        ("torch", torch_build),
        ("onnxruntime", onnxruntime_build),
    )
    for name, reader in readers:
        if name in names:
            origin = module_file(name)
            builds[name] = reader(os.path.dirname(os.path.dirname(origin))) if origin else {}
    return builds


def any_exists(paths):
    """Tell whether a file is there, or one of several folders (SSL_CERT_DIR=/one:/two)."""
    return any(map(os.path.exists, [paths] + paths.split(":")))


def lost_paths():
    """Lines of .pth files that name no folder of the image: an editable install without its own."""
    found = {}
    for folder in sys.path:
        pattern = os.path.join(glob.escape(folder), "*.pth")
        for path in sorted(glob.glob(pattern)):
            for line in read(path).splitlines():
                place = line.strip()
                if place.startswith("/") and not os.path.exists(place):
                    found[os.path.basename(path)] = place
    return found


def is_unknown_zone(name):
    """Tell whether a name of a time zone is in no list; only Pythons from 3.9 on have one."""
    try:
        importlib.import_module("zoneinfo").ZoneInfo(name)
    except ImportError:
        return False
    except Exception:
        return not os.path.exists(name)
    return False


def describe_interpreter():
    user = site.getusersitepackages()
    variables = {key: value for key, value in sorted(os.environ.items()) if VARIABLES.match(key)}
    pythonpath = os.environ.get("PYTHONPATH", "").split(":")
    preload = re.split(r"[: ]+", os.environ.get("LD_PRELOAD", ""))
    missing = [entry for entry in pythonpath if entry and not os.path.exists(entry)]
    preload_missing = [entry for entry in preload if "/" in entry and not os.path.exists(entry)]
    files = {name: os.environ[name] for name in CERTIFICATES if os.environ.get(name)}
    lost = {name: path for name, path in files.items() if not any_exists(path)}
    lost.update(lost_paths())
    if "/" in os.environ.get("TZ", "") and is_unknown_zone(os.environ["TZ"].lstrip(":")):
        lost["TZ"] = os.environ["TZ"]
    return {
        "python": "%d.%d.%d" % sys.version_info[:3],
        "executable": sys.executable,
        "prefixes": sorted({sys.prefix, sys.base_prefix}),
        "path": sys.path,
        "glibc": (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", ""),
        "user_site": {
            "enabled": bool(site.ENABLE_USER_SITE),
            "path": user,
        },
        "environment": variables,
        "missing_folders": missing,
        "preload_missing": preload_missing,
        "files_missing": lost,
    }


def verify_all(records):
    """The files of protected distributions: a framework's own code by hash, all else by size."""
    verified = {}
    shared = shared_starts(records)
    for item, rows in records:
        name = item["name"]
        if (
            not rows
            or item["shadowed"]
            or not any(fnmatch.fnmatch(name, p) for p in PARAMETERS["protected"])
        ):
            continue
        how, limit = "none", PARAMETERS["hash_limit"]
        if PARAMETERS["hash_all"]:
            how, limit = "all", None
        elif any(fnmatch.fnmatch(name, p) for p in PARAMETERS["hashed"]):
            how = "code"
        verified[name] = verify_files(item, rows, how, limit, shared)
    return verified


def lost_records(records):
    """Protected distributions of an installer whose list of files is gone or holds no file."""
    lost = []
    for item, rows in records:
        by_installer = item["info"].endswith(".dist-info") and os.path.isfile(
            os.path.join(item["info"], "INSTALLER")
        )
        protected = any(fnmatch.fnmatch(item["name"], p) for p in PARAMETERS["hashed"])
        if (
            by_installer
            and protected
            and not item["shadowed"]
            and not any(row[1] for row in rows or ())
        ):
            lost.append(item["name"])
    return lost


def installed_for_user(homes):
    """Distributions in a home folder of the image: "pip install --user" in its definition."""
    found = {}
    for home in homes:
        for folder in glob.glob(os.path.join(home, ".local/lib/python3*/site-packages")):
            if os.access(folder, os.R_OK):
                infos = [name for name in os.listdir(folder) if name.endswith(".dist-info")]
                found[folder] = sorted(name.split("-")[0] for name in infos)
    return found


def closed_to_others(records):
    """Distributions whose folder, metadata or first file others than the owner may not read."""
    closed = []
    for item, rows in records:
        paths = [item["folder"], item["info"], os.path.join(item["info"], "METADATA")]
        for path, digest, _ in rows or ():
            if digest and not path.startswith(".."):
                whole = os.path.join(item["folder"], path)
                paths += [whole, os.path.dirname(whole)]
                break
        if not all(map(open_to_others, paths)):
            closed.append(item["name"])
    return sorted(set(closed))


def open_to_others(path):
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return True  # what is missing, base-files tells
    needed = 0o005 if stat.S_ISDIR(mode) else 0o004
    return mode & needed == needed


def main():
    started = time.time()
    records = all_records()
    document = describe_interpreter()
    document["owners"] = {module: owners(records, module) for module in PARAMETERS["modules"]}
    document["files"] = {
        module: module_file(module) for module in PARAMETERS["modules"] if "." not in module
    }
    document["imports"] = direct_imports(records, PARAMETERS["direct"])
    document["builds"] = framework_builds(PARAMETERS["frameworks"])
    document["verified"] = verify_all(records)
    document["damage"] = find_damage(records)
    document["lost_records"] = lost_records(records)
    document["for_user"] = installed_for_user(PARAMETERS["homes"])
    document["closed"] = closed_to_others(records)
    holders = {item["name"] for item, _ in records if item["name"].startswith("jax-cuda")}
    holders.update(PARAMETERS["direct"])
    for module in PARAMETERS["frameworks"]:
        holders.update(one["name"] for one in document["owners"].get(module, ()))
    document["overlaps"] = find_overlaps(records)
    for both in document["overlaps"]:
        holders.update(both["dists"])
    document["requires"] = read_requirements(records, holders)
    document["reached"] = reach_requirements(records, PARAMETERS["direct"])
    document["dists"] = [
        {
            key: item[key]
            for key in ("name", "version", "folder", "shadowed", "record")
            if key in item
        }
        for item, _ in records
    ]
    document["seconds"] = round(time.time() - started, 3)
    answer(document)


main()
