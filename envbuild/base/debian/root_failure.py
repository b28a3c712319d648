"""Explain a failure of mmdebstrap, and keep its whole output."""

from __future__ import annotations

import re
from pathlib import Path

from envbuild.base.debian.apt_failure import FULL
from envbuild.context import Context
from envbuild.errors import EnvbuildError, SpaceError, ToolFailedError
from envbuild.store.atomic import os_errors_as
from envbuild.store.layout import Store

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
