"""What is allowed and yet goes wrong: reported before a job is submitted, never refused."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

from envbuild.check.checks.sources import find_sources
from envbuild.errors import UsageError
from envbuild.job.model import Job
from envbuild.job.schedulers import features_of
from envbuild.job.sites.site import Site
from envbuild.limits import TEXT, read_whole

SQLITE = re.compile(r"sqlite(\+\w+)?:///")
LIGHTNING = re.compile(r"^\s*(?:import|from) +(?:pytorch_)?lightning\b")


def processes(job: Job) -> int:
    """Return how many processes run the command at the same time, as far as the job says."""
    array = job.intent.array
    tasks = min(len(array.numbers), array.limit or len(array.numbers)) if array else 1
    several = job.intent.launcher in ("mpi", "lightning", "torchrun")
    return tasks * (job.allocation.nodes * job.allocation.processes if several else 1)


def shared_sqlite(job: Job, project: Path) -> str | None:
    """Return a warning where several processes would write to one SQLite file, else None.

    Its locks do not work on most network file systems (sqlite.org, "How To Corrupt", 2.1); Optuna's
    workers are the usual case.
    """
    count = processes(job)
    if count < 2:
        return None
    words = chain.from_iterable(job.rows or (job.argv,))
    named = next((word for word in words if SQLITE.search(word)), None)
    place = named or _in_source(project, SQLITE)
    if place is None:
        return None
    return (
        f"{place}: {count} processes would write to one SQLite file, whose locks fail on most shared file systems; "
        "Optuna's JournalStorage, or a database server, is made for it"
    )


def lonely_lightning(job: Job, site: Site, project: Path) -> str | None:
    """Return a warning where Lightning would take a job of one task for its whole world, else None.

    It then refuses to use several GPUs, or nodes.
    """
    features, grant = features_of(site), job.allocation
    many = grant.gpus * grant.nodes > 1
    if not features.lightning_counts_tasks or job.intent.launcher != "single" or not many:
        return None
    place = _in_source(project, LIGHTNING)
    if place is None:
        return None
    needs = f"on {features.title}, Lightning uses several GPUs only with a task for each"
    return f"{place}: {needs}: --launcher lightning"


def _in_source(project: Path, pattern: re.Pattern[str]) -> str | None:
    for path in find_sources(project):
        try:
            lines = read_whole(path, TEXT).decode("utf-8", "replace").splitlines()
        except (OSError, UsageError):
            continue
        for number, line in enumerate(lines, 1):
            if pattern.search(line) and not line.lstrip().startswith("#"):
                return f"{path.relative_to(project)}, line {number}"
    return None
