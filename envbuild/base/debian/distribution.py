"""Where packages come from: Debian's main section, Ubuntu's main and universe."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.context import Context
from envbuild.errors import HostError, UsageError
from envbuild.names import Texts
from envbuild.records import frozen_record
from envbuild.run import Command
from envbuild.tools import find_tool


@frozen_record
class Distribution:
    """A family of releases; ``suites`` are their names by the version that /etc/os-release tells.

    ``kept_by`` are the packages that bring its keys to other machines.
    """

    name: str
    components: str
    keyring: Path
    kept_by: str
    suites: dict[str, str]
    moving: Texts = ()

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name.capitalize()


DEBIAN = Distribution(
    name="debian",
    components="main",
    keyring=Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    kept_by="debian-archive-keyring",
    suites={"10": "buster", "11": "bullseye", "12": "bookworm", "13": "trixie"},
    moving=("stable", "oldstable", "oldoldstable", "testing", "unstable", "sid"),
)
UBUNTU = Distribution(
    name="ubuntu",
    components="main universe",
    keyring=Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
    kept_by="ubuntu-archive-keyring",
    suites={
        "18.04": "bionic",
        "20.04": "focal",
        "22.04": "jammy",
        "24.04": "noble",
        "26.04": "resolute",
    },
)
DISTRIBUTIONS = {one.name: one for one in (DEBIAN, UBUNTU)}


def release_of(distro: str) -> tuple[Distribution, str]:
    """Return distribution and suite of "debian 12" or "ubuntu 22.04".

    Raises UsageError for a base whose Debian packages cannot be locked.
    """
    name, _, version = distro.partition(" ")
    found = DISTRIBUTIONS.get(name)
    suite = found.suites.get(version) if found else None
    if found is None or suite is None:
        releases: list[str] = []
        for one in DISTRIBUTIONS.values():
            releases += [f"{one.title} {version}" for version in one.suites]
        known = ", ".join(releases)
        raise UsageError(
            f"the base is {distro or 'no known distribution'}: its system packages cannot be locked",
            where="[system] packages",
            hint=f"known are {known}; on others install them by [system] post lines, or take an image that has them",
        )
    return found, suite


def mirror_of(distribution: Distribution, context: Context) -> str:
    """Return a distribution's mirror: the configured one, else that of this machine's apt.

    Raises UsageError for a configured one that is no URL, HostError where apt knows none.
    """
    settings = context.settings
    key = f"{distribution.name}_mirror"
    configured = settings.debian_mirror if distribution is DEBIAN else settings.ubuntu_mirror
    if configured is not None:
        url = configured.rstrip("/")
        if not re.fullmatch(r"(https?|file|copy):/[^\s\[\]\"\\]+", url):
            where = settings.origin.get(key, f"mirrors.{distribution.name}")
            raise UsageError(
                f"is not the URL of a {distribution.title} mirror: {url!r}", where=where
            )
        return url
    find_tool("apt-get", context.settings, context.runner)
    env = {name: value for name, value in settings.environment.items() if name != "APT_CONFIG"}
    command = Command(
        argv=("apt-get", "update", "--print-uris"), env={**env, "LC_ALL": "C"}, timeout=60
    )
    printed = context.runner(command, check=False).stdout
    for url, suite in re.findall(r"^'(\S+)/dists/([a-z]+)/(?:In)?Release'", printed, re.MULTILINE):
        if suite in distribution.suites.values() or suite in distribution.moving:
            return str(url)
    variable = f"ENVBUILD_{distribution.name.upper()}_MIRROR"
    raise HostError(
        f"apt on this machine uses no {distribution.title} mirror",
        hint=f"name one: {variable}=https://…/{distribution.name}, or "
        f'{distribution.name} = "…" under [mirrors] of the settings file',
    )
