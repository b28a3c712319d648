"""What a failure of apt or mmdebstrap means, and what helps."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild import limits
from envbuild.base.debian.distribution import Distribution
from envbuild.context import Context
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
from envbuild.store.atomic import os_errors_as
from envbuild.store.layout import Store

FULL = re.compile(r"No space left on device|Disk quota exceeded|enough free space in")
TOO_MANY_FILES = re.compile(r"Too many open files")
UNSIGNED = re.compile(r"NO_PUBKEY|is not signed|signatures? (?:couldn't be verified|were invalid)")
NOT_SENT = re.compile(r"Failed to fetch \S+Release  \d{3}  ")
"""A status of HTTP in the place of a signed file, which apt then calls not signed."""
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
    if UNSIGNED.search(text) and not NOT_SENT.search(text):
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
    return _mirror_error(what, url, distribution)


def too_slow_error(url: str, distribution: Distribution) -> NetworkError:
    """Return the error for a mirror whose lists hardly come."""
    most = f"{limits.STALL_BYTES // limits.KIB} KiB in {limits.STALL_SECONDS:.0f} s"
    what = f"the {distribution.title} mirror is too slow: it sent less than {most}"
    return _mirror_error(what, url, distribution)


def _mirror_error(what: str, url: str, distribution: Distribution) -> NetworkError:
    variable = f"ENVBUILD_{distribution.name.upper()}_MIRROR"
    hint = f"name another mirror ({variable}=…), or check the proxy"
    return NetworkError(what, where=redact(url), hint=hint)


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


DPKG_ERROR = re.compile(r"dpkg: error processing (?:package|archive) (\S+)")
OTHER_GROUP = re.compile(r"owned by a different user: .* gid:(\d+) pw_gid:(?!\1 )")
"""What newuidmap says of a process whose group is not the one of /etc/passwd."""
MOST_PACKAGES = 3
"""Of how many failed packages the error shows the lines."""
LONGEST_LINE = 240
"""mmdebstrap repeats dpkg's command line, which names every package."""


def explain_failure(error: ToolFailedError, context: Context) -> EnvbuildError:
    """Return the error for a failed mmdebstrap; its output goes into a log of the store."""
    text = error.stderr + error.stdout
    log = _keep_log(text, context.store)
    packages = [*dict.fromkeys(DPKG_ERROR.findall(text))]
    if OTHER_GROUP.search(text):
        what = "this shell has another primary group than the login, so newuidmap gives it no ids"
        hint = "leave the shell that newgrp or sg started, then start again"
    elif re.search(r"newuidmap|subuid|unshare\(\) failed|invalid mapping", text):
        # the kernel says "No space left on device" to one namespace too many,
        # so this comes before the disk
        what = "mmdebstrap cannot make a user namespace, which it needs to make a Debian base without root"
        hint = (
            "root can mend it: install newuidmap (Debian's package uidmap); sysctl user.max_user_namespaces=10000; and the lines in\n"
            "/etc/subuid and /etc/subgid that envbuild doctor names\n"
            "or make the image on another machine and copy the .sif here"
        )
    elif FULL.search(text):
        hint = "1 GB is needed in each: point TMPDIR or ENVBUILD_STORE to a larger file system"
        where = f"{context.settings.tmpdir} or {context.store.root}"
        return SpaceError("the disk is full", where=where, hint=hint)
    elif packages:
        what = f"dpkg could not install {', '.join(packages)}"
        hint = "leave out of [system] what brings a package that cannot be installed"
    else:
        what, hint = "mmdebstrap could not make the Debian base", ""
    lines = _dpkg_lines(text) if packages else _error_lines(error)
    return ToolFailedError.of(
        error,
        "\n".join([what, *lines]),
        hint="\n".join(filter(None, (hint, f"the whole log: {log}"))),
    )


def _keep_log(text: str, store: Store) -> Path:
    log = store.new_log("debian")
    with os_errors_as(log):
        log.write_text(text, encoding="utf-8")
    return log


def _dpkg_lines(text: str) -> list[str]:
    """Return each of dpkg's errors with the line before it (the script's) and after it."""
    lines = text.splitlines()
    places = [number for number, line in enumerate(lines) if DPKG_ERROR.match(line)]
    shown: list[str] = []
    for place in places[:MOST_PACKAGES]:
        shown += lines[max(place - 1, 0) : place + 2]
    return [_shorten(line) for line in shown]


def _error_lines(error: ToolFailedError) -> list[str]:
    found = [line for line in error.stderr.splitlines() if line.startswith("E: ")]
    return [_shorten(line) for line in found or error.what.splitlines()]


def _shorten(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …"
