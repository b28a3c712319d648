"""How the command starts: once, by torchrun, one task per GPU, or by MPI.

Who and where comes from the allocation.
"""

from __future__ import annotations

import shlex
import textwrap

from envbuild.job.model import Job
from envbuild.job.render.staging import staged_data
from envbuild.job.schedulers.protocol import Scheduler, join_words, script_text
from envbuild.job.sites.site import Site
from envbuild.names import Texts

PORT = "export MASTER_PORT=$((10000 + (id + ${task:-0}) % 20000))\n"
"""Below the kernel's range for outgoing connections (32768 and up), and another one for each job of
a node."""
WORLD_SHELL = 'command -v python3 >/dev/null || exit 0\npython3 -c "$1" "$2"'


def launch(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the script's last lines, which run the command and end with its code."""
    if job.image is None:
        return 'supervise "${command[@]}"\nexit\n'
    kind, nodes = job.intent.launcher, job.allocation.nodes
    if kind == "single":
        return 'enter "${command[@]}"\nexit\n'
    if kind == "torchrun" and nodes == 1:
        return PORT + f'enter {_torchrun(job, "localhost")} "${{command[@]}}"\nexit\n'
    parts = [
        _hosts(job, scheduler),
        PORT,
        _program(site, scheduler, job),
        _starter_setup(job, site, scheduler),
    ]
    if kind == "torchrun":
        parts.append(
            f'{_starter(job, site, scheduler, 1)} {_torchrun(job, "$MASTER_ADDR")} "${{command[@]}}"\nexit\n'
        )
    else:
        if kind == "mpi":
            parts.append(_world_test(job, site, scheduler))
        start = _starter(job, site, scheduler, job.allocation.processes)
        parts.append(f'{start} "${{command[@]}}"\nexit\n')
    return "".join(parts)


def _torchrun(job: Job, head: str) -> str:
    grant = job.allocation
    # with underscores: PyTorch 1 knows no hyphens here
    words = [
        f"--nnodes={grant.nodes}",
        f"--nproc_per_node={grant.processes}",
        '--rdzv_id="$id"',
        "--rdzv_backend=c10d",
    ]
    return " ".join(
        (
            "python3 -m torch.distributed.run",
            *words,
            f'--rdzv_endpoint="{head}:$MASTER_PORT"',
            "--no_python",
        )
    )


def _hosts(job: Job, scheduler: Scheduler) -> str:
    nodes = job.allocation.nodes
    return (
        f"mapfile -t hosts < <({scheduler.features.shell.hosts})\n"
        f'[ "${{#hosts[@]}}" -eq {nodes} ] || fail "the allocation has ${{#hosts[@]}} nodes instead of {nodes}"\n'
        "export MASTER_ADDR=${hosts[0]}\n"
    )


def _program(site: Site, scheduler: Scheduler, job: Job) -> str:
    """Return the text that each node or rank runs: the functions of this script, so that there is no second file."""
    loads = bool(module_names(job, site, scheduler))
    modules = loads or bool(site.modules.init)
    names = ["fail", "hand_on", "supervise", *(["load_module"] if loads else [])]
    names += [*(["prepare"] if modules else []), "node_local", "is_kept"]
    names += ["make_scratch", "remove_left"]
    if staged_data(job):
        names += ["stage", "is_own", "unstage", "copy_data"]
    names += [
        "clean_environment",
        "protect_records",
        "hand_in",
        "hand_in_matching",
        "find_runtime",
        "keep_servers",
        "check_image",
    ]
    functions = [f"    {row}" for row in _rows([*names, "enter"])]
    # a rank without a trap dies of a signal, and takes the others with it
    return script_text(
        "program.sh",
        token=("  printf 'token=%s staged=\\n' \"$token\"",) if staged_data(job) else (),
        functions=tuple(" \\\n".join(functions).splitlines()),
        prepare=("prepare",) if modules else (),
    )


def _rows(words: list[str]) -> list[str]:
    return textwrap.wrap(" ".join(words), 90, break_long_words=False, break_on_hyphens=False)


def module_names(job: Job, site: Site, scheduler: Scheduler) -> Texts:
    """Return the modules to load: those of the runtime, and those of MPI where mpirun or mpiexec starts the command."""
    launcher = job.intent.launcher
    several = launcher == "lightning" or (launcher == "torchrun" and job.allocation.nodes > 1)
    needs_mpi = launcher == "mpi" or (several and not _by_srun(site, scheduler, job))
    return (*site.modules.load, *(site.modules.mpi if needs_mpi else ()))


def _by_srun(site: Site, scheduler: Scheduler, job: Job) -> bool:
    """Tell whether the scheduler's own starter starts the ranks."""
    return (
        site.mpi.start == "srun"
        if job.intent.launcher == "mpi"
        else scheduler.features.starts_ranks
    )


def _starter_setup(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the variables and the list of hosts that the starter reads."""
    by_srun = _by_srun(site, scheduler, job)
    lines = []
    if job.intent.launcher == "mpi" or not by_srun:
        lines += [f"export {key}={shlex.quote(text)}" for key, text in site.mpi.environment.items()]
    if by_srun:
        lines += [
            "# Slurm from 22.05 to 23.02 does not hand --cpus-per-task on to srun",
            '[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK',
            "# of a job submitted with --export=NONE: srun would start the ranks without PATH",
            "unset SLURM_EXPORT_ENV",
            "ranks=yes",
        ]
    else:
        slots = 1 if job.intent.launcher == "torchrun" else job.allocation.processes
        line = f"%s slots={slots}\\n" if site.mpi.kind == "openmpi" else f"%s:{slots}\\n"
        lines.append("hostfile=${receipt%.json}.hosts")
        lines.append('rm -f -- "$hostfile"')
        lines.append(f'printf \'{line}\' "${{hosts[@]}}" >"$hostfile"')
    return "\n".join(lines) + "\n"


def _starter(job: Job, site: Site, scheduler: Scheduler, each: int, name: str = "rank") -> str:
    """Return the beginning of the line that starts ``each`` copies of the program, called ``name``, on every node."""
    nodes, mpi = job.allocation.nodes, site.mpi
    by_srun = _by_srun(site, scheduler, job)
    own = ""
    if job.intent.launcher == "mpi" or not by_srun:
        own = join_words(" ".join(mpi.arguments).split())
    if by_srun:
        start = f"srun --nodes={nodes} --ntasks={nodes * each} --ntasks-per-node={each} --kill-on-bad-exit=1"
    elif mpi.kind == "openmpi":
        start = f'{mpi.start} -np {nodes * each} --map-by "ppr:{each}:node" --bind-to none'
        start += ' --hostfile "$hostfile" -x MASTER_ADDR -x MASTER_PORT'
    else:
        start = f'{mpi.start} -n {nodes * each} -ppn {each} -f "$hostfile"'
    return " ".join(filter(None, ("supervise", start, own, f'bash -c "$program" {name}')))


def _world_test(job: Job, site: Site, scheduler: Scheduler) -> str:
    total = job.allocation.nodes * job.allocation.processes
    start = _starter(job, site, scheduler, job.allocation.processes, "world")
    return (
        f"world={shlex.quote(script_text('world.py'))}\n"
        "# shellcheck disable=SC2016  # expanded by the shell in the container\n"
        f'{start} sh -c {shlex.quote(WORLD_SHELL)} sh "$world" {total} ||\n'
        '  fail "the ranks were not started, or do not find each other: see above; both MPIs must fit"\n'
    )
