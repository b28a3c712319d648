"""Part of the probe: what is installed, by Python's and conda's records."""

import email
import hashlib
import json
import os
import re


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
        section = re.match(r"^\[([^:\]]*)(?::(.*))?\]$", line)
        if section:
            extra, marker = section.group(1), section.group(2)
            conditions = []
            if marker:
                conditions.append("(" + marker + ")")
            if extra:
                conditions.append('extra == "%s"' % extra)
            suffix = "; " + " and ".join(conditions) if conditions else ""
        elif suffix and "@" in line:
            # an address ends at a space
            found.append(line + " " + suffix)
        else:
            found.append(line + suffix)
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
    python = message.get("Requires-Python")
    if python is not None:
        python = str(python).strip()
    installer = read_text(files, os.path.join(info, "INSTALLER")) or ""
    return {
        "name": name,
        "version": version,
        "requires": requires,
        "requires_python": python,
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
                version = other["version"] or "one without version"
                chosen["notes"].append("also %s in the same folder" % version)
            if key in found:
                found[key]["notes"].append("hides %s in %s" % (chosen["version"], folder))
            else:
                found[key] = chosen
                order.append(key)
    return [found[key] for key in sorted(order)]


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
