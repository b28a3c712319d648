"""Intents that every site is asked for: what it cannot express, it must refuse."""

from __future__ import annotations

from dataclasses import replace

from envbuild import __version__
from envbuild.caches import Caches
from envbuild.job.compose import JobDraft, compose_job
from envbuild.job.model import Image, Intent, Job, Record
from envbuild.job.render.script import render
from envbuild.job.request.intent import Flags, make_intent
from envbuild.job.schedulers import scheduler_of
from envbuild.job.schedulers.protocol import script_text
from envbuild.job.sites.find import load_site
from envbuild.job.sites.site import Site
from envbuild.job.track.records import save_record
from envbuild.recipe.model import JobSection
from envbuild.settings import Settings

IMAGE = Image(path="keras-bert.sif", digest="sha256:" + "1" * 64, lock="sha256:" + "2" * 64)
TRAIN = ("python", "train.py", "--data", "it's data")

CACHES = Caches(
    folders=(
        ("/home/you/.cache/envbuild-caches/downloads", ".cache"),
        ("/home/you/it's/compiled/0123", ".compiled"),
    ),
    variables=(
        ("XDG_CACHE_HOME", ".cache"),
        ("HF_HOME", ".cache/huggingface"),
        ("TRITON_CACHE_DIR", ".compiled/triton"),
        ("CUDA_CACHE_PATH", ".compiled/cuda"),
    ),
    given=(("TORCH_HOME", "/data/torch"),),
    made=("/home/you/.cache/envbuild-caches/downloads", "/home/you/it's/compiled/0123"),
)

SITUATIONS: dict[str, Flags] = {
    "single": Flags(gpus="1", walltime="2h", account="my-lab"),
    "full": Flags(
        gpus="1",
        cpus=4,
        memory="16GiB",
        walltime="1d",
        account="my-lab",
        environment=("WANDB_API_KEY",),
        output="out/{name}.{id}.txt",
        options=("--hold",),
        stage=("data/images", "data/texts.tar.gz"),
    ),
    "torchrun": Flags(gpus="any", walltime="12h", account="my-lab", launcher="torchrun"),
    "torchrun-nodes": Flags(
        gpus="any", nodes=2, walltime="12h", account="my-lab", launcher="torchrun"
    ),
    "lightning": Flags(gpus="any", nodes=2, walltime="12h", account="my-lab", launcher="lightning"),
    "mpi": Flags(gpus="any", walltime="1h", account="my-lab", launcher="mpi"),
    "array": Flags(
        gpus="1", walltime="30m", account="my-lab", array="1-10%2", after=("12",), after_any=("13",)
    ),
    "each": Flags(gpus="1", walltime="30m", account="my-lab"),
    "requeue": Flags(
        notify='curl --data "$ENVBUILD_NAME: $ENVBUILD_CODE" https://hooks.invalid',
        gpus="1",
        walltime="1d",
        account="my-lab",
        requeue=3,
        checkpoint="bert",
        warn="5m",
    ),
    "cpu": Flags(cpus=4, walltime="30m", account="my-lab"),
}
WHOLE = {"amane": "slurm", "tsubame4": "gridengine", "abci3": "pbs", "local": "local"}
"""One site of each scheduler."""
LAUNCHERS = ("full", "torchrun", "torchrun-nodes", "lightning", "mpi", "each", "requeue")
REFUSED = [("local", situation) for situation in ("torchrun-nodes", "lightning", "each")]
EVERY = [(site, situation) for site in WHOLE for situation in LAUNCHERS]
SCRIPTS = [pair for pair in EVERY if pair not in REFUSED]
"""A site and a situation each: the scripts that are compared whole, parsed and judged."""
ROWS = (("python", "train.py", "--lr", "0.1"), ("python", "train.py", "--lr", "0.01; rm -rf /"))
PARTITIONS = {"neuron": "gpu1", "alliance-cedar": None}


def intent_for(site: Site, flags: Flags) -> Intent:
    """Fit what differs from site to site: who wants no account gets none."""
    given = replace(flags, partition=PARTITIONS.get(site.name))
    most = max(
        (row.gpus for row in site.type if not row.shared_gpu),
        default=site.resources.gpus_per_node or 4,
    )
    if site.name == "openpbs-compose":
        given = replace(given, gpus=None, tasks=4 if flags.launcher else None)
    elif flags.nodes:
        given = replace(given, gpus=str(flags.nodes * most))
    elif flags.launcher:
        given = replace(given, gpus=str(most))
    if site.fields.account is None:
        given = replace(given, account=None)
    if site.site.scheduler in ("gridengine", "pbs"):
        given = replace(given, options=("-m n",) if flags.options else ())
    return make_intent(JobSection(), given)


def plan(
    site_name: str, situation: str, settings: Settings, *, interactive: bool = False
) -> tuple[Job, Site]:
    site = load_site(site_name, settings)
    flags = SITUATIONS[situation]
    for before in flags.after:
        record = Record(
            id=before,
            site=site.name,
            name="first",
            script="s",
            log="logs/first-{id}.log",
            receipt="logs/first-{id}.json",
            submitted="2026",
        )
        save_record(record, settings.cwd)
    draft = JobDraft(
        name="keras-bert",
        argv=("bash",) if interactive else TRAIN,
        intent=intent_for(site, flags),
        image=IMAGE,
        rows=ROWS if situation == "each" else (),
        commit="3" * 40,
        interactive=interactive,
    )
    job = replace(
        compose_job(draft, site, settings),
        secrets="/project/.envbuild/jobs/key.env" if flags.environment else None,
        caches=CACHES if situation in ("full", "mpi") else None,
    )
    return job, site


def script(site_name: str, situation: str, settings: Settings) -> str:
    job, site = plan(site_name, situation, settings)
    return render(job, site, scheduler_of(site))


def written(site: str, situation: str, settings: Settings) -> str:
    """Return a script without what is the same in all of them, and without envbuild's version."""
    text = script(site, situation, settings)
    # tested on its own
    text = text.replace(script_text("use.py"), "(use.py)\n")
    return text.replace(f"envbuild {__version__} ", "envbuild VERSION ")
