"""How much of a disk this user may fill: what quota(1) and Lustre's lfs(1) say."""

from __future__ import annotations

import grp
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from envbuild.errors import HostError
from envbuild.host import Space, read_space, user_name
from envbuild.records import frozen_record, replace
from envbuild.run import Command, Runner

SECONDS = 5.0
"""A quota server that is down answers never; nobody waits for it."""
BLOCK = 1024
"""Bytes of the blocks that both programs count in."""


@frozen_record
class Quota:
    """What a user or group has used, and may use, of a file system: bytes, files; None is no limit.

    ``limit`` is the soft one where there is one, ``hard`` the one that no write passes; ``group``
    is the group's name, None for the user's own quota.
    """

    used: int
    limit: int | None
    files_used: int
    files_limit: int | None
    hard: int | None = None
    group: str | None = None

    @property
    def free(self) -> int | None:
        """Return the bytes left, None without a limit."""
        return None if self.limit is None else max(0, self.limit - self.used)

    @property
    def room(self) -> int | None:
        """Return the bytes that can be written, past a soft limit too; None without a limit."""
        limit = self.hard or self.limit
        return None if limit is None else max(0, limit - self.used)

    @property
    def free_files(self) -> int | None:
        """Return the files left, None without a limit."""
        return None if self.files_limit is None else max(0, self.files_limit - self.files_used)

    @property
    def owner(self) -> str:
        """Say whose it is, as it stands before "quota"."""
        return "your" if self.group is None else f"the group {self.group}'s"


def quotas_of(folder: Path, runner: Runner) -> tuple[Quota, ...]:
    """Ask for the quotas on what this user writes into a folder: his own and the files' group's."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    state = existing.stat()
    # the group that a new file gets
    number = state.st_gid if state.st_mode & stat.S_ISGID else os.getegid()
    try:
        group = grp.getgrgid(number).gr_name
    except KeyError:
        group = str(number)
    return read_quotas(read_space(folder), user_name(os.geteuid()), group, runner)


def read_quotas(space: Space, user: str, group: str, runner: Runner) -> tuple[Quota, ...]:
    """Ask for the user's and the group's quota on a folder's file system; none if none is known."""
    quotas: list[Quota] = []
    lustre = space.kind == "lustre"
    for of, name in (("-u", user), ("-g", group)):
        argv = (
            ("lfs", "quota", "-q", of, name, space.mount)
            if lustre
            else ("quota", "-w", "-p", of, name)
        )
        try:
            answer = runner(Command(argv=argv, timeout=SECONDS), check=False)
        except HostError:
            break
        found = parse_quota(
            answer.stdout, (space.mount,) if lustre else (space.device, space.mount)
        )
        if found is not None:
            quotas.append(found if of == "-u" else replace(found, group=name))
        if answer.timed_out:
            break
    return tuple(quotas)


def tightest(quotas: Iterable[Quota]) -> Quota | None:
    """Return the quota that leaves the fewest bytes, one without a limit if there is no other."""
    return min(
        quotas, key=lambda quota: float("inf") if quota.free is None else quota.free, default=None
    )


def parse_quota(text: str, names: Sequence[str]) -> Quota | None:
    """Find a file system in what ``quota -w -p`` or ``lfs quota -q`` say: name, two groups of four.

    A group is: used ("*" behind it when that is too much), soft limit, hard limit, grace.  A soft
    limit counts: past it a site stops writing after some days.  A long name stands on a line of its
    own.
    """
    for name in filter(None, names):
        number = r"\s+(\d{1,18})\*?\s+(\d{1,18})\s+(\d{1,18})\s+\S+"
        found = re.search(rf"^\s*{re.escape(name)}{number}{number}\s*$", text, re.MULTILINE)
        if found:
            used, soft, hard, files, files_soft, files_hard = map(int, found.groups())
            limit, files_limit = soft or hard, files_soft or files_hard
            return Quota(
                used=used * BLOCK,
                limit=_zero_as_none(limit * BLOCK),
                hard=_zero_as_none(hard * BLOCK),
                files_used=files,
                files_limit=_zero_as_none(files_limit),
            )
    return None


def _zero_as_none(limit: int) -> int | None:
    return limit or None
