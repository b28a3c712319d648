"""From intent and site to an allocation: nodes, processes, GPUs and cores.

What the site has not is an error.
"""

from __future__ import annotations

from envbuild.job.model import Allocation, Intent
from envbuild.job.request.units import parse_memory, parse_walltime, short_memory, time_text
from envbuild.job.schedulers import features_of
from envbuild.job.sites.site import NodeType, Site, refuse
from envbuild.toml import closest


def allocate(intent: Intent, site: Site, *, interactive: bool = False) -> Allocation:
    """Decide what to ask the site for.

    Raises UsageError naming the field and the site's rule: something required is missing, a limit
    is broken, or the site has no way to say it.
    """
    _check_required(intent, site)
    _check_queue(intent, site)
    _check_walltime(intent, site, interactive=interactive)
    _check_array(intent, site)
    found = _of_types(intent, site) if site.type else _of_nodes(intent, site)
    _check_limits(intent, found, site)
    return found


def _check_required(intent: Intent, site: Site) -> None:
    if intent.trial and site.limits.trial_walltime is None:
        refuse(site, "--trial", "this site has no trial runs without an account")
    if intent.trial and intent.account is not None:
        refuse(site, "--trial", "a trial run is one without an account; leave --account out")
    spared = {"partition": site.fields.partition, "account": intent.trial}
    for field in site.fields.required:
        if getattr(intent, field) is not None or spared.get(field):
            continue
        hint = f'--{field} … (or {field} = "…" in [job])'
        if field == "account" and site.limits.trial_walltime:
            hint += f"\n--trial runs without one, for at most {site.limits.trial_walltime}"
        refuse(site, field, "must be given here", hint)
    if intent.account is not None and site.fields.account is None and features_of(site).queues:
        refuse(site, "account", "this site knows no accounts")


def _check_queue(intent: Intent, site: Site) -> None:
    if not features_of(site).queues:
        return
    named = intent.partition
    if named is not None and site.partition and site.queue(named) is None:
        names = [row.name for row in site.partition]
        refuse(site, "partition", f'there is no "{named}"{closest(named, names)}')
    if named is not None and site.pbs.type_is_queue:
        refuse(site, "partition", "the queue follows from the GPUs and nodes here; leave it out")
    known = site.limits_of(named).gpu_types
    if intent.gpu_type is not None and intent.gpu_type not in known:
        rule = f'there are no "{intent.gpu_type}"{closest(intent.gpu_type, known)}'
        refuse(site, "gpus", rule if known else "GPUs have no types here; give the number alone")


def _check_walltime(intent: Intent, site: Site, *, interactive: bool) -> None:
    if intent.walltime is None or not features_of(site).queues:
        return
    limits = site.limits
    most, kind = site.limits_of(intent.partition).walltime, ""
    if intent.trial:
        most, kind = limits.trial_walltime, " of a trial run"
    elif interactive and limits.interactive_walltime:
        most, kind = limits.interactive_walltime, " of an interactive job"
    if most is not None and intent.walltime > parse_walltime(most, site.name):
        refuse(site, "walltime", f"{time_text(intent.walltime)} is above the limit{kind}, {most}")


def _check_array(intent: Intent, site: Site) -> None:
    array, features = intent.array, features_of(site)
    if array is None:
        return
    title, source = features.title, features.array_source
    # schedulers number tasks from 0 or from 1, and PBS refuses an array of one task
    if not features.queues:
        rule = "this machine has no scheduler, so it runs no tasks of --array, --each or --grid"
        loop = 'for x in A B C; do envbuild exec NAME -- python train.py "$x"; done'
        refuse(site, "array", rule, f"one run after the other: {loop}")
    if array.first < features.array_from:
        rule = f"tasks are numbered from {features.array_from} in {title} ({source})"
        refuse(site, "array", rule)
    count = len(array.numbers)
    if count < features.array_least:
        rule = f"an array of one task is none to {title} ({source})"
        refuse(site, "array", rule, "--each takes a table of one row for a plain job")
    _check_most(site, "array", count, site.limits.array, " tasks")


def _check_limits(intent: Intent, found: Allocation, site: Site) -> None:
    limits = site.limits
    _check_most(site, "nodes", found.nodes, site.limits_of(intent.partition).nodes)
    _check_most(site, "gpus", found.nodes * found.gpus, limits.gpus)
    if intent.trial:
        _check_most(
            site, "--trial", found.nodes, limits.trial_units, " units", kind=" of a trial run"
        )
    if intent.launcher == "lightning" and found.gpus == 0:
        rule = "lightning starts one task per GPU, and the job asks for none"
        refuse(site, "launcher", rule, "--gpus N")


def _check_most(
    site: Site, field: str, count: int, most: int | None, noun: str = "", *, kind: str = ""
) -> None:
    """Refuse "8 tasks" where they are above the limit "of a trial run"."""
    if most is not None and count > most:
        refuse(site, field, f"{count}{noun} are above the limit{kind}, {most}")


def _of_nodes(intent: Intent, site: Site) -> Allocation:
    """Allocate where any number of GPUs and cores may be asked for."""
    resources = site.resources
    most = site.limits_of(intent.partition).gpus_per_node
    features = features_of(site)
    if intent.gpus and resources.gpu == "none" and features.queues:
        rule = "its file knows no way to ask for a GPU"
        refuse(site, "gpus", rule, "see [resources] gpu in docs/site.md")
    # without --nodes as few as hold the GPUs: divided, and rounded up
    fewest = -(-intent.gpus // most) if most else 1
    nodes = intent.nodes or max(1, fewest)
    if not features.queues and nodes > 1:
        refuse(site, "nodes", "there is this machine only")
    if features.types_only and nodes > 1:
        rule = "its file has no node types, so a job gets one node"
        refuse(site, "nodes", rule, "see [[type]] in docs/site.md")
    gpus = _share(site, "gpus", intent.gpus, nodes)
    if most is not None and gpus > most:
        refuse(site, "gpus", f"{gpus} per node are above the limit, {most}", f"--nodes {fewest}")
    if intent.memory is not None and resources.memory == "none" and features.queues:
        refuse(site, "memory", "is not asked for here; the site decides")
    processes = _processes(intent, site, nodes, gpus)
    return Allocation(
        nodes=nodes, gpus=gpus, processes=processes, cpus=intent.cpus, memory=intent.memory
    )


def _processes(intent: Intent, site: Site, nodes: int, gpus: int) -> int:
    """Return how many processes each node runs: one per GPU for torchrun and Lightning, else what is asked for."""
    tasks = intent.tasks
    if intent.launcher in ("torchrun", "lightning") and gpus:
        if tasks is not None and tasks != gpus * nodes:
            rule = f"{intent.launcher} starts one per GPU, that is {gpus * nodes}; leave tasks out"
            hint = (
                f"--gpus {tasks} for a GPU each; --gpus 0 for processes that share the cores alone"
            )
            refuse(site, "tasks", rule, hint)
        return gpus
    if intent.launcher == "single":
        if tasks not in (None, 1):
            rule = "launcher single starts one process; more cores are --cpus"
            refuse(site, "tasks", rule, "--launcher mpi")
        return 1
    return _share(site, "tasks", tasks or max(gpus, 1) * nodes, nodes)


def _share(site: Site, field: str, total: int, nodes: int) -> int:
    """Return the part of one node; raises UsageError where nodes would differ."""
    each, rest = divmod(total, nodes)
    if rest:
        refuse(site, field, f"{total} cannot be shared evenly by {nodes} nodes")
    return each


def _of_types(intent: Intent, site: Site) -> Allocation:
    """Allocate where the site hands out nodes, and parts of nodes, by name."""
    row, count = _type(intent, site)
    _check_most(site, "nodes", count, row.most, f" of {row.name}")
    if intent.memory is not None and not _has_memory(row, intent.memory):
        wanted = short_memory(intent.memory, " GiB", " MiB")
        rule = f"{wanted} is more than a {row.name} has, {row.memory}"
        refuse(site, "memory", rule)
    processes = _processes(intent, site, count, row.gpus)
    # who takes a type by its name has all its cores, asked for or not
    cpus = intent.cpus or max(1, row.cpus // processes)
    if processes * cpus > row.cpus:
        refuse(site, "cpus", f"{processes} x {cpus} are more than a {row.name} has, {row.cpus}")
    return Allocation(
        nodes=count, gpus=row.gpus, processes=processes, cpus=cpus, memory=None, type=row.name
    )


def _type(intent: Intent, site: Site) -> tuple[NodeType, int]:
    """Choose the smallest type that holds the job, else as many of the largest as give exactly the GPUs asked for."""
    if intent.gpus == 0:
        return _without_gpu(intent, site)
    # a part of a GPU is never chosen by itself
    whole = [row for row in site.type if row.gpus and not row.shared_gpu]
    whole.sort(key=lambda row: (row.gpus, row.cpus))
    if not whole:
        refuse(site, "gpus", "it has none")
    nodes = intent.nodes or 1
    for row in whole:
        exact = row.gpus * nodes == intent.gpus
        allowed = row.most is None or nodes <= row.most
        if exact and allowed and _holds(row, intent):
            return row, nodes
    largest = whole[-1]
    if intent.nodes is None and intent.gpus % largest.gpus == 0:
        return largest, intent.gpus // largest.gpus
    amounts = ", ".join(map(str, sorted({row.gpus for row in whole})))
    place = f" on {nodes} nodes" if intent.nodes else ""
    rule = f"{intent.gpus} GPUs{place} cannot be had exactly"
    hint = f"it hands out {amounts} per node, or whole multiples of {largest.gpus}"
    return refuse(site, "gpus", rule, hint)


def _without_gpu(intent: Intent, site: Site) -> tuple[NodeType, int]:
    rows = sorted((row for row in site.type if row.gpus == 0), key=lambda row: row.cpus)
    for row in rows:
        if _holds(row, intent):
            return row, intent.nodes or 1
    small = "it has no nodes without GPUs that hold this job"
    return refuse(site, "gpus", small if rows else "a job must ask for GPUs here")


def _has_memory(row: NodeType, wanted: int) -> bool:
    """Tell whether a node of this type has so many MiB; one that says nothing has."""
    return not row.memory or wanted <= parse_memory(row.memory, row.name)


def _holds(row: NodeType, intent: Intent) -> bool:
    if intent.memory is not None and not _has_memory(row, intent.memory):
        return False
    # memory is asked for by node, processes for the whole job
    cores = (intent.cpus or 1) * (intent.tasks or 1)
    return cores <= row.cpus * (intent.nodes or 1)
