"""Install conda packages from files, by py-rattler, which is one of the locked files."""

import asyncio
import glob
import hashlib
import json
import os
import subprocess
import sys

import rattler

NO_HOST = "https://mirror.invalid/"
OF_THIS_MACHINE = ("extracted_package_dir", "package_tarball_full_path")


def package_record(folder, sha256, channel, path):
    """Return what is to be installed, from the package itself; its hash is verified."""
    file = os.path.join(folder, os.path.basename(path))
    with open(file, "rb") as packed:
        data = packed.read()
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise SystemExit(f"{path}: sha256 is {found}, the lock says {sha256}")
    index = rattler.IndexJson.from_package_archive(file)
    names = ("arch", "platform", "depends", "constrains", "license", "license_family", "noarch")
    record = rattler.PackageRecord(
        index.name,
        str(index.version),
        index.build,
        index.build_number,
        path.split("/")[0],
        sha256=bytes.fromhex(sha256),
        size=len(data),
        python_site_packages_path=index.python_site_packages_path,
        **{name: getattr(index, name) for name in names},
    )
    return rattler.RepoDataRecord(
        record, os.path.basename(path), f"file://{file}", NO_HOST + channel
    )


def kept_records(prefix, records):
    """Return the packages that a base's environment has already and that stay."""
    names = {record.name.normalized for record in records}
    files = sorted(glob.glob(f"{prefix}/conda-meta/*.json"))
    return [
        record
        for record in map(rattler.PrefixRecord.from_path, files)
        if record.name.normalized not in names
    ]


def clean_records(prefix, rows):
    """Take what is of this machine out of the records of the packages just installed."""
    places = {os.path.basename(path): (channel, path) for _, channel, path in rows}
    noarch = []
    for file in sorted(glob.glob(f"{prefix}/conda-meta/*.json")):
        with open(file) as text:
            record = json.load(text)
        if record.get("fn") not in places:
            continue
        channel, path = places[record["fn"]]
        record["channel"], record["url"] = NO_HOST + channel, f"{NO_HOST}{channel}/{path}"
        record["link"] = {"source": "", "type": 1}
        for name in OF_THIS_MACHINE:
            record.pop(name, None)
        with open(file, "w") as text:
            json.dump(record, text, indent=2, sort_keys=True)
        if record.get("noarch") == "python":
            noarch += [f"{prefix}/{name}" for name in record["files"]]
    return [name for name in noarch if name.endswith(".py") and "/site-packages/" in name]


def run_scripts(prefix, records):
    """Run the packages' scripts, those of required packages first; py-rattler runs no pre-link."""
    shells = [shell for shell in (f"{prefix}/bin/bash", "/bin/bash") if os.access(shell, os.X_OK)]
    shell = (shells or ["/bin/sh"])[0]
    path = f"{prefix}/bin:{os.environ.get('PATH', '/usr/bin:/bin')}"
    always = {**os.environ, "PREFIX": prefix, "CONDA_PREFIX": prefix, "PATH": path}
    for record in rattler.PackageRecord.sort_topologically(records):
        name = record.name.normalized
        own = {"PKG_NAME": name, "PKG_VERSION": str(record.version)}
        own["PKG_BUILDNUM"] = str(record.build_number)
        for phase in ("pre-link", "post-link"):
            file = f"{prefix}/bin/.{name}-{phase}.sh"
            if not os.path.exists(file):
                continue
            if subprocess.run([shell, file], env={**always, **own}, check=False).returncode:
                raise SystemExit(f"the {phase} script of {name} failed")
        messages = f"{prefix}/.messages.txt"
        if os.path.exists(messages):
            with open(messages) as text:
                sys.stderr.write(text.read())
            os.remove(messages)


def main(folder, listing, prefix, history):
    """Install all packages of the list; a line is sha256, channel, path in the channel."""
    with open(listing) as lines:
        rows = [line.split() for line in lines]
    os.environ["SSL_CERT_FILE"] = os.path.join(os.path.dirname(listing), "nobody.pem")
    records = [package_record(folder, *row) for row in rows]
    cache = os.path.join(os.path.dirname(listing), "rattler")
    work = rattler.install(
        [*kept_records(prefix, records), *records],
        prefix,
        cache_dir=cache,
        execute_link_scripts=False,
        show_progress=False,
    )
    asyncio.run(work)
    modules = clean_records(prefix, rows)
    with open(history) as text, open(f"{prefix}/conda-meta/history", "a") as out:
        out.write(text.read())
    if os.path.exists(f"{prefix}/CACHEDIR.TAG"):
        os.remove(f"{prefix}/CACHEDIR.TAG")
    if modules:
        compiling = [f"{prefix}/bin/python", "-m", "compileall", "-q", "-i", "-"]
        how = ["--invalidation-mode", "unchecked-hash"]
        # a module for another Python does not compile, which is no fault
        subprocess.run([*compiling, *how], input="\n".join(modules).encode(), check=False)
    run_scripts(prefix, records)


if __name__ == "__main__":
    main(*sys.argv[1:])
    # now: py-rattler's threads may end the process with SIGSEGV in Python's own clean-up
    os._exit(0)
