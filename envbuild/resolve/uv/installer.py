"""The installer that a build uses: the same uv that resolves here, as a wheel for the base."""

from __future__ import annotations

import msgspec

from envbuild.base.model import BaseFacts
from envbuild.limits import UNREADABLE
from envbuild.resolve.model import Found, Request, Resolver
from envbuild.resolve.platform import python_minor, uv_platform
from envbuild.store.atomic import write_bytes
from envbuild.store.layout import Store
from envbuild.tools import installed_version

INSTALLER = "uv"
OLDEST_PYTHON = (3, 8)
"""What uv's metadata asks for.  Its wheel is a program, though, that installs for Python 3.6 as well."""


def find_installer(resolver: Resolver, facts: BaseFacts, store: Store) -> tuple[Found, ...]:
    """Return the installer's wheel; which file it is never changes for one version, so it is asked for once."""
    path = (
        store.folder("metadata")
        / f"{INSTALLER}-{installed_version(INSTALLER)}-{uv_platform(facts)}.json"
    )
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Found, ...])
    except (OSError, *UNREADABLE):
        pass  # asked for the first time, or cut short by a full disk
    python = (
        facts.python if python_minor(facts) >= OLDEST_PYTHON else ".".join(map(str, OLDEST_PYTHON))
    )
    bare = BaseFacts(image=facts.image, python=python, machine=facts.machine, glibc=facts.glibc)
    found = resolver(
        Request(requirements=(f"{INSTALLER}=={installed_version(INSTALLER)}",), facts=bare)
    ).packages
    write_bytes(path, msgspec.json.encode(found))
    return found
