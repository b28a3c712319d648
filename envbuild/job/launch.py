"""How the command starts: once, by torchrun, one task per GPU, or by MPI; who and where comes from the allocation."""

from __future__ import annotations

import shlex

from envbuild.job.model import Job
from envbuild.job.schedulers.protocol import Scheduler
from envbuild.job.site import Site
from envbuild.job.stage import staged

PORT = "export MASTER_PORT=$((10000 + (id + ${task:-0}) % 20000))\n"
"""Below the kernel's range for outgoing connections (32768 and up), and another one for each job of a node."""
WORLD = """\
import sys
try:
    from mpi4py import MPI
except ImportError:
    print("envbuild: the image has no mpi4py, so the number of ranks was not tested")
    sys.exit()
found, wanted = MPI.COMM_WORLD.allreduce(1), int(sys.argv[1])
if found != wanted:
    sys.exit("envbuild: a world of %d ranks instead of %d" % (found, wanted))
if MPI.COMM_WORLD.rank == 0:
    print("envbuild: %d ranks found each other" % found, flush=True)
"""
"""Run by every rank before the command; with an MPI that does not fit the host's, each would be alone."""
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
    parts = [_hosts(job, scheduler), PORT, _program(site, job), _starter_setup(job, site)]
    if kind == "torchrun":
        parts.append(
            f'{_starter(job, site, 1)} {_torchrun(job, "$MASTER_ADDR")} "${{command[@]}}"\nexit\n'
        )
    else:
        if kind == "mpi":
            parts.append(_world_test(job, site))
        parts.append(f'{_starter(job, site, job.allocation.processes)} "${{command[@]}}"\nexit\n')
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
        f"mapfile -t hosts < <({scheduler.shell.hosts})\n"
        f'[ "${{#hosts[@]}}" -eq {nodes} ] || fail "the allocation has ${{#hosts[@]}} nodes instead of {nodes}"\n'
        "export MASTER_ADDR=${hosts[0]}\n"
    )


def _program(site: Site, job: Job) -> str:
    """Return the text that each node or rank runs: the functions of this script, so that there is no second file."""
    modules = bool(module_names(job, site) or site.modules.init)
    names = ["fail", "supervise", *(["prepare"] if modules else []), "node_local"]
    names += ["stage", "unstage"] if staged(job) else []
    return (
        "program=$(\n"
        "  printf 'set -u\\nchild=\\ncd %q || exit 125\\n' \"$PWD\"\n"
        + ("  printf 'token=%s staged=\\n' \"$token\"\n" if staged(job) else "")
        + f"  declare -f {' '.join(names)} enter\n"
        "  cat <<'END'\n"
        'trap \'[ -z "$child" ] || kill -TERM "$child"\' TERM\n'
        f"{'prepare' if modules else ':'}\n"
        'enter "$@"\n'
        "END\n"
        ")\n"
    )


def module_names(job: Job, site: Site) -> tuple[str, ...]:
    """Return the modules to load: those of the runtime, and those of MPI where mpirun or mpiexec starts the command."""
    several = job.intent.launcher in ("mpi", "lightning") or (
        job.intent.launcher == "torchrun" and job.allocation.nodes > 1
    )
    needs_mpi = job.intent.launcher == "mpi" or (several and not _by_srun(site, job))
    return (*site.modules.load, *(site.modules.mpi if needs_mpi else ()))


def _by_srun(site: Site, job: Job) -> bool:
    slurm = site.site.scheduler == "slurm"
    return site.mpi.start == "srun" if job.intent.launcher == "mpi" else slurm


def _starter_setup(job: Job, site: Site) -> str:
    """Return the variables and the list of hosts that the starter reads."""
    lines = []
    if job.intent.launcher == "mpi":
        lines += [f"export {key}={shlex.quote(text)}" for key, text in site.mpi.environment.items()]
    if _by_srun(site, job):
        # Slurm from 22.05 to 23.02 does not hand --cpus-per-task on to srun
        lines.append(
            '[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK'
        )
    else:
        slots = 1 if job.intent.launcher == "torchrun" else job.allocation.processes
        line = f"%s slots={slots}\\n" if site.mpi.kind == "openmpi" else f"%s:{slots}\\n"
        lines.append("hostfile=${receipt%.json}.hosts")
        lines.append(f'printf \'{line}\' "${{hosts[@]}}" >"$hostfile"')
    return "\n".join(lines) + "\n"


def _starter(job: Job, site: Site, each: int, name: str = "rank") -> str:
    """Return the beginning of the line that starts ``each`` copies of the program, called ``name``, on every node."""
    nodes, mpi = job.allocation.nodes, site.mpi
    own = (
        shlex.join(word for text in mpi.arguments for word in text.split())
        if job.intent.launcher == "mpi"
        else ""
    )
    if _by_srun(site, job):
        words = [
            f"srun --nodes={nodes} --ntasks={nodes * each} --ntasks-per-node={each} --kill-on-bad-exit=1",
            own,
        ]
    elif mpi.kind == "openmpi":
        words = [
            f'{mpi.start} -np {nodes * each} --map-by "ppr:{each}:node" --bind-to none --hostfile "$hostfile"'
        ]
        words += ["-x MASTER_ADDR -x MASTER_PORT", own]
    else:
        words = [f'{mpi.start} -n {nodes * each} -ppn {each} -f "$hostfile"', own]
    return " ".join(("supervise", *filter(None, words), f'bash -c "$program" {name}'))


def _world_test(job: Job, site: Site) -> str:
    total = job.allocation.nodes * job.allocation.processes
    start = _starter(job, site, job.allocation.processes, "world")
    return (
        f"world={shlex.quote(WORLD)}\n"
        "# shellcheck disable=SC2016  # expanded by the shell in the container\n"
        f'{start} sh -c {shlex.quote(WORLD_SHELL)} sh "$world" {total} ||\n'
        '  fail "the ranks were not started, or do not find each other: see above; both MPIs must fit"\n'
    )
