"""The last part of the probe: what Python tells of itself, and all facts as one line."""

import json
import os
import platform
import re
import sys
import sysconfig


def search_path():
    """sys.path without the place this script was started from, each folder once."""
    seen = []
    for entry in sys.path:
        if entry and os.path.isdir(entry) and entry not in seen:
            seen.append(entry)
    return seen


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
