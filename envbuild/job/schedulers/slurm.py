"""Slurm: sbatch(1), squeue(1), sacct(1), scontrol(1), scancel(1)."""

from __future__ import annotations

import re

from envbuild.job.model import Job, Status
from envbuild.job.request.units import clock, short_memory, time_text
from envbuild.job.schedulers.features import load_features
from envbuild.job.schedulers.protocol import (
    Ask,
    StateQuestion,
    Words,
    array_text,
    command_words,
    dependency_text,
    interactive_options,
    last_id,
    log_pattern,
    partition_section,
    worst_status,
)
from envbuild.job.sites.site import Site
from envbuild.run import Result
from envbuild.toml import quote

WARNING = 300
"""Seconds of walltime from which on the script is warned a minute before the end; Slurm may do so a
minute early."""

BY_SIGNAL = "it was killed by signal 9, as by a node that watches over memory"
STATES = load_features("slurm").states


class Slurm:
    """The scheduler of amane, the Alliance and most universities."""

    features = load_features("slurm")

    def options(self, job: Job, site: Site) -> tuple[Words, ...]:
        """Return the #SBATCH lines."""
        intent = job.intent
        number = "%A" if intent.array else "%j"
        log = log_pattern(job).replace("{id}", number).replace("{task}", "%a")
        lines = [f"--job-name={job.name}"]
        if not job.interactive:
            lines += [f"--output={log}", "--open-mode=append"]
        partition = intent.partition or site.fields.partition
        if partition:
            lines.append(f"--partition={partition}")
        if intent.account:
            option = site.fields.account or "--account"
            lines.append(f"{option.rstrip('=')}={intent.account}")
        lines += self._resources(job, site)
        if intent.walltime is not None:
            lines.append(f"--time={clock(intent.walltime)}")
            if intent.walltime >= WARNING and intent.warning is None and not job.interactive:
                lines.append("--signal=B:TERM@60")
        if intent.requeue:
            lines.append("--requeue")
        if intent.array:
            lines.append(f"--array={array_text(job)}")
        waits = dependency_text(intent)
        if waits:
            lines += [f"--dependency={waits}", "--kill-on-invalid-dep=yes"]
        return tuple((line,) for line in lines)

    def _resources(self, job: Job, site: Site) -> list[str]:
        intent, grant = job.intent, job.allocation
        # one task a node, which starts its processes itself
        one = intent.launcher in ("single", "torchrun")
        lines = [f"--nodes={grant.nodes}", f"--ntasks-per-node={1 if one else grant.processes}"]
        if grant.cpus is not None:
            lines.append(f"--cpus-per-task={grant.cpus * (grant.processes if one else 1)}")
        if grant.memory is not None:
            lines.append(f"--mem={short_memory(grant.memory, 'G', 'M')}")
        kind = f"{intent.gpu_type}:" if intent.gpu_type else ""
        if grant.gpus:
            forms = {
                "gpus": f"--gpus={kind}{grant.gpus * grant.nodes}",
                "gres": f"--gres={site.resources.gpu_name}:{kind}{grant.gpus}",
                "gpus-per-node": f"--gpus-per-node={kind}{grant.gpus}",
            }
            lines.append(forms[site.resources.gpu])
        return lines

    def submit(self, script: str, job: Job, site: Site) -> Words:  # noqa: ARG002
        """Return the sbatch line; --parsable prints the id alone."""
        return ("sbatch", "--parsable", script)

    def interactive(self, script: str, job: Job, site: Site, *, terminal: bool = True) -> Words:
        """Return the srun line; without a terminal nothing waits for the end of a line (-u)."""
        own = interactive_options(job, site)
        stream = "--pty" if terminal else "--unbuffered"
        return ("srun", *command_words(self.options(job, site)), *own, stream, "bash", script)

    def attach(self, script: str, job: str, *, terminal: bool) -> Words:
        """Return the srun line of a step that shares the job's cores and GPUs (srun(1), --overlap)."""
        shell = ("--pty",) if terminal else ()
        step = ("srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1")
        return (*step, *shell, "bash", script)

    def read_id(self, result: Result) -> str:
        """Read "12" or "12;cluster"."""
        return last_id(r"\d+(;[\w.-]+)?", result).partition(";")[0]

    def questions(self, job: str) -> tuple[StateQuestion, ...]:
        """Ask the queue, then accounting, then the controller's memory of jobs that ended lately."""
        fields = "JobIDRaw,State,ExitCode,Reason,NodeList"
        return (
            StateQuestion(argv=("squeue", "-h", "-j", job, "-o", "%i|%T|%r|%N"), read=_read_queue),
            StateQuestion(
                argv=("sacct", "-X", "-n", "-P", "-j", job, "-o", fields), read=_read_accounting
            ),
            StateQuestion(argv=("scontrol", "show", "job", "-o", job), read=_read_controller),
        )

    def cancel(self, job: str, task: int | None = None) -> Words:
        """Return the scancel line."""
        return ("scancel", job if task is None else f"{job}_{task}")

    def site_sections(self, ask: Ask) -> list[str]:
        """Return partitions, GPUs and the size of arrays, from sinfo and scontrol."""
        text = ask("sinfo", "-h", "-o", "%P|%l|%G|%D")
        rows = [line.split("|") for line in text.splitlines() if line.count("|") == 3]
        lines = ["[resources]", *_gpu_lines([row[2] for row in rows]), "", "[fields]"]
        # the default partition ends with a star
        defaults = [row[0] for row in rows if row[0].endswith("*")]
        if defaults:
            default = quote(defaults[0].rstrip("*"))
            lines.append(f"# partition = {default}  # the default here")
        lines += ['# required = ["account", "walltime"]  # where a job without one is refused']
        config = ask("scontrol", "show", "config")
        size = re.search(r"^MaxArraySize\s*=\s*(\d{1,9})", config, re.MULTILINE)
        # the size is one more than the highest number (slurm.conf(5), MaxArraySize)
        most_tasks = int(size[1]) - 1 if size else 0
        if most_tasks > 0:
            lines += ["", "[limits]", f"array = {most_tasks}"]
        for name, longest in sorted({(name.rstrip("*"), longest) for name, longest, *_ in rows}):
            lines += partition_section(name, _walltime(longest))
        return lines


def _gpu_lines(generic: list[str]) -> list[str]:
    """Return how GPUs are asked for, by the generic resources of the partitions ("gpu:a100:4")."""
    gpus: list[tuple[str, str]] = []
    for text in generic:
        gpus += re.findall(r"gpu:(?:([A-Za-z][\w.-]*):)?(\d{1,9})", text)
    if not gpus:
        return ['gpu = "none"', 'memory = "mem"']
    lines = ['gpu = "gres"', 'memory = "mem"']
    types = sorted({kind for kind, _ in gpus if kind})
    if types:
        lines.append(f"gpu-types = [{', '.join(map(quote, types))}]")
    most = max(int(count) for _, count in gpus)
    if most:
        lines.append(f"gpus-per-node = {most}")
    return lines


def _read_queue(result: Result, job: str) -> Status | None:  # noqa: ARG001
    rows = _split_rows(result.stdout, 4)
    if result.code or not rows:
        return None
    for _, state, _, node in rows:
        if state in STATES.running:
            return Status(phase="running", node=node)
    for _, state, _, node in rows:
        if state in STATES.halted:
            return Status(phase="running", reason=STATES.halted[state], node=node)
    # tasks of an array that have ended are shown beside those that wait
    if all(state in STATES.queued for _, state, _, _ in rows):
        reason = rows[0][2]
        return _queued("" if reason == "None" else reason)
    return None


def _queued(reason: str) -> Status:
    """Return the state of a job that waits; for a reason of the table it waits forever."""
    known = STATES.waiting.get(reason)
    return Status(phase="queued", reason=known or reason, stuck=known is not None)


def _read_accounting(result: Result, job: str) -> Status | None:  # noqa: ARG001
    rows = _split_rows(result.stdout, 5)
    # accounting may be switched off, or not know the job yet
    if result.code or not rows:
        return None
    return _merged([row[1:] for row in rows])


def _read_controller(result: Result, job: str) -> Status | None:  # noqa: ARG001
    rows = []
    for line in result.stdout.splitlines():
        found = dict(re.findall(r"(JobState|Reason|ExitCode|NodeList)=(\S+)", line))
        if "JobState" in found:
            keys = ("JobState", "ExitCode", "Reason", "NodeList")
            rows.append([found.get(key, "") for key in keys])
    return None if result.code or not rows else _merged(rows)


def _split_rows(text: str, count: int) -> list[list[str]]:
    """Return the lines of a table that have so many cells; the last cell may hold any text."""
    rows = [line.split("|", count - 1) for line in text.splitlines()]
    return [row for row in rows if len(row) == count]


def _merged(rows: list[list[str]]) -> Status:
    """Tell the state of a job from those of its tasks: what is going on before what is over, failed before well."""
    found = [_status(*row) for row in rows]
    for phase in ("running", "queued"):
        for status in found:
            if status.phase == phase:
                return status
    return worst_status(found)


def _status(state: str, exit_code: str, reason: str, node: str) -> Status:
    word = state.split(maxsplit=1)[0].rstrip("+") if state else ""  # "CANCELLED by 1000"
    if word in STATES.queued:
        return _queued(reason)
    if word in STATES.running or word in STATES.halted:
        return Status(phase="running", reason=STATES.halted.get(word, ""), node=node)
    codes = re.fullmatch(r"(\d{1,9}):(\d{1,9})", exit_code)
    code, signal = None, 0
    if codes is not None:
        # CODE:SIGNAL, as sacct(1) says of ExitCode
        code, signal = map(int, codes.groups())
        code = 128 + signal if signal else code
    if word == "COMPLETED":
        return Status(phase="ended", code=code, node=node)
    if word == "FAILED" and reason in STATES.waiting:
        # slurmstepd ends so too who used more memory than asked
        # for (JobAcctGatherParams=OverMemoryKill)
        cause = BY_SIGNAL if signal == 9 else STATES.waiting[reason]
        return Status(phase="ended", reason=cause, node=node)
    if word == "FAILED":
        return Status(phase="ended", reason="it failed", code=code or 1, node=node)
    reason = STATES.ended.get(word, f"its state is {word or 'empty'}")
    return Status(phase="ended", reason=reason, node=node)


def _walltime(text: str) -> str | None:
    """Turn "1-12:00:00" into "1d12h"; None for "infinite"."""
    found = re.fullmatch(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d\d)", text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return time_text(((days * 24 + hours) * 60 + minutes) * 60 + seconds) or None
