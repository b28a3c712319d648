"""How a job enters the image: a bash function that seals the container on any node."""

from __future__ import annotations

import shlex
from pathlib import Path

from envbuild.job.model import Job
from envbuild.job.render.staging import stage_binds
from envbuild.job.schedulers.protocol import Scheduler, script_text
from envbuild.job.sites.site import Site
from envbuild.names import Texts
from envbuild.runtime import HOME, bind_flags, overlay_flags

PASSED = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "NCCL_*",
    "OMP_NUM_THREADS",
    "ENVBUILD_RESULT",
    "ENVBUILD_CHECKPOINT",
)
RANKS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
MPI = ("OMPI_*", "PMIX_*", "PMI_*", "PALS_*", "MPI_*", "I_MPI_*", "UCX_*")


def node_local_function(site: Site) -> str:
    """Return the function that prints the first node-local folder that can be written."""
    folders: list[str] = []
    for text in site.folders.local:
        # a variable may be unset on a node
        is_variable = text.startswith("$")
        folders.append(f'"${{{text[1:]}:-}}"' if is_variable else shlex.quote(text))
    return script_text("node_local.sh", folders=" ".join(folders))


def _several_containers(job: Job) -> bool:
    """Tell whether a node runs several containers whose processes share memory with each other."""
    return job.intent.launcher in ("mpi", "lightning")


def enter_function(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the function that runs its arguments in the image."""
    program = site.runtime.program
    programs = "apptainer singularity" if program == "any" else program
    environment = [*_rank_lines(job, scheduler), *_environment(job, site, scheduler)]
    if job.intent.gpus:
        environment.insert(0, "[ ! -e /dev/kfd ] || flags+=(--rocm)")
    arrays = ""
    stage: Texts = ()
    unstage: Texts = ()
    if job.intent.stage:
        arrays = " binds=()"
        unstage = ('  [ -z "$staged" ] || unstage',)
        binds = f"    binds=({' '.join(stage_binds(job))})"
        # the test of the ranks (launch.py) needs no data
        stage = ('  if [ "$0" != world ]; then', "    stage", binds, "  fi")
    # what tidies up behind the command must not replace its exit code, and the file that says it
    # has begun is held open: the command may empty its /tmp
    return script_text(
        "enter.sh",
        arrays=f"{arrays} kept=()" if job.caches else arrays,
        programs=programs,
        environment=tuple(f"  {line}" for line in environment),
        caches=tuple(_cache_lines(job, site)),
        stage=stage,
        run=_exec_line(job, site, scheduler),
        unstage=unstage,
    )


def _rank_lines(job: Job, scheduler: Scheduler) -> list[str]:
    """Return what Lightning reads where there is no srun to tell it."""
    if job.intent.launcher != "lightning" or scheduler.features.starts_ranks:
        return []
    size = job.allocation.processes
    # mpirun numbers processes through all nodes: Open MPI by the first name, MPICH by the second
    ranks = f"RANK=$value LOCAL_RANK=$((value % {size})) NODE_RANK=$((value / {size}))"
    return [
        "value=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}",
        f"export {ranks} WORLD_SIZE={size * job.allocation.nodes}",
    ]


def _environment(job: Job, site: Site, scheduler: Scheduler) -> list[str]:
    """Return the lines that hand variables in, under the prefix of either runtime."""
    patterns = [*PASSED, *scheduler.features.shell.passed]
    patterns += RANKS if job.intent.launcher != "single" else ()
    patterns += MPI if _several_containers(job) else ()
    lines = []
    if job.allocation.cpus is not None:
        # else every process of a node would start a thread per core of the whole node
        lines.append(f'export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-{job.allocation.cpus}}}"')
    block = _block([shlex.quote(word) for word in patterns], end="")
    lines += ["hand_in_matching \\", *(f"  {line.strip()}" for line in block)]
    inside = dict(site.runtime.environment)
    inside |= site.mpi.inside if job.intent.launcher == "mpi" else {}
    lines += [f"hand_in {key} {shlex.quote(text)}" for key, text in inside.items()]
    return [*lines, *_folder_lines(job, site), *_secret_lines(job)]


def _folder_lines(job: Job, site: Site) -> list[str]:
    """Return the lines that require the site's folders, and make those of its caches."""
    lines = []
    for folder in _site_folders(job, site):
        if folder.startswith("$"):
            name = folder[1:]
            lines.append(f'[ -n "${{{name}:-}}" ] || fail "{name} is not set on this node"')
    scratch = site.folders.scratch or ""
    for key, text in site.folders.caches.items():
        value = text.replace("{scratch}", scratch)
        lines += [f'value="{value}"', 'mkdir -p -- "$value"', f'hand_in {key} "$value"']
    return lines


def _secret_lines(job: Job) -> list[str]:
    """Return the lines that read the handed-on variables."""
    if job.secrets is None:
        return []
    path = shlex.quote(job.secrets)
    return [
        f'[ -r {path} ] || fail "the handed-on variables are gone: "{path}',
        "# shellcheck disable=SC1090,SC1091",
        f". {path}",
    ]


def _cache_lines(job: Job, site: Site) -> list[str]:
    """Return lines that keep downloads and compiled code in the user's folders, where it can."""
    caches = job.caches
    if caches is None or not caches.folders:
        return []
    home = _home_of(job)
    named = {*site.folders.caches, *site.runtime.environment}  # the site knows its disks better
    variables = [f"{name}={below}" for name, below in caches.variables if name not in named]
    given = {name: folder for name, folder in caches.given if name not in named}
    points, binds = [], []
    for folder, below in caches.folders:
        points.append(f'"$scratch"/{shlex.quote(below)}')
        bind = f"{shlex.quote(folder)}:{home}/{shlex.quote(below)}:rw"
        binds.append(f"    kept+=(--bind {bind})")
    return [
        "  # what is downloaded and compiled stays in folders of the user's (docs/howto-data.md)",
        "  if (umask 077 && mkdir -p -- \\",
        *_block([shlex.quote(folder) for folder in caches.made], end=") 2>/dev/null &&"),
        f"    [ -w {shlex.quote(caches.folders[0][0])} ]; then",
        f"    mkdir -p -- {' '.join(points)}",
        *binds,
        "    for value in \\",
        *_block(variables, end="; do"),
        f'      hand_in "${{value%%=*}}" {home}/"${{value#*=}}"',
        "    done",
        *(f"    {_given_line(name, folder)}" for name, folder in given.items()),
        "  else",
        "    printf 'envbuild: downloads are not kept: their folder cannot be written on this node\\n'",
        "  fi",
    ]


def _given_line(name: str, folder: str) -> str:
    """Return the line that hands in a variable with its folder, where this node has it."""
    place = shlex.quote(folder)
    bind = shlex.quote(f"{folder}:{folder}:rw")
    return f"[ ! -d {place} ] || {{ kept+=(--bind {bind}) && hand_in {name} {place}; }}"


def _block(words: list[str], *, end: str) -> list[str]:
    """Return the lines of a list of words, each but the last with a backslash."""
    *rows, last = _rows(words)
    return [*(f"      {row} \\" for row in rows), f"      {last}{end}"]


def _home_of(job: Job) -> str:
    """Return the home inside: containers that share the host's /tmp have the scratch folder."""
    return '"$scratch"' if _several_containers(job) else HOME


def _seal_words(job: Job) -> list[str]:
    """Return the options that keep the host's variables and folders out of the container."""
    place = ["--home", _home_of(job), "--pwd", '"$PWD"']
    if _several_containers(job):
        # ranks of one node meet in /dev/shm, and find their daemon's files in the host's folder
        # for temporary files; a contained /dev has a shm of its own
        shared = ["--bind", '"${TMPDIR:-/tmp}:${TMPDIR:-/tmp}:rw"']
        return ["--cleanenv", "--no-mount", "cwd", *place, *shared]
    # a contained /tmp and /var/tmp are in memory,
    # and 64 MB (apptainer.conf, sessiondir max size)
    temporary = ["--bind", '"$scratch:/tmp:rw"', "--bind", '"$scratch:/var/tmp:rw"']
    return ["--cleanenv", "--containall", "--no-home", *place, *temporary]


def _exec_line(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the line that runs the command in the image, with all that it may see."""
    words = [
        '"$runtime" --quiet exec ${flags[@]+"${flags[@]}"}',
        *map(shlex.quote, site.runtime.flags),
    ]
    if job.intent.gpus:
        words.append("--nv")
    words += _seal_words(job)
    if job.layer is not None:
        words += map(shlex.quote, overlay_flags(Path(job.layer)))
    words += ["--bind", '"$PWD:$PWD:rw"', '${records[@]+"${records[@]}"}']
    for folder in _site_folders(job, site):
        words += ["--bind", f'"{folder}:{folder}:rw"']
    for source, target, writable in job.binds:
        words += map(shlex.quote, bind_flags((Path(source), target, writable)))
    stage = job.intent.stage
    # bash before 4.4 takes an empty array for an unset variable, which "set -u" refuses
    if job.caches:
        words.append('${kept[@]+"${kept[@]}"}')
    if stage:
        words.append('${binds[@]+"${binds[@]}"}')
    # what the host reads in a file says that signals reach the command (supervise.sh)
    begin = 'echo >"$1"; shift; exec "$@"'
    ignored = scheduler.features.shell.ignored if site.gridengine.notify else ()
    if ignored:
        # a command without a handler for these would be killed by them before it is told to end
        begin = f'trap "" {" ".join(ignored)}; {begin}'
    command = f'"$image" sh -c {shlex.quote(begin)} sh {_home_of(job)}/.begun "$@"'
    # 7 and 9 hold locks of the scratch folder (scratch.sh) and of staged data (staging.sh): the
    # runtime's FUSE server may outlive a killed job, and what it kept locked could never be removed
    closed = " 7<&-" + (" 9>&-" if stage else "")
    rows = [f"supervise {words[0]}", *_rows(words[1:]), command + closed]
    return " \\\n    ".join(rows)


def _site_folders(job: Job, site: Site) -> list[str]:
    """Return the folders that the site shows to every job: paths, or variables with a $."""
    more = site.mpi.binds if _several_containers(job) else ()
    return list(dict.fromkeys((*site.shown_folders, *more)))


def _rows(words: list[str]) -> list[str]:
    """Put an option and its value, or a few short options, on one line."""
    rows = [""]
    for word in words:
        begins_row = word in ("--bind", "--mount", "--overlay") or len(rows[-1]) > 60
        if rows[-1] and begins_row:
            rows.append(word)
        else:
            rows[-1] = f"{rows[-1]} {word}".strip()
    return rows
