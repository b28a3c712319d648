"""Limits and dialects of sites: what is refused names the field and the rule; what is granted is exact."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.errors import UsageError
from envbuild.job.model import Array, Intent
from envbuild.job.request.allocate import allocate
from envbuild.job.sites.find import load_site
from envbuild.job.sites.site import Site
from envbuild.settings import load_settings

SETTINGS = load_settings({}, None)


class Known(TypedDict):
    """What TSUBAME4 wants of every job."""

    account: str
    walltime: int


T4: Known = {"account": "lab", "walltime": 3600}


def site(name: str) -> Site:
    return load_site(name, SETTINGS)


@pytest.mark.parametrize(
    ("name", "intent", "message"),
    [
        ("tsubame4", Intent(gpus=1, account="lab"), "walltime: must be given here"),
        ("tsubame4", Intent(gpus=1, walltime=60), "account: must be given here"),
        ("tsubame4", Intent(gpus=3, **T4), "gpus: 3 GPUs cannot be had exactly"),
        ("tsubame4", Intent(gpus=1, account="lab", walltime=90000), "walltime: 1d1h is above the limit, 24h"),
        ("tsubame4", Intent(gpus=1, trial=True, walltime=600), "walltime: 10m is above the limit of a trial run, 3m"),
        ("tsubame4", Intent(gpus=1, trial=True, **T4), "--trial: a trial run is one without an account; leave --account out"),
        ("tsubame4", Intent(gpus=16, trial=True, walltime=60), "--trial: 4 units are above the limit of a trial run, 2"),
        ("tsubame4", Intent(gpus=4, memory=10**6, **T4), "memory: 1000000 MiB is more than a node_f has, 768GB"),
        ("tsubame4", Intent(gpus=1, array=Array(first=0, last=3), **T4), "array: tasks are numbered from 1 in Grid Engine (qsub(1), -t)"),
        ("abci3", Intent(gpus=1), "account: must be given here"),
        ("abci3", Intent(gpus=2, account="g"), "gpus: 2 GPUs cannot be had exactly"),
        ("abci3", Intent(gpus=8 * 129, account="g"), "nodes: 129 of rt_HF are above the limit, 128"),
        ("abci3", Intent(gpus=1, account="g", partition="rt_HF"), "partition: the queue follows from the GPUs and nodes here; leave it out"),
        ("abci3", Intent(gpus=1, account="g", array=Array(first=3, last=3)), "array: an array of one task is none to PBS (qsub(1B), -J)"),
        ("amane", Intent(gpus=1, trial=True), "--trial: this site has no trial runs without an account"),
        ("amane", Intent(gpus=1, account="lab"), "account: this site knows no accounts"),
        ("amane", Intent(gpus=1, gpu_type="v100"), 'gpus: there are no "v100"; known: tesla'),
        ("amane", Intent(gpus=2, nodes=1), "gpus: 2 per node are above the limit, 1"),
        ("amane", Intent(gpus=5), "nodes: 5 are above the limit, 4"),
        ("amane", Intent(gpus=1, tasks=4), "tasks: launcher single starts one process; more cores are --cpus"),
        ("plai", Intent(gpus=3, nodes=2), "gpus: 3 cannot be shared evenly by 2 nodes"),
        ("plai", Intent(launcher="lightning"), "launcher: lightning starts one task per GPU, and the job asks for none"),
        ("plai", Intent(gpus=4, tasks=2, launcher="torchrun"), "tasks: torchrun starts one per GPU, that is 4; leave tasks out"),
        ("openpbs-compose", Intent(gpus=1), "gpus: its file knows no way to ask for a GPU"),
        ("local", Intent(nodes=2), "nodes: there is this machine only"),
    ],
)  # fmt: skip
def test_what_a_site_refuses(name: str, intent: Intent, message: str) -> None:
    with pytest.raises(UsageError) as told:
        allocate(intent, site(name))
    assert str(told.value) == f"site {name}: {message}"


@pytest.mark.parametrize(("name", "first"), [("plai", 0), ("tsubame4", 1), ("abci3", 0)])
def test_an_array_above_the_sites_limit(name: str, first: int) -> None:
    """As site init writes it down from MaxArraySize, max_aj_tasks and max_array_size."""
    limits = msgspec.structs.replace(site(name).limits, array=1000)
    found = msgspec.structs.replace(site(name), limits=limits)
    account = None if name == "plai" else "lab"
    intent = Intent(
        gpus=1, account=account, walltime=3600, array=Array(first=first, last=first + 999)
    )
    allocate(intent, found)
    more = replace(intent, array=Array(first=first, last=first + 1000))
    with pytest.raises(UsageError, match="array: 1001 tasks are above the limit, 1000"):
        allocate(more, found)


def test_interactive_jobs_have_a_limit_of_their_own() -> None:
    intent = Intent(gpus=1, account="g", walltime=13 * 3600)
    allocate(intent, site("abci3"))
    with pytest.raises(UsageError, match="13h is above the limit of an interactive job, 12h"):
        allocate(intent, site("abci3"), interactive=True)


@given(
    st.sampled_from(["tsubame3", "tsubame4", "abci2", "abci3"]),
    st.integers(1, 64),
    st.none() | st.integers(1, 8),
)
def test_a_granted_job_has_exactly_the_gpus_it_asked_for(
    name: str, gpus: int, nodes: int | None
) -> None:
    try:
        found = allocate(Intent(gpus=gpus, nodes=nodes, launcher="torchrun", **T4), site(name))
    except UsageError:
        return
    assert found.nodes * found.gpus == gpus
    assert nodes in (None, found.nodes)
    assert found.processes == found.gpus


@pytest.mark.parametrize(
    ("gpus", "kind", "count"),
    [(1, "gpu_1", 1), (2, "node_h", 1), (4, "node_f", 1), (8, "node_f", 2)],
)
def test_the_smallest_type_that_holds_the_job(gpus: int, kind: str, count: int) -> None:
    found = allocate(Intent(gpus=gpus, **T4), site("tsubame4"))
    assert (found.type, found.nodes) == (kind, count)


def test_more_cores_take_a_larger_type() -> None:
    assert allocate(Intent(gpus=1, cpus=16, **T4), site("tsubame4")).type == "node_q"
    assert allocate(Intent(cpus=10, **T4), site("tsubame4")).type == "cpu_16"
