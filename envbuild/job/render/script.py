"""The job script: one bash file that needs nothing but itself, the image and the site's runtime."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

from envbuild import __version__
from envbuild.job.model import Image, Job
from envbuild.job.render.container import enter_function, node_local_function
from envbuild.job.render.launch import launch, module_names
from envbuild.job.render.staging import NAMING, stage_functions
from envbuild.job.schedulers.protocol import (
    Scheduler,
    join_words,
    log_pattern,
    quote_word,
    script_text,
    user_options,
)
from envbuild.job.sites.site import Site
from envbuild.job.track.records import FOLDER, result_name

WARNING = 300
"""Seconds of walltime from which on schedulers warn a minute or two before the end."""
SAMPLE, IDLE = 15, 300
"""Seconds between two looks at what a job uses, and after which a GPU without work is reported."""
DIRECT = """\
supervise() {
  "$@"
}
hand_on() { :; }
"""
"""In place of supervise.sh, for a job whose command has the terminal."""
AWAIT_PREEMPTION = "await_preemption >/dev/null 2>&1 &\nwatch+=($!)\n"
TRAPS = "".join(f"trap 'stop {name}' {name}\n" for name in ("TERM", "INT", "USR1", "USR2"))


def render(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the whole script; raises UsageError for what the scheduler cannot say."""
    shell = scheduler.features.shell
    # an interactive job has the terminal: its signals go to the command by themselves
    supervise = DIRECT if job.interactive else script_text("supervise.sh")
    traps = "" if job.interactive else TRAPS
    gpus = shell.gpus.replace("@name@", site.resources.gpu_name) if job.allocation.gpus else ""
    container = _container(job, site, scheduler) if job.image else ""
    parts = [
        _head(job, site, scheduler),
        _start(job, site, scheduler),
        script_text("report.sh"),
        _sampling(job),
        supervise,
        shell.tell_ranks,
        "" if job.interactive else shell.kill_later,
        _put_back(job, scheduler),
        _notify(job),
        f"reserve_receipt\ntrap finish EXIT\n{traps}",
        gpus,
        "describe_job\n",
        _check_predecessors(job),
        _prepare(job, site, scheduler),
        container,
        _watch(job, scheduler),
        _command(job, scheduler),
        _checkpoint(job),
        launch(job, site, scheduler),
    ]
    return "\n".join(part for part in parts if part)


def _container(job: Job, site: Site, scheduler: Scheduler) -> str:
    stage = stage_functions(job)
    parts = (
        NAMING if stage else "",
        node_local_function(site),
        stage,
        script_text("container.sh"),
        script_text("scratch.sh"),
        script_text("servers.sh"),
        script_text("check_image.sh"),
        enter_function(job, site, scheduler),
    )
    return "".join(parts)


def _head(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the first lines: what a scheduler reads stands before the first command."""
    features = scheduler.features
    lines = ["#!/bin/bash"]
    if not job.interactive and features.prefix:
        options = [" ".join(words) for words in scheduler.options(job, site)]
        # as they are written: the scheduler takes quotes off by itself
        options += user_options(job, site)
        lines += [f"{features.prefix} {option}" for option in options]
    lines.append(f"# {job.name} on {site.name}, written by envbuild {__version__} (docs/job.md)")
    return "\n".join((*lines, "# shellcheck disable=SC2034,SC2317", "set -u", ""))


def receipt_pattern(job: Job) -> str:
    """Return the neutral pattern of the receipt: a place where no program of the image can write."""
    key = job.key or f"{job.name}-{{id}}"
    return f"{FOLDER}/{key}.receipt{'-{task}' if job.intent.array else ''}.json"


def _shell_pattern(pattern: str) -> str:
    """Turn {id} and {task} into the script's variables; what is left of a checked pattern needs no quotes."""
    return '"' + pattern.replace("{id}", "$id").replace("{task}", "$task") + '"'


def _start(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the variables that all functions read, and the way to the project and its log."""
    features = scheduler.features
    # a job without an image runs the command on the node itself
    image = job.image or Image(path="", digest="")
    folder = shlex.quote(str(PurePosixPath(log_pattern(job)).parent))
    limit = job.intent.walltime
    values = {
        "name": job.name,
        "site": site.name,
        "commit": job.commit,
        "image": image.path,
        "stamp": image.stamp,
        "digest": image.digest,
        "lock": image.lock or "",
        "walltime": "" if limit is None else str(limit),
        "margin": str(_margin(job)),
        "requeue": str(job.intent.requeue),
    }
    lines = [
        *(f"{key}={shlex.quote(value)}" for key, value in values.items()),
        "signal='' reason='' child='' early='' begun='' ranks='' watch=() sampler='' used='' gpus='' driver='' own=''",
        f'cd "{features.shell.folder}" || exit 125',
        features.shell.id,
        features.shell.task,
        f"mkdir -p -- {folder} || exit 125",
        script_text("records.sh"),
        f"receipt={_shell_pattern(receipt_pattern(job))}",
        "use=${receipt%.json}.use runs=1",
        *_count_runs(job),
        f"export ENVBUILD_RESULT=$PWD/{_shell_pattern(result_name(receipt_pattern(job)))}",
    ]
    lines += _open_log(job, scheduler)
    lines.append("node=$(hostname) started=$(date -u +%Y-%m-%dT%H:%M:%SZ)")
    return "\n".join(lines) + "\n"


def _open_log(job: Job, scheduler: Scheduler) -> list[str]:
    """Return the lines that open the log where no scheduler does, and see that it is no link."""
    if job.interactive:
        return []
    features, log = scheduler.features, _shell_pattern(log_pattern(job))
    lines = [script_text("log.sh")]
    if not features.writes_log:
        # a job that PBS starts again goes on in its log; here, an old log belonged to another
        # process of that number
        mode = ">>" if features.appends_log or job.intent.requeue else ">"
        lines += [f"[ ! -L {log} ] || rm -f -- {log}", f"exec {mode}{log} 2>&1"]
    return [*lines, f"keep_log {log}"]


def _margin(job: Job) -> int:
    """Return the last seconds of a job, in which a signal means that its time is over."""
    limit = job.intent.walltime or 0
    usual = 5 if limit < WARNING else 130
    return max(usual, (job.intent.warning or 0) + 10)


def _count_runs(job: Job) -> list[str]:
    """Return the lines that count how often a job that goes back into the queue has started."""
    if not job.intent.requeue:
        return []
    return [
        'runs=$(tr -cd 0-9 2>/dev/null <"${receipt%.json}.runs")',
        "runs=$((10#${runs:-0} + 1))",
        'rm -f -- "${receipt%.json}.runs"',
        'echo "$runs" >"${receipt%.json}.runs"',
    ]


def _put_back(job: Job, scheduler: Scheduler) -> str:
    """Return the function that puts a job back into the queue."""
    if not job.intent.requeue or job.interactive:
        return ""
    script = shlex.quote(f"{FOLDER}/{job.key}.sh") if job.key else '"$0"'
    return scheduler.features.shell.put_back.replace("@script@", script)


def _notify(job: Job) -> str:
    """Return the function that runs the command of --notify."""
    if job.intent.notify is None:
        return ""
    before, task, after = receipt_pattern(job).replace("{id}", "$id").partition("{task}")
    tasks = len(job.intent.array.numbers) if job.intent.array else 1
    secrets = f". {shlex.quote(job.secrets)}" if job.secrets else ":"
    return script_text(
        "notify.sh",
        receipts=f'"{before}"*"{after}"' if task else '"$receipt"',
        tasks=str(tasks),
        mark=f'"{before}told"',
        secrets=secrets,
        command=quote_word(job.intent.notify),
    )


def _sampling(job: Job) -> str:
    """Return the functions that sample what the job uses, and tell at its end."""
    text = script_text("use.sh")
    if job.interactive or job.image is None:
        return text
    grant = job.allocation
    cores = None if grant.cpus is None else grant.cpus * grant.processes
    asked = (job.intent.walltime, cores, grant.memory, grant.gpus)
    words = (SAMPLE, IDLE, *(amount or 0 for amount in asked))
    # 7 is the lock of the scratch folder (scratch.sh): what outlives the job must not hold it;
    # on the node, outside of the image, nothing of the project may be imported
    return text + script_text(
        "sample_use.sh",
        words=" ".join(map(str, words)),
        program=tuple(script_text("use.py").splitlines()),
    )


def _check_predecessors(job: Job) -> str:
    """Return the test of the jobs that must have succeeded, for a scheduler that only knows that they ended."""
    if not job.checked:
        return ""
    lines = [
        "succeeded() {",
        '  grep -q \'"code":0,\' "$1" 2>/dev/null || fail "a job that this one follows did not succeed: $1"',
        "}",
        *(f"succeeded {shlex.quote(path)}" for path in job.checked),
    ]
    return "\n".join(lines) + "\n"


def _prepare(job: Job, site: Site, scheduler: Scheduler) -> str:
    """Return the function that loads modules; their scripts use variables that are not set."""
    names, init = module_names(job, site, scheduler), site.modules.init
    if not names and not init:
        return ""
    lines = ["prepare() {", "  set +u"]
    if init:
        lines += ["  # shellcheck disable=SC1090,SC1091", f"  {init}"]
    lines += [f"  load_module {name}" for name in names]
    load = script_text("modules.sh") if names else ""
    return load + "\n".join((*lines, "  set -u", "}", "prepare", ""))


def _watch(job: Job, scheduler: Scheduler) -> str:
    """Return the lines that end the job before its time limit, or at it, where nobody else does."""
    limit, warning = job.intent.walltime, job.intent.warning
    if limit is None or job.interactive or (scheduler.features.queues and warning is None):
        return ""
    start = f"tell_at_end {limit - (warning or 0)} >/dev/null 2>&1 &\nwatch+=($!)\n"
    if not job.intent.requeue:
        return script_text("limit.sh") + start
    shell = scheduler.features.shell
    waits = AWAIT_PREEMPTION if shell.await_preemption else ""
    functions = (script_text("limit.sh"), shell.preempted, shell.await_preemption)
    return "".join((*functions, start, waits))


def _checkpoint(job: Job) -> str:
    """Return the lines that make the folder that a command goes on from, and name it."""
    if job.intent.checkpoint is None and not job.intent.requeue:
        return ""
    # of a job that is printed, nobody knows the key
    name = job.intent.checkpoint or job.origin or job.key or f"{job.name}-$id"
    task = "/${number:-$task}" if job.intent.array or job.repeats else ""
    return (
        f'export ENVBUILD_CHECKPOINT="$PWD/checkpoints/{name}{task}"\n'
        'mkdir -p -- "$ENVBUILD_CHECKPOINT" || fail "the checkpoint folder cannot be made"\n'
    )


def _repeated_number(job: Job, scheduler: Scheduler) -> str:
    """Return the lines that give a task the number of the one that it repeats."""
    variable = scheduler.features.shell.number
    if not job.repeats or not variable:
        return ""
    numbers = job.intent.array.numbers if job.intent.array else (1,)
    lines = ["case ${task:-1} in"]
    for number, before in zip(numbers, job.repeats, strict=True):
        lines.append(f"{number}) number={before} ;;")
    return "\n".join((*lines, "esac", f"export {variable}=$number", ""))


def _command(job: Job, scheduler: Scheduler) -> str:
    """Return the lines that set ``command``: the job's own, or that of the task's row."""
    before = _repeated_number(job, scheduler)
    if not job.rows:
        return before + f"command=({join_words(job.argv)})\n"
    numbers = job.intent.array.numbers if job.intent.array else range(1, len(job.rows) + 1)
    lines = [f"{before}case $task in"]
    for number, row in zip(numbers, job.rows, strict=True):
        lines.append(f"{number}) command=({join_words(row)}) ;;")
    return "\n".join((*lines, '*) fail "there is no row $task" ;;', "esac", ""))
