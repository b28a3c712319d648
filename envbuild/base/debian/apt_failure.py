"""What a failure of apt means, and what helps."""

from __future__ import annotations

import re

from envbuild.base.debian.distribution import Distribution
from envbuild.errors import (
    EnvbuildError,
    HostError,
    NetworkError,
    NoSolutionError,
    SpaceError,
    ToolFailedError,
)
from envbuild.net.redact import redact
from envbuild.net.web import CERTIFICATE_HINT, UNTRUSTED

FULL = re.compile(r"No space left on device|Disk quota exceeded|enough free space in")
TOO_MANY_FILES = re.compile(r"Too many open files")
UNSIGNED = re.compile(r"NO_PUBKEY|is not signed|signatures? (?:couldn't be verified|were invalid)")
NO_SUITE = re.compile(r"404\s+Not Found|does not have a Release file")
NO_CERTIFICATE = re.compile(r"[Cc]ertificate verif|certificate is NOT trusted")
REASON = re.compile(r"^[EW]: (.+)$", re.MULTILINE)
UNMET = re.compile(r"The following packages have unmet dependencies:\n((?: .+\n)+)")


def update_error(
    error: ToolFailedError, suite: str, url: str, distribution: Distribution
) -> EnvbuildError:
    """Return what a failed ``apt-get update`` means: of the disk, the keys, the mirror."""
    text = error.stderr + error.stdout
    if FULL.search(text):
        return _full_error(error)
    if TOO_MANY_FILES.search(text):
        hint = "ulimit -n shows the limit of this shell"
        return HostError("apt may not open as many files as it needs", hint=hint)
    where = redact(url)
    if UNSIGNED.search(text):
        return HostError(
            f"the signature of {suite} could not be verified",
            where=where,
            hint=f"install {distribution.title}'s keys, as root: "
            f"apt-get install {distribution.kept_by}",
        )
    if NO_CERTIFICATE.search(text):
        return NetworkError(f"the mirror {UNTRUSTED}", where=where, hint=CERTIFICATE_HINT)
    if NO_SUITE.search(text):
        what = f"the mirror has no release {suite}"
    else:
        reasons = REASON.findall(text)
        reason = redact(reasons[0]) if reasons else error.what
        what = f"the {distribution.title} mirror did not answer as it should: {reason}"
    variable = f"ENVBUILD_{distribution.name.upper()}_MIRROR"
    hint = f"name another mirror ({variable}=…), or check the proxy"
    return NetworkError(what, where=where, hint=hint)


def install_error(error: ToolFailedError, wanted: list[str], suite: str) -> EnvbuildError:
    """Return what a failed ``apt-get install`` means: of the disk, or of the packages."""
    text = error.stdout + error.stderr
    if FULL.search(text):
        return _full_error(error)
    unmet = UNMET.search(text)
    if unmet:
        return NoSolutionError(
            f"these Debian packages cannot be installed together:\n{unmet[1].rstrip()}",
            where=f"{suite}: {' '.join(wanted[:12])}",
            hint="leave out one of the packages under [system], or take another release",
        )
    return HostError(error.what, where=f"apt-get install ({suite})")


def _full_error(error: ToolFailedError) -> SpaceError:
    return SpaceError(
        f"the file system is full: {error.what}",
        where="ENVBUILD_STORE",
        hint="free space there, or point ENVBUILD_STORE to a larger file system",
    )
