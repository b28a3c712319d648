"""Read the facts of an image from inside: prints one line of JSON.

It runs on any Python from 3.6 on with its standard library alone, is fed on stdin, writes nothing,
imports nothing that is installed, and survives whatever it finds: a file that cannot be read is a
file that is not there.

What looks at files does so through `Files`, and what is known of the interpreter is one dictionary:
static.py hands over the layers of an image that is not running, and what their files tell of its
Python.
"""

import configparser
import email
import glob
import hashlib
import json
import os
import platform
import re
import sys
import sysconfig

BIGGEST = 8 * 1024 * 1024
ENVIRONMENT = (
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "PYTHONPATH",
    "CUDA_VERSION",
    "CUDNN_VERSION",
    "NV_CUDNN_VERSION",
    "NCCL_VERSION",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_PYTORCH_VERSION",
    "PYTORCH_VERSION",
    "TORCH_CUDA_ARCH_LIST",
)
LIBRARY = re.compile(r"^lib(cudart|cudnn|nccl|cuda)\.so(\.[0-9.]+)?$")


class Files:
    """The running system's files and variables."""

    environ = os.environ
    isdir = staticmethod(os.path.isdir)
    exists = staticmethod(os.path.exists)
    real = staticmethod(os.path.realpath)

    def read(self, path, most=-1):
        try:
            with open(path, "rb") as file:
                return file.read(most)
        except (OSError, ValueError):
            return None

    def names(self, folder):
        try:
            return sorted(os.listdir(folder or "."))
        except OSError:
            return []

    def mtime(self, path):
        try:
            return int(os.stat(path).st_mtime)
        except OSError:
            return None

    def glob(self, pattern):
        return sorted(glob.glob(pattern))


def read_bytes(files, path):
    return files.read(path, BIGGEST)


def read_text(files, path):
    data = read_bytes(files, path)
    return None if data is None else data.decode("utf-8", "replace")


def search_path():
    """sys.path without the place this script was started from, each folder once."""
    seen = []
    for entry in sys.path:
        if entry and os.path.isdir(entry) and entry not in seen:
            seen.append(entry)
    return seen


# ---- distributions


def normalize_name(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def from_file_name(entry):
    """(name, version or None) of numpy-1.26.4-py3.11.egg-info, numpy.egg-info and the like."""
    stem = re.sub(r"\.(dist-info|egg-info|egg)$", "", entry)
    parts = stem.split("-")
    return parts[0], parts[1] if len(parts) > 1 else None


def requires_of_egg(text):
    """requires.txt: sections [extra], [:marker], [extra:marker] become PEP 508 markers."""
    found, suffix = [], ""
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        section = re.match(r"^\[([^:\]]*):?(.*)\]$", line)
        if section:
            extra, marker = section.group(1), section.group(2)
            conditions = (["(" + marker + ")"] if marker else []) + (
                ['extra == "%s"' % extra] if extra else []
            )
            suffix = "; " + " and ".join(conditions) if conditions else ""
        else:
            found.append(line + ((" " + suffix) if suffix and "@" in line else suffix))
    return found


def modules_of_record(text):
    found = set()
    for line in text.splitlines():
        path = line.split(",")[0].strip('"')
        parts = path.split("/")
        if parts[0] in ("", "..", "__pycache__") or parts[0].endswith((".dist-info", ".data")):
            continue
        if len(parts) > 1:
            name = parts[0]
        elif re.search(r"\.(py|so|pyd)$", path):
            name = path.split(".")[0]
        else:
            continue
        if name.isidentifier() and re.search(r"\.py$|\.so(\.|$)", path):
            found.add(name)
    return sorted(found)


def read_dist(files, folder, entry):
    """One *.dist-info, *.egg-info or *.egg as a dictionary, None when it has no name at all."""
    path = os.path.join(folder, entry)
    info = os.path.join(path, "EGG-INFO") if entry.endswith(".egg") else path
    if files.isdir(info):
        text = read_text(files, os.path.join(info, "METADATA"))
        if text is None:
            text = read_text(files, os.path.join(info, "PKG-INFO"))
    else:
        text = read_text(files, info)
    message = email.message_from_string(text or "")
    stem_name, stem_version = from_file_name(entry)
    name = (message.get("Name") or stem_name or "").strip()
    version = (message.get("Version") or stem_version or "").strip()
    if not re.match(r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", name):
        return None
    notes = []
    if not text:
        notes.append("no METADATA")
    elif "\ufffd" in text:
        notes.append("METADATA is not UTF-8")
    requires = [" ".join(str(line).split()) for line in message.get_all("Requires-Dist") or []]
    egg_requires = read_text(files, os.path.join(info, "requires.txt"))
    if not requires and egg_requires and not entry.endswith(".dist-info"):
        requires = requires_of_egg(egg_requires)
    record = read_bytes(files, os.path.join(info, "RECORD"))
    if record is None and entry.endswith(".dist-info"):
        notes.append("no RECORD")
    top_level = read_text(files, os.path.join(info, "top_level.txt"))
    if top_level and top_level.strip():
        modules = sorted(set(top_level.split()))
    else:
        modules = modules_of_record((record or b"").decode("utf-8", "replace"))
    requires_python = message.get("Requires-Python")
    if requires_python is not None:
        requires_python = str(requires_python).strip()
    installer = read_text(files, os.path.join(info, "INSTALLER")) or ""
    return {
        "name": name,
        "version": version,
        "requires": requires,
        "requires_python": requires_python,
        "location": folder,
        "record": None if record is None else hashlib.sha256(record).hexdigest(),
        "installer": installer.strip() or None,
        "modules": modules,
        "notes": notes,
    }


def read_dists(files, path):
    """All distributions as Python finds them: the first folder of sys.path that has a name wins."""
    found, order = {}, []
    for folder in path:
        here = {}
        entries = [e for e in files.names(folder) if e.endswith((".dist-info", ".egg-info"))]
        candidates = [(folder, entry) for entry in entries]
        if folder.endswith(".egg"):
            candidates.append((os.path.dirname(folder), os.path.basename(folder)))
        for place, entry in candidates:
            dist = read_dist(files, place, entry)
            if dist is None:
                continue
            here.setdefault(normalize_name(dist["name"]), []).append(dist)
        for key, dists in here.items():
            # several in one folder are what an interrupted upgrade leaves: the whole one counts
            dists.sort(key=lambda dist: ("no METADATA" in dist["notes"], dist["record"] is None))
            chosen, others = dists[0], dists[1:]
            for other in others:
                chosen["notes"].append(
                    "also %s in the same folder" % (other["version"] or "one without version")
                )
            if key in found:
                found[key]["notes"].append("hides %s in %s" % (chosen["version"], folder))
            else:
                found[key] = chosen
                order.append(key)
    return [found[key] for key in sorted(order)]


# ---- conda


def conda_prefix(files, home):
    """The conda environment that a Python lives in, by its real path; None for any other Python."""
    prefix = files.real(home)
    return prefix if files.isdir(os.path.join(prefix, "conda-meta")) else None


def conda_homes(files):
    """Folders of conda environments that are there, though Python may not be on PATH."""
    folders = files.environ.get("PATH", "").split(":")
    homes = [files.environ.get("CONDA_PREFIX"), files.environ.get("MAMBA_ROOT_PREFIX")]
    homes += [os.path.dirname(folder.rstrip("/")) for folder in folders]
    homes += ["/opt/conda", "/usr/local"]
    records = files.glob("/opt/*/conda-meta") + files.glob("/*/.pixi/envs/default/conda-meta")
    homes += [os.path.dirname(folder) for folder in records]
    found = [files.real(home) for home in homes if home and home.startswith("/")]
    return [home for home in found if files.isdir(os.path.join(home, "conda-meta"))]


def read_conda(files, prefix):
    """The packages of a conda environment; of a record that is no JSON its file's name counts."""
    folder, found = os.path.join(prefix, "conda-meta"), []
    for entry in files.names(folder):
        if entry.endswith(".json") and entry.count("-") > 1:
            try:
                record = json.loads(files.read(os.path.join(folder, entry)) or b"")
            except (ValueError, RecursionError):
                record = {}
            found.append(conda_package(entry[: -len(".json")], record))
    return found


def conda_package(stem, record):
    """What a record says; the channel without its host, which may carry a token."""
    record = record if isinstance(record, dict) else {}
    name, version, build = stem.rsplit("-", 2)

    def text(key, other=""):
        return record[key] if isinstance(record.get(key), str) else other

    def texts(key):
        listed = record[key] if isinstance(record.get(key), list) else []
        return [item for item in listed if isinstance(item, str)]

    subdir, number = text("subdir"), record.get("build_number")
    place = [part for part in text("channel").split("/") if part and part != subdir]
    return {
        "name": text("name", name),
        "version": text("version", version),
        "build": text("build", build),
        "channel": "/".join(place[-2:] if place[-2:-1] == ["pkgs"] else place[-1:]),
        "subdir": subdir,
        "number": number if isinstance(number, int) else 0,
        "depends": texts("depends"),
        "constrains": texts("constrains"),
    }


# ---- the system


def read_release(files):
    text = read_text(files, "/etc/os-release") or read_text(files, "/usr/lib/os-release") or ""
    return dict(re.findall(r"""^([A-Z_]+)=["']?(.*?)["']?$""", text, re.M))


def read_apt(files):
    found = []
    for stanza in (
        (files.read("/var/lib/dpkg/status") or b"").decode("utf-8", "replace").split("\n\n")
    ):
        fields = dict(re.findall(r"^(Package|Status|Version|Architecture): (.*)$", stanza, re.M))
        if fields.get("Status", "").endswith(" installed") and "Version" in fields:
            found.append([fields["Package"], fields["Version"], fields.get("Architecture", "all")])
    return sorted(found)


def glibc_of_files(files):
    """The version of glibc by its file's name or text; None without glibc."""
    for pattern in (
        "/lib/*-linux-gnu/libc.so.6",
        "/lib64/libc.so.6",
        "/usr/lib*/libc.so.6",
        "/lib/libc.so.6",
    ):
        for path in files.glob(pattern):
            named = re.search(r"/libc-(2\.\d+)\.so$", files.real(path))
            if named:
                return named.group(1)
            told = re.search(rb"GNU C Library [^\n]*version (2\.\d+)", files.read(path) or b"")
            if told:
                return told.group(1).decode()
    return None


def read_glibc():
    try:
        name, version = os.confstr("CS_GNU_LIBC_VERSION").split()
        return version if name == "glibc" else None
    except (AttributeError, OSError, TypeError, ValueError):
        return None


def find_newest_time(files, dists):
    """The newest time of what is installed (seconds since 1970): when the content was made."""
    paths = ["/var/lib/dpkg/status", "/lib/apk/db/installed", "/var/lib/rpm"]
    paths += [dist["location"] for dist in dists]
    times = [time for time in map(files.mtime, set(paths)) if time is not None]
    return max(times) if times else None


# ---- GPU libraries


def loader_folders(files, prefix):
    """Where the dynamic loader looks: LD_LIBRARY_PATH, ld.so.conf, the usual places."""
    found = [p for p in files.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    texts = [read_text(files, "/etc/ld.so.conf") or ""]
    texts += [read_text(files, path) or "" for path in files.glob("/etc/ld.so.conf.d/*.conf")]
    for text in texts:
        found += [line.strip() for line in text.splitlines() if line.startswith("/")]
    found += [
        "/lib64",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/local/cuda/lib64",
        os.path.join(prefix, "lib"),
    ]
    found += files.glob("/usr/lib/*-linux-gnu") + files.glob("/usr/local/cuda*/targets/*/lib")
    found += files.glob("/usr/local/cuda*/lib64") + files.glob("/usr/local/cuda*/compat")
    found += [folder + "/stubs" for folder in found]
    unique = []
    for folder in found:
        if (
            folder not in unique
            and not folder.startswith("/.singularity.d")
            and files.isdir(folder)
        ):
            unique.append(folder)
    return unique


def read_libraries(files, path, prefix):
    """[soname, real path] of CUDA's runtime, cuDNN, NCCL, libcuda: loader's order, wheels last."""
    folders = loader_folders(files, prefix)
    for folder in path:
        folders += files.glob(os.path.join(glob.escape(folder), "nvidia", "*", "lib"))
    found, seen = [], set()
    for folder in folders:
        for name in files.names(folder):
            if LIBRARY.match(name):
                full = os.path.join(folder, name)
                if full not in seen:
                    seen.add(full)
                    found.append([full, files.real(full)])
    return found


def first_text(files, path, relative):
    for folder in path:
        text = read_text(files, os.path.join(folder, relative))
        if text is not None:
            return text[:65536]
    return None


def read_texts(files, path):
    """Texts that name versions; what they mean is decided outside."""
    found = {
        "cuda version.json": read_text(files, "/usr/local/cuda/version.json"),
        "cuda version.txt": read_text(files, "/usr/local/cuda/version.txt"),
        "torch": first_text(files, path, "torch/version.py"),
        "tensorflow": first_text(files, path, "tensorflow/python/platform/build_info.py")
        or first_text(files, path, "tensorflow_core/python/platform/build_info.py"),
        "cudnn header": read_text(files, "/usr/include/cudnn_version.h")
        or read_text(files, "/usr/local/cuda/include/cudnn_version.h"),
    }
    return {key: text for key, text in found.items() if text}


# ---- pip


def read_environment(files):
    """What steers pip, the loader and the GPU; addresses and secrets stay where they are."""
    found = {}
    for key, value in files.environ.items():
        if (key.startswith("PIP_") or key in ENVIRONMENT) and "://" not in value:
            if not re.search(r"TOKEN|PASSWORD|SECRET|AUTH|CERT", key):
                # a container runtime's own folder is not the image's
                kept = [part for part in value.split(":") if not part.startswith("/.singularity.d")]
                if any(kept):
                    found[key] = ":".join(kept)
    return found


def constraint_files(files, prefix):
    paths = files.environ.get("PIP_CONSTRAINT", "").split()
    configurations = [
        files.environ.get("PIP_CONFIG_FILE", ""),
        "/etc/pip.conf",
        "/etc/xdg/pip/pip.conf",
    ]
    for path in configurations + [os.path.join(prefix, "pip.conf")]:
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(read_text(files, path) or "" if path else "")
        except configparser.Error:
            continue
        for section in ("global", "install"):
            if parser.has_option(section, "constraint"):
                paths += parser.get(section, "constraint").split()
    return [path for path in paths if "://" not in path]


def read_constraints(files, prefix):
    found = ""
    for path in constraint_files(files, prefix):
        text = read_text(files, path)
        if text:
            found += text if text.endswith("\n") else text + "\n"
    return found or None


# ---- this Python


def read_abi():
    """cp311, cp37m, … from SOABI (cpython-311-x86_64-linux-gnu)."""
    match = re.match(r"^cpython-(\w+)", sysconfig.get_config_var("SOABI") or "")
    return (
        "cp" + match.group(1)
        if match
        else "%s%d%d" % (sys.implementation.name, *sys.version_info[:2])
    )


def describe_interpreter():
    """What only a running Python knows of itself."""
    return {
        "python_path": sys.executable,
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "abi": read_abi(),
        "prefix": sys.prefix,
        "stdlib": sysconfig.get_path("stdlib"),
        "path": search_path(),
        "machine": platform.machine(),
        "glibc": read_glibc(),
    }


def without_interpreter(files, machine):
    """What is told of a system without a Python; the first of its conda environments counts."""
    homes = conda_homes(files)
    home = homes[0] if homes else ""
    stdlib = os.path.join(home, "lib/python") if home else ""
    python = os.path.join(home, "bin/python")
    has_python = home and files.exists(python)
    return {
        "python_path": python if has_python else "",
        "python": "",
        "implementation": "",
        "abi": "",
        "prefix": home,
        "stdlib": stdlib,
        "path": [],
        "machine": machine,
        "glibc": glibc_of_files(files),
    }


def read_facts(files, python):
    """All facts, from a system's files and what is known of its Python (describe_interpreter)."""
    facts = dict(python)
    path, stdlib, prefix = facts.pop("path"), facts.pop("stdlib"), facts["prefix"]
    dists = read_dists(files, path)
    home = os.path.dirname(os.path.dirname(stdlib))
    conda = conda_prefix(files, home) if home else None
    managed = bool(stdlib) and files.exists(os.path.join(stdlib, "EXTERNALLY-MANAGED"))
    facts.update(
        site=[p for p in path if os.path.basename(p) in ("site-packages", "dist-packages")],
        externally_managed=managed,
        release=read_release(files),
        created=find_newest_time(files, dists),
        dists=dists,
        apt=read_apt(files),
        libraries=read_libraries(files, path, prefix),
        texts=read_texts(files, path),
        environment=read_environment(files),
        constraints=read_constraints(files, prefix),
        conda_prefix=conda,
        conda=read_conda(files, conda) if conda else [],
    )
    return facts


def main():
    # another machine's Python tells nothing of this system
    if sys.argv[1:] == ["host"]:
        python = without_interpreter(Files(), platform.machine())
    else:
        python = describe_interpreter()
    python["off_path"] = sys.argv[1:] == ["off-path"]
    # names that are no text (surrogates of undecodable bytes) become question marks
    line = "ENVBUILD-FACTS " + json.dumps(read_facts(Files(), python), ensure_ascii=False) + "\n"
    sys.stdout.buffer.write(line.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
