"""Grid Engine (SGE, Univa, Altair): submit(1), qstat(1), accounting(5), qdel(1)."""

from __future__ import annotations

import re

from envbuild.job.model import Job, Status
from envbuild.job.request.units import clock, short_memory
from envbuild.job.schedulers.features import load_features
from envbuild.job.schedulers.protocol import (
    Ask,
    StateQuestion,
    Words,
    array_text,
    command_words,
    interactive_options,
    job_name,
    last_id,
    log_pattern,
    longest_walltime,
    nobody_enters,
    partition_section,
    worst_status,
)
from envbuild.job.sites.site import Site, refuse
from envbuild.run import Result
from envbuild.toml import quote

STATES = load_features("gridengine").states
QUEUES = 20
"""Queues that are asked for their limits: one call each."""


class GridEngine:
    """The scheduler of TSUBAME and of ABCI until 2024."""

    features = load_features("gridengine")

    def options(self, job: Job, site: Site) -> tuple[Words, ...]:
        """Return the #$ lines; an account for the command line is left to ``submit``."""
        intent = job.intent
        lines: list[Words] = [("-N", job_name(job.name)), ("-cwd",)]
        if not job.interactive:  # qrsh knows none of these
            lines.insert(1, ("-S", "/bin/bash"))
            log = log_pattern(job).replace("{id}", "$JOB_ID").replace("{task}", "$TASK_ID")
            lines += [("-j", "y"), ("-o", log)]
        lines += self._resources(job, site)
        if intent.walltime is not None:
            lines.append(("-l", f"h_rt={clock(intent.walltime)}"))
        partition = intent.partition or site.fields.partition
        if partition:
            lines.append(("-q", partition))
        if intent.account and not site.fields.account_on_command_line:
            lines.append((site.fields.account or "-P", intent.account))
        if intent.array:
            lines.append(("-t", array_text(job, limit="")))
            if intent.array.limit:
                lines.append(("-tc", str(intent.array.limit)))
        if intent.requeue:
            lines.append(("-r", "y"))
        # there is no test for success: the script reads the receipts of the jobs in --after itself
        held = (*intent.after, *intent.after_any)
        if held:
            lines.append(("-hold_jid", ",".join(held)))
        if site.gridengine.notify and not job.interactive:
            lines.append(("-notify",))
        return tuple(lines)

    def _resources(self, job: Job, site: Site) -> list[Words]:
        grant, dialect = job.allocation, site.resources
        if grant.type is not None:
            return [("-l", f"{grant.type}={grant.nodes}")]
        slots = grant.processes * (grant.cpus or 1)
        lines: list[Words] = []
        if slots > 1:
            if dialect.parallel_environment is None:
                refuse(
                    site, "cpus", "its file names no parallel environment, so a job gets one slot"
                )
            lines.append(("-pe", f"{dialect.parallel_environment} {slots}"))
        if grant.gpus:
            gpus = grant.gpus
            if dialect.gpu_per == "slot":
                gpus, rest = divmod(grant.gpus, slots)
                if rest:
                    uneven = f"{grant.gpus} cannot be shared evenly by {slots} slots"
                    rule = f"are counted per slot here, and {uneven}"
                    refuse(site, "gpus", rule, f"--cpus {grant.gpus} or fewer cores")
            lines.append(("-l", f"{dialect.gpu_name}={gpus}"))
        if grant.memory is not None:
            memory = grant.memory
            if dialect.memory_per == "slot":
                memory = -(-memory // slots)  # rounded up
            lines.append(("-l", f"{dialect.memory}={short_memory(memory, 'G', 'M')}"))
        return lines

    def submit(self, script: str, job: Job, site: Site) -> Words:
        """Return the qsub line; -w e refuses what can never run and would wait forever."""
        return ("qsub", "-terse", *self._on_command_line(job, site), script)

    def _on_command_line(self, job: Job, site: Site) -> Words:
        account = job.intent.account if site.fields.account_on_command_line else None
        verify = ("-w", "e") if site.gridengine.verify else ()
        return (*verify, *((site.fields.account or "-P", account) if account else ()))

    def interactive(
        self,
        script: str,
        job: Job,
        site: Site,
        *,
        terminal: bool = True,  # noqa: ARG002
    ) -> Words:
        """Return the qrsh line: to qrsh the script is a command, whose lines it does not read."""
        words: list[str] = []
        for text in command_words(self.options(job, site)):
            words += text.split()
        words += interactive_options(job, site)
        return ("qrsh", "-now", "n", *self._on_command_line(job, site), *words, "bash", script)

    def attach(self, script: str, job: str, *, terminal: bool) -> Words:  # noqa: ARG002
        """Refuse: qrsh -inherit is for the tasks that the job itself starts."""
        raise nobody_enters(
            self.features.title, "qrsh -inherit is only for what the job itself starts"
        )

    def read_id(self, result: Result) -> str:
        """Read "4" or "10.1-3:1"."""
        return last_id(r"\d+(\.\d+-\d+:\d+)?", result).partition(".")[0]

    def questions(self, job: str) -> tuple[StateQuestion, ...]:
        """Ask the queue, then accounting; the plain list, as not every build has qstat -xml."""
        why = StateQuestion(argv=("qstat", "-j", job), read=_read_reason)
        return (
            StateQuestion(argv=("qstat",), read=_read_queue, why=why),
            StateQuestion(argv=("qacct", "-j", job), read=_read_accounting),
        )

    def cancel(self, job: str, task: int | None = None) -> Words:
        """Return the qdel line."""
        return ("qdel", job) if task is None else ("qdel", job, "-t", str(task))

    def site_sections(self, ask: Ask) -> list[str]:
        """Return complexes, parallel environments, queues and the size of arrays, from qconf."""
        lines = ["[resources]", *_complex_lines(ask("qconf", "-sc"))]
        lines += _environment_lines(ask("qconf", "-spl"))
        lines += ["", "[fields]", '# required = ["account", "walltime"]', '# account = "-P"']
        most = re.search(r"^max_aj_tasks\s+(\d{1,9})", ask("qconf", "-sconf"), re.MULTILINE)
        if most and int(most[1]):
            lines += ["", "[limits]", f"array = {most[1]}"]
        queues = ask("qconf", "-sql").split()
        names = [word for word in queues if re.fullmatch(r"[A-Za-z0-9][\w.-]*", word)]
        for name in names[:QUEUES]:
            answer = ask("qconf", "-sq", name)
            longest = longest_walltime(r"^h_rt\s+(\d{1,9}):(\d{1,2}):(\d{1,2})", answer)
            lines += partition_section(name, longest)
        return lines


def _environment_lines(names: str) -> list[str]:
    """Return the parallel environment to take: one of a usual name, else the first."""
    environments = [word for word in names.split() if re.fullmatch(r"[\w.-]+", word)]
    if not environments:
        return []
    usual = [name for name in environments if name in ("smp", "shm", "openmp")]
    chosen = usual[0] if usual else environments[0]
    return [f"parallel-environment = {quote(chosen)}  # of: {' '.join(environments)}"]


def _complex_lines(complexes: str) -> list[str]:
    """Return how GPUs and memory are asked for, by the table of complexes (complex(5))."""
    # name, shortcut, type, relation, requestable, consumable; RSMAP is of Univa and Altair
    form = r"^({})\s+\S+\s+({})\s+\S+\s+(?:YES|FORCED)\s+(YES|JOB|NO|HOST)\s"
    flags = re.MULTILINE | re.IGNORECASE
    gpu = re.search(form.format(r"\S*gpu\S*", "INT|RSMAP"), complexes, flags)
    memory = re.search(form.format("h_vmem", "MEMORY"), complexes, flags)
    lines = ['gpu = "none"']
    if gpu:
        per = "slot" if gpu[3] == "YES" else "job"
        said = f"consumable {gpu[3]} in qconf -sc"
        lines = [
            'gpu = "consumable"',
            f"gpu-name = {quote(gpu[1])}",
            f'gpu-per = "{per}"  # {said}',
        ]
    if memory:
        # a limit that is no consumable is counted for each slot too (queue_conf(5), h_vmem)
        per = "job" if memory[3] == "JOB" else "slot"
        lines += ['memory = "h_vmem"', f'memory-per = "{per}"']
    return lines


def _read_queue(result: Result, job: str) -> Status | None:
    rows = [line.split() for line in result.stdout.splitlines()]
    states = [row[4] for row in rows if len(row) > 4 and row[0] == job]
    if not states:
        return None
    if any("E" in state for state in states):
        return Status(phase="queued", reason="it is in the error state Eqw", stuck=True)
    # s by a user, S by its queue, T by a threshold of the load (qstat(1))
    if all(re.search(r"[sST]", state) for state in states):
        return Status(phase="running", reason="suspended")
    if any(re.search(r"[rtdsST]", state) for state in states):
        return Status(phase="running")
    return Status(phase="queued", reason="held" if all("h" in state for state in states) else "")


def _read_reason(result: Result, job: str) -> Status | None:  # noqa: ARG001
    """Read why a job waits: the error of its last start, else what the scheduler says last."""
    errors = re.findall(r"^error reason\s+\d*:\s*(.*)$", result.stdout, flags=re.MULTILINE)
    rows = re.findall(
        r"^(?:scheduling info:)?\s+(.*(?:cannot run|dropped because|not requested).*)$",
        result.stdout,
        re.MULTILINE,
    )
    reasons = [text.strip() for text in errors or rows]
    return Status(phase="queued", reason=reasons[-1]) if reasons else None


def _read_accounting(result: Result, job: str) -> Status | None:
    """Read qacct's blocks; of the records of a task that ran again, the last counts."""
    tasks: dict[str, Status] = {}
    for block in re.split(r"^=+$", result.stdout, flags=re.MULTILINE):
        fields = dict(re.findall(r"^(\w+)[ \t]+(.*?)[ \t]*$", block, flags=re.MULTILINE))
        if fields.get("jobnumber") == job:
            tasks[fields.get("taskid", "")] = _ended(fields)
    if result.code or not tasks:
        return None
    return worst_status(tasks.values())


def _ended(fields: dict[str, str]) -> Status:
    node = fields.get("hostname", "")
    code = _first_number(fields.get("exit_status", ""))
    failed = _first_number(fields.get("failed", ""))
    if failed:
        reason = STATES.ended.get(str(failed), f"Grid Engine says: failed {fields['failed']}")
        return Status(phase="ended", reason=reason, code=code or None, node=node)
    reason = ""
    if code:
        reason = f"signal {code - 128} ended it" if code > 128 else "it failed"
    return Status(phase="ended", reason=reason, code=code, node=node)


def _first_number(text: str) -> int | None:
    found = re.match(r"\d{1,9}", text)
    return int(found[0]) if found else None
