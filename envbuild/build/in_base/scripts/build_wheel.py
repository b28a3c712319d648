"""Build the wheel of a source archive by PEP 517: argv is a JSON file; no network, always the same paths."""

import ctypes
import importlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000


def leave_network():
    """Enter a network of our own that leads nowhere; where the kernel refuses, building goes on with what there is."""
    try:
        ctypes.CDLL(None).unshare(NEW_USER | NEW_NETWORK)
    except (OSError, AttributeError):
        pass


def unpack(archive, folder):
    os.makedirs(folder)
    if archive.endswith(".zip"):
        with zipfile.ZipFile(archive) as source:
            source.extractall(folder)
    else:
        with tarfile.open(archive) as source:
            if hasattr(tarfile, "data_filter"):
                source.extractall(folder, filter="data")
            else:
                source.extractall(folder)
    inner = os.listdir(folder)
    return os.path.join(folder, inner[0]) if len(inner) == 1 else folder


def build(job):
    """Run the backend in this process, a fresh one."""
    sys.path[:0] = [
        os.path.normpath(os.path.join(job["source"], path)) for path in job["backend-path"]
    ]
    os.chdir(job["source"])
    os.environ.update(job.get("environment", {}))
    module, _, attribute = job["backend"].partition(":")
    backend = importlib.import_module(module)
    for name in filter(None, attribute.split(".")):
        backend = getattr(backend, name)
    print("wheel: " + backend.build_wheel(job["out"], {}))


def main():
    with open(sys.argv[1]) as file:
        job = json.load(file)
    job["source"] = os.environ.get("ENVBUILD_SOURCE")
    if job["source"]:
        del os.environ["ENVBUILD_SOURCE"]
        build(job)
        return
    leave_network()
    os.mkdir(job["out"])
    # one path for all: a compiler writes it into what it makes
    source = unpack(job["archive"], "/mnt/source")
    print("building " + job["name"])
    sys.stdout.flush()
    environment = dict(os.environ, ENVBUILD_SOURCE=source)
    sys.exit(subprocess.call([sys.executable, "-s", __file__, sys.argv[1]], env=environment))


main()
