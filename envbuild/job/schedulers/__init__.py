"""The schedulers: each builds commands and reads their output; none starts anything."""

from __future__ import annotations

from envbuild.job.schedulers.features import Features
from envbuild.job.schedulers.gridengine import GridEngine
from envbuild.job.schedulers.local import Local
from envbuild.job.schedulers.pbs import Pbs
from envbuild.job.schedulers.protocol import Scheduler
from envbuild.job.schedulers.slurm import Slurm
from envbuild.job.sites.site import Site

SCHEDULERS: dict[str, Scheduler] = {
    scheduler.features.name: scheduler for scheduler in (Slurm(), GridEngine(), Pbs(), Local())
}


def scheduler_of(site: Site) -> Scheduler:
    """Return the scheduler that a site runs."""
    return SCHEDULERS[site.site.scheduler]


def features_of(site: Site) -> Features:
    """Return what a site's scheduler can do."""
    return scheduler_of(site).features
