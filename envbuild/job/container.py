"""How a job enters the image: a bash function that seals the container on whatever node it runs on."""

from __future__ import annotations

import shlex
from pathlib import Path

from envbuild.job.model import Job
from envbuild.job.schedulers.protocol import Scheduler, fill
from envbuild.job.site import Site
from envbuild.job.stage import stage_binds
from envbuild.runtime import HOME, bind_flags

PASSED = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NCCL_*",
    "OMP_NUM_THREADS",
)
RANKS = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE")
MPI = ("OMPI_*", "PMIX_*", "PMI_*", "PALS_*", "MPI_*", "I_MPI_*", "UCX_*")

PREAMBLE = """\
enter() {
  local name value runtime scratch code flags=()@more@
  # settings of the caller would change what runs; where the runtime keeps its own files is theirs to say
  for name in "${!APPTAINER@}" "${!SINGULARITY@}"; do
    case $name in
    *ENV_* | *_BIND* | *_NV* | *_HOME) unset "$name" ;;
    *_CACHEDIR | *_TMPDIR | *_CONFIGDIR) ;;
    *) unset "$name" ;;
    esac
  done
"""
FLAGS = """\
  runtime=$(@find@) || fail "@missing@"
  # root that lacks a capability has to go the way of users; without fuse an image has to be unpacked
  if [ "$EUID" -eq 0 ]; then
    value=$(awk '/^CapEff/ { print $2 }' /proc/self/status)
    [ $((16#$value)) -eq $(((1 << ($(cat /proc/sys/kernel/cap_last_cap) + 1)) - 1)) ] || flags+=(--userns)
  elif [ ! -w /dev/fuse ] && "$runtime" buildcfg 2>/dev/null | grep -q '^SUID_INSTALL=0'; then
    flags+=(--unsquash)
  fi
"""
SCRATCH = """\
  scratch=$(mktemp -d "$(node_local)/envbuild.XXXXXXXX") || fail "no node-local folder can be written"
  [ -r @image@ ] || fail "the image is not there on $(hostname): "@image@
"""


def node_local_function(site: Site) -> str:
    """Return the function that prints the first node-local folder that can be written."""
    words = " ".join(
        f'"${{{text[1:]}:-}}"' if text.startswith("$") else shlex.quote(text)
        for text in site.folders.local
    )
    return (
        "node_local() {\n"
        "  local folder\n"
        f"  for folder in {words}; do\n"
        '    if [ -n "$folder" ] && [ -d "$folder" ] && [ -w "$folder" ]; then\n'
        '      printf "%s\\n" "$folder"\n'
        "      return\n"
        "    fi\n"
        "  done\n"
        "  printf '/tmp\\n'\n"
        "}\n"
    )


def several_containers(job: Job) -> bool:
    """Tell whether a node runs several containers whose processes share memory with each other."""
    return job.intent.launcher in ("mpi", "lightning")


def enter_function(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the function that runs its arguments in the image."""
    assert job.image is not None  # noqa: S101
    image = shlex.quote(job.image.path)
    program = site.runtime.program
    find = (
        "command -v apptainer || command -v singularity"
        if program == "any"
        else f"command -v {program}"
    )
    missing = "neither apptainer nor singularity is" if program == "any" else f"{program} is not"
    return "".join(
        (
            fill(PREAMBLE, more=_arrays(job)),
            fill(FLAGS, find=find, missing=f"{missing} on PATH on this node"),
            _rank_lines(job, scheduler),
            _environment(job, site, scheduler),
            fill(SCRATCH, image=image),
            _cache_lines(job, site),
            _stage_lines(job),
            f"  {_exec_line(job, site, image)}\n",
            '  code=$?\n  rm -rf -- "$scratch"\n',
            '  [ -z "$staged" ] || unstage\n' if job.intent.stage else "",
            '  return "$code"\n}\n',
        )
    )


def _arrays(job: Job) -> str:
    return (" binds=()" if job.intent.stage else "") + (" kept=()" if job.caches else "")


def _rank_lines(job: Job, scheduler: Scheduler) -> str:
    """Return what Lightning reads where there is no srun to tell it."""
    if job.intent.launcher != "lightning" or scheduler.title == "Slurm":
        return ""
    size = job.allocation.processes
    return (
        f"  value=${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-0}}}}\n"
        f"  export RANK=$value LOCAL_RANK=$((value % {size})) NODE_RANK=$((value / {size}))"
        f" WORLD_SIZE={size * job.allocation.nodes}\n"
    )


def _environment(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the lines that hand variables in, under the prefix of either runtime."""
    patterns = [*PASSED, *scheduler.shell.passed]
    patterns += RANKS if job.intent.launcher != "single" else ()
    patterns += MPI if several_containers(job) else ()
    lines = [
        "  for name in $(compgen -e); do",
        "    case $name in",
        f"    {' | '.join(patterns)})",
        '      export "APPTAINERENV_$name=${!name}" "SINGULARITYENV_$name=${!name}"',
        "      ;;",
        "    esac",
        "  done",
        "  export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1",
    ]
    if job.allocation.cpus is not None:
        # else every process of a node would start a thread per core of the whole node
        lines.insert(0, f'  export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-{job.allocation.cpus}}}"')
    inside = dict(site.runtime.environment)
    inside |= site.mpi.inside if job.intent.launcher == "mpi" else {}
    for key, text in inside.items():
        value = shlex.quote(text)
        lines.append(f"  export APPTAINERENV_{key}={value} SINGULARITYENV_{key}={value}")
    for key, text in site.folders.caches.items():
        value = '"' + text.replace("{scratch}", _folder(site.folders.scratch or "")) + '"'
        lines += [f"  value={value}", '  mkdir -p -- "$value"']
        lines.append(f'  export APPTAINERENV_{key}="$value" SINGULARITYENV_{key}="$value"')
    if job.secrets is not None:
        path = shlex.quote(job.secrets)
        lines.append(f'  [ -r {path} ] || fail "the handed-on variables are gone: "{path}')
        lines += ["  # shellcheck disable=SC1090,SC1091", f"  . {path}"]
    return "\n".join(lines) + "\n"


def _stage_lines(job: Job) -> str:
    """Return the lines that bring data; the test of the ranks (launch.py) needs none."""
    if not job.intent.stage:
        return ""
    return (
        f'  if [ "$0" != world ]; then\n    stage\n    binds=({" ".join(stage_binds(job))})\n  fi\n'
    )


def _cache_lines(job: Job, site: Site) -> str:
    """Return the lines that keep downloads and compiled code in folders of the user's, where this node can."""
    caches = job.caches
    if caches is None or not caches.folders:
        return ""
    home = '"$scratch"' if several_containers(job) else HOME
    named = {*site.folders.caches, *site.runtime.environment}  # the site knows its disks better
    variables = [f"{name}={below}" for name, below in caches.variables if name not in named]
    given = {name: folder for name, folder in caches.given if name not in named}
    points = [f'"$scratch"/{shlex.quote(below)}' for _, below in caches.folders]
    binds = [
        f"{shlex.quote(folder)}:{home}/{shlex.quote(below)}:rw" for folder, below in caches.folders
    ]
    lines = [
        "  # what is downloaded and compiled stays in folders of the user's (docs/howto-data.md)",
        "  if (umask 077 && mkdir -p -- \\",
        *_block([shlex.quote(folder) for folder in caches.made], end=") 2>/dev/null &&"),
        f"    [ -w {shlex.quote(caches.folders[0][0])} ]; then",
        f"    mkdir -p -- {' '.join(points)}",
        *(f"    kept+=(--bind {bind})" for bind in binds),
        "    for value in \\",
        *_block(variables, end="; do"),
        f"      name=${{value%%=*}} value={home}/${{value#*=}}",
        '      export "APPTAINERENV_$name=$value" "SINGULARITYENV_$name=$value"',
        "    done",
        *(f"    {_given_line(name, folder)}" for name, folder in given.items()),
        "  else",
        "    printf 'envbuild: downloads are not kept: their folder cannot be written on this node\\n'",
        "  fi",
    ]
    return "\n".join(lines) + "\n"


def _given_line(name: str, folder: str) -> str:
    """Return the line that hands in a variable with its folder, where this node has it."""
    place = shlex.quote(folder)
    bind = shlex.quote(f"{folder}:{folder}:rw")
    return f"[ ! -d {place} ] || {{ kept+=(--bind {bind}) && export {{APPTAINER,SINGULARITY}}ENV_{name}={place}; }}"


def _block(words: list[str], *, end: str) -> list[str]:
    """Return the lines of a list of words, each but the last with a backslash."""
    rows = _rows(words)
    return [*(f"      {row} \\" for row in rows[:-1]), f"      {rows[-1]}{end}"]


def _folder(text: str) -> str:
    """Return a folder of a site file for use inside double quotes; an unset variable ends the job with a message."""
    return f"${{{text[1:]}:?is not set on this node}}" if text.startswith("$") else text


def _exec_line(job: Job, site: Site, image: str) -> str:
    words = [
        '"$runtime" --quiet exec ${flags[@]+"${flags[@]}"}',
        *map(shlex.quote, site.runtime.flags),
    ]
    if job.intent.gpus:
        words.append("--nv")
    if several_containers(job):
        # ranks of one node meet in /dev/shm, and find their daemon's files in the host's folder for temporary files;
        # a contained /dev has a shm of its own
        words += ["--cleanenv", "--no-mount", "cwd", "--home", '"$scratch"', "--pwd", '"$PWD"']
        words += ["--bind", '"${TMPDIR:-/tmp}:${TMPDIR:-/tmp}:rw"']
    else:
        words += ["--cleanenv", "--containall", "--no-home", "--home", HOME, "--pwd", '"$PWD"']
        words += ["--bind", '"$scratch:/tmp:rw"']
    words += ["--bind", '"$PWD:$PWD:rw"']
    folders = [*site.runtime.binds, *([site.folders.scratch] if site.folders.scratch else [])]
    folders += site.mpi.binds if several_containers(job) else ()
    for text in dict.fromkeys(folders):
        words += ["--bind", f'"{_folder(text)}:{_folder(text)}:rw"']
    for source, target, writable in job.binds:
        words += map(shlex.quote, bind_flags((Path(source), target, writable)))
    stage = job.intent.stage
    words += ['${kept[@]+"${kept[@]}"}'] if job.caches else []
    words += ['${binds[@]+"${binds[@]}"}'] if stage else []
    # whoever holds the lock of the data after the command would keep it from being removed
    rows = [f"supervise {words[0]}", *_rows(words[1:]), f'{image} "$@"{" 9>&-" if stage else ""}']
    return " \\\n    ".join(rows)


def _rows(words: list[str]) -> list[str]:
    """Put an option and its value, or a few short options, on one line."""
    rows = [""]
    for word in words:
        if rows[-1] and (word in ("--bind", "--mount") or len(rows[-1]) > 60):
            rows.append(word)
        else:
            rows[-1] = f"{rows[-1]} {word}".strip()
    return rows
