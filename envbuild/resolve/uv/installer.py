"""The installer that a build uses: the same uv that resolves here, as a wheel for the base."""

from __future__ import annotations

import msgspec

from envbuild.base.model import BaseFacts
from envbuild.context import Context
from envbuild.limits import decode_kept
from envbuild.resolve.model import Found, Request, Resolver
from envbuild.resolve.platform import python_minor, uv_platform
from envbuild.resolve.sources.pinned_wheel import pinned_wheel
from envbuild.store.atomic import write_bytes
from envbuild.store.units import join_numbers
from envbuild.tools import installed_version

INSTALLER = "uv"
OLDEST_PYTHON = (3, 8)
"""What uv's metadata asks for.  Its wheel is a program, though, that installs for Python 3.6 as
well."""


def find_installer(resolver: Resolver, facts: BaseFacts, context: Context) -> tuple[Found, ...]:
    """Return the installer's wheel, which is asked for once for each version.

    Raises NoSolutionError in the resolver's words where the index has no wheel of it for the base.
    """
    version = installed_version(INSTALLER)
    name = f"{INSTALLER}-{version}-{uv_platform(facts)}.json"
    path = context.store.folder("metadata") / name
    kept = decode_kept(path, tuple[Found, ...])
    if kept is not None:
        return kept
    oldest = join_numbers(OLDEST_PYTHON)
    python = facts.python if python_minor(facts) >= OLDEST_PYTHON else oldest
    bare = BaseFacts(image=facts.image, python=python, machine=facts.machine, glibc=facts.glibc)
    wheel = pinned_wheel(INSTALLER, version, bare, context)
    if wheel is not None:
        found: tuple[Found, ...] = (wheel,)
    else:
        request = Request(requirements=(f"{INSTALLER}=={version}",), facts=bare)
        found = resolver(request).packages
    write_bytes(path, msgspec.json.encode(found))
    return found
