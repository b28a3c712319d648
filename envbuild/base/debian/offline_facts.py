"""Read the facts of a bootstrap for another machine from its packages; none is run."""

from __future__ import annotations

import tarfile
from pathlib import Path

from envbuild.base.debian.package_set import Bootstrap
from envbuild.base.facts import read_probe
from envbuild.base.model import BaseFacts
from envbuild.base.oci.layers import Tree
from envbuild.base.oci.static import keep_file, read_static
from envbuild.context import Context
from envbuild.names import BY_DEBIAN
from envbuild.run import Command
from envbuild.store.atomic import os_errors_as

STATUS = "Package: {name}\nStatus: install ok installed\nVersion: {version}\nArchitecture: {architecture}\n"
SECONDS = 300.0


def machine_of(bootstrap: Bootstrap) -> str | None:
    """Return the machine (uname) that the packages are for; None where all are for any."""
    for package in bootstrap.packages:
        if package.architecture in BY_DEBIAN:
            return BY_DEBIAN[package.architecture].machine
    return None


def read_packages(bootstrap: Bootstrap, machine: str, context: Context) -> BaseFacts:
    """Return the facts of the root that these packages would make; they have to be in the store.

    Raises HostError for a missing dpkg-deb, SpaceError for a full disk, UsageError where the
    packages hold no Python.
    """
    where = f"debian:{bootstrap.suite}"
    tree = Tree(keep_file({}))
    with context.store.work("unrun") as work, os_errors_as(work):
        root = work / "root"
        root.mkdir()
        for package in bootstrap.packages:
            file = context.store.artifact(package.sha256)
            argv = ("dpkg-deb", "--extract", str(file), str(root))
            context.runner(Command(argv=argv, timeout=SECONDS))
        for python in root.glob("usr/lib/python3.*"):
            # its postinst makes it
            (root / "usr/local/lib" / python.name / "dist-packages").mkdir(parents=True)
        status = root / "var/lib/dpkg/status"
        status.parent.mkdir(parents=True, exist_ok=True)
        stanzas = (
            STATUS.format(name=p.name, version=p.version, architecture=p.architecture)
            for p in bootstrap.packages
        )
        status.write_text("\n".join(stanzas), "utf-8")
        _pack_tree(root, work / "root.tar")
        tree.add_layer(work / "root.tar", None, number=0, where=where)
    output = read_static(tree, {}, machine=machine, where=where)
    return read_probe(output, image=where, digest=bootstrap.digest, created=bootstrap.created)


def _pack_tree(root: Path, target: Path) -> None:
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(root, arcname=".")
