"""What the container runtime says when it fails, what that means, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from envbuild.errors import EnvbuildError, HostError, SpaceError, ToolFailedError, UsageError
from envbuild.run import Result, failure


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFailure:
    """A text of the runtime, what it means and what to do about it."""

    pattern: str
    what: str
    hint: str
    error: type[EnvbuildError] = HostError


KNOWN_FAILURES = (
    KnownFailure(
        pattern=r"Requesting capability set",
        what="root here lacks capabilities that the container runtime asks for",
        hint="run as an ordinary user, or in a namespace of its own: apptainer exec --userns …",
    ),
    KnownFailure(
        pattern=r"maximum number of user namespaces exceeded|user\.max_user_namespaces",
        what="user namespaces are switched off or used up on this machine",
        hint="ask its administrator for user.max_user_namespaces > 0 (or the package apptainer-suid);\n"
        "meanwhile build on another machine and copy the .sif: envbuild def writes what it needs",
    ),
    KnownFailure(
        pattern=r"requires either a suid installation or unprivileged user namespaces|no user namespace available|"
        r"used without sandbox image or user namespaces",
        what="images cannot be built here: no user namespaces and no setuid installation",
        hint="build on another machine (envbuild def writes the definition) and copy the .sif here",
    ),
    KnownFailure(
        pattern=r"failed to open /dev/fuse|fuse: device not found|fuse: mount failed",
        what="/dev/fuse cannot be used, so the image cannot be mounted",
        hint="root can mend it: modprobe fuse; chmod 666 /dev/fuse\nwithout root: apptainer exec --unsquash …",
    ),
    KnownFailure(
        pattern=r"unknown compression algorithm value 6",
        what="this container runtime cannot open the image, which is packed with zstd",
        hint="make it here: envbuild make packs with gzip where the runtime reads no zstd\n"
        "or use Apptainer 1.4 or newer",
    ),
    KnownFailure(
        pattern=r"buildx component is missing",
        what="this docker cannot build: it has no BuildKit",
        hint="install its plugin buildx (package docker-buildx or docker-buildx-plugin), or podman;\n"
        "or build without an engine: envbuild make --mode fakeroot",
    ),
    KnownFailure(
        pattern=r"[Cc]annot connect to the Docker daemon|permission denied while trying to connect to the Docker",
        what="no Docker engine answers",
        hint="start one (systemctl start docker), or name it: DOCKER_HOST=unix:///path/docker.sock;\n"
        "or build without an engine: envbuild make --mode fakeroot",
    ),
    KnownFailure(
        pattern=r"[Nn]o space left on device|[Dd]isk quota exceeded",
        what="a file system is full",
        hint="free some space (quota -s shows a quota), or point TMPDIR and ENVBUILD_STORE at a larger disk "
        "(envbuild doctor shows both)",
        error=SpaceError,
    ),
    KnownFailure(
        # Go's runtime, before the program itself begins
        pattern=r"failed to reserve page summary memory|runtime: (?:cannot allocate memory|out of memory)|"
        r"failed to create new OS thread|pthread_create failed: Resource temporarily unavailable",
        what="the container runtime gets too little memory, or too few processes, to start",
        hint="ulimit -v and ulimit -u show the limits of this shell; on a cluster, work in a job",
    ),
    KnownFailure(
        pattern=r"destination (?P<value>\S+) doesn't exist in container",
        what="the image has no {value} to bind to",
        hint="bind to a folder that every Debian and Ubuntu image has: /mnt",
    ),
    KnownFailure(
        pattern=r"mount source (?P<value>.+?) doesn't exist",
        what="{value} is to be bound but does not exist",
        hint="check the path",
        error=UsageError,
    ),
    KnownFailure(
        pattern=r"newuidmap|newgidmap|not found in /etc/sub[ug]id|no mapping entry found in /etc/sub[ug]id|"
        r"sub[ug]id.*(?:invalid|overlap)",
        what="the user's lines in /etc/subuid and /etc/subgid, or the programs that use them, do not work",
        hint="root can mend it: apt-get install uidmap, and the lines that envbuild doctor names\n"
        "after newgrp or sg, leave that shell: it has another primary group than the login",
    ),
    KnownFailure(
        pattern=r"fakeroot: error while starting the `faked' daemon|GLIBC_\S+' not found.*fakeroot",
        what="the host's fakeroot does not run in this image (another C library)",
        hint="root can add a line for the user to /etc/subuid and /etc/subgid, then fakeroot is not needed",
    ),
    KnownFailure(
        pattern=r"stat /bin/sh: no such file or directory",
        what="the image has no shell (/bin/sh), and a build from a definition runs in one",
        hint="envbuild make --mode flat needs none; or take another base",
    ),
    KnownFailure(
        pattern=r"could not open image (?P<value>.+?): failed to retrieve path",
        what="there is no image {value}",
        hint="check the path, or build it: envbuild make",
        error=UsageError,
    ),
    KnownFailure(
        pattern=r"image format not recognized|trying to read the squashfs image|"
        r"while checking container encryption: could not open image",
        what="the image is damaged, or no image at all",
        hint="copy or build it again",
    ),
    KnownFailure(
        pattern=r'"(?P<value>[^"]+)": executable file not found',
        what="the image has no program {value}",
        hint="check the spelling; what the image runs is looked up on its own PATH",
        error=UsageError,
    ),
)


PROGRESS = re.compile(
    r"^(?:INFO: .*|WARNING: (?:While bind mounting|Overriding HOME environment) .*|\+ set -\w+)\n",
    re.MULTILINE,
)
"""Lines that the runtime prints in every build: the reason of a failure is none of them."""


def find_known(text: str) -> KnownFailure | None:
    """Return the known failure whose message needs no value of the text; None for another text."""
    for known in KNOWN_FAILURES:
        if "{value}" not in known.what and re.search(known.pattern, text):
            return known
    return None


def explain_failure(result: Result) -> EnvbuildError:
    """Turn a failed run of the runtime into the error that says what to do.

    Of an unknown text the last lines are kept, without those of every build.
    """
    text = re.sub(r"\x1b\[[0-9;]*m", "", f"{result.stderr}\n{result.stdout}")
    for known in KNOWN_FAILURES:
        found = re.search(known.pattern, text)
        if found is None:
            continue
        what = known.what.format(**found.groupdict())
        if issubclass(known.error, HostError):
            return ToolFailedError.of(
                result,
                what,
                hint=known.hint,
            )
        return known.error(what, hint=known.hint)
    return failure(without_progress(result))


def without_progress(result: Result) -> Result:
    """Leave out the lines that the runtime prints in every build."""
    return replace(result, stderr=PROGRESS.sub("", result.stderr))
