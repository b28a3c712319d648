"""What an image says about itself, beside its files.

Its lock, its bill of materials, its digests.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import structs
from packaging.utils import canonicalize_name

from envbuild.base.model import DebianPackage
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import CondaPackage, Lock, PythonPackage
from envbuild.lock.write import write_lock
from envbuild.parts.counters import FORMATS


class ImageNote(msgspec.Struct, frozen=True, kw_only=True):
    """The object ``envbuild.json`` of an image: what made it, and the digest of its tree.

    ``formats`` are the counters of the envbuild that made it; none in images of before they were
    written down.
    """

    recipe: str
    mode: str
    lock: str
    packer: str
    tree: str
    formats: dict[str, int] = {}


def image_note(recipe: str, lock: Lock, *, mode: str, packer: str, tree: str) -> bytes:
    """Return the object that says what made an image."""
    note = ImageNote(
        recipe=recipe, mode=mode, lock=lock_digest(lock), packer=packer, tree=tree, formats=FORMATS
    )
    return msgspec.json.encode(note, order="sorted")


def embedded_lock(lock: Lock) -> str:
    """Return the lock as an image carries it.

    Whether it was proved comes later and would change the bytes.
    """
    return write_lock(structs.replace(lock, proof="not run"))


def write_sbom(recipe: str, lock: Lock) -> bytes:
    """Return a CycloneDX 1.5 bill of materials (JSON) without serial number and time.

    The same lock, the same bytes.
    """
    distro = lock.base.distro.split(" ")[0] or "debian"
    components = [_debian_component(p, distro) for p in lock.installed_debian]
    components += [_python_component(p) for p in lock.installed]
    components += [_conda_component(p) for p in lock.conda]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "name": recipe, "version": lock_digest(lock)}
        },
        "components": sorted(components, key=lambda component: component["bom-ref"]),
    }
    return json.dumps(document, sort_keys=True, indent=1).encode()


def _debian_component(package: DebianPackage, distro: str) -> dict[str, Any]:
    reference = f"pkg:deb/{distro}/{package.name}@{_escape_version(package.version)}?arch={package.architecture}"
    return _make_component(package.name, package.version, reference, package.sha256)


def _python_component(package: PythonPackage) -> dict[str, Any]:
    reference = f"pkg:pypi/{canonicalize_name(package.name)}@{_escape_version(package.version)}"
    return _make_component(package.name, package.version, reference, package.sha256)


def _conda_component(package: CondaPackage) -> dict[str, Any]:
    version = _escape_version(package.version)
    ending = "tar.bz2" if package.file.endswith(".tar.bz2") else "conda"
    where = f"build={package.build}&channel={quote(package.channel, safe='')}"
    what = f"subdir={package.subdir}&type={ending}"
    reference = f"pkg:conda/{package.name}@{version}?{where}&{what}"
    component = _make_component(package.name, package.version, reference, package.sha256)
    if package.license:
        component["licenses"] = [{"license": {"name": package.license}}]
    return component


def _make_component(name: str, version: str, reference: str, sha256: str) -> dict[str, Any]:
    return {
        "type": "library",
        "name": name,
        "version": version,
        "purl": reference,
        "bom-ref": reference,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
    }


def _escape_version(version: str) -> str:
    return version.replace("%", "%25").replace("+", "%2B").replace(":", "%3A")
