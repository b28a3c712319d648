"""How much of a disk this user may fill: what quota(1) and Lustre's lfs(1) say, where a site has them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from envbuild.errors import HostError
from envbuild.host import Space
from envbuild.run import Command, Runner

SECONDS = 5.0
"""A quota server that is down answers never; nobody waits for it."""
BLOCK = 1024
"""Bytes of the blocks that both programs count in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """What a user has used of a file system, and may use: bytes and files; None where there is no limit."""

    used: int
    limit: int | None
    files_used: int
    files_limit: int | None

    @property
    def free(self) -> int | None:
        """Return the bytes left, None without a limit."""
        return None if self.limit is None else max(0, self.limit - self.used)

    @property
    def free_files(self) -> int | None:
        """Return the files left, None without a limit."""
        return None if self.files_limit is None else max(0, self.files_limit - self.files_used)


def read_quota(space: Space, user: str, runner: Runner) -> Quota | None:
    """Ask for the user's quota on the file system of a folder; None where nobody knows of one."""
    lustre = space.kind == "lustre"
    argv = ("lfs", "quota", "-q", "-u", user, space.mount) if lustre else ("quota", "-w", "-p", "-u", user)
    try:
        answer = runner(Command(argv=argv, timeout=SECONDS), check=False)
    except HostError:
        return None
    return parse_quota(answer.stdout, (space.mount,) if lustre else (space.device, space.mount))


def parse_quota(text: str, names: tuple[str, ...]) -> Quota | None:
    """Find a file system in the output of ``quota -w -p`` or ``lfs quota -q``: name, then two groups of four.

    A group is: used ("*" behind it when that is too much), soft limit, hard limit, grace.  A soft limit counts: past
    it a site stops writing after some days.  A long name stands on a line of its own.
    """
    for name in filter(None, names):
        number = r"\s+(\d+)\*?\s+(\d+)\s+(\d+)\s+\S+"
        found = re.search(rf"^\s*{re.escape(name)}{number}{number}\s*$", text, re.MULTILINE)
        if found:
            used, soft, hard, files, files_soft, files_hard = map(int, found.groups())
            limit, files_limit = soft or hard, files_soft or files_hard
            return Quota(
                used=used * BLOCK,
                limit=limit * BLOCK or None,
                files_used=files,
                files_limit=files_limit or None,
            )
    return None
