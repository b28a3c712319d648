"""Grid Engine (SGE, Univa, Altair): submit(1), qstat(1), accounting(5), qdel(1)."""

from __future__ import annotations

import re

from envbuild.job.allocate import refuse
from envbuild.job.model import Job, Status
from envbuild.job.schedulers.protocol import (
    Question,
    Shell,
    Words,
    flat,
    job_name,
    last_match,
    log_pattern,
    no_id,
    nobody_enters,
    split,
)
from envbuild.job.site import Site
from envbuild.job.units import clock, short_memory
from envbuild.run import Result

FAILED = {
    26: "its log file could not be opened (is there a log folder?)",
    27: "its folder is not on the node",
    37: "it reached a limit of time or memory",
    100: "it was ended by a signal",
}
"""Codes of the field ``failed`` (sge_status(5)) that users meet."""


class GridEngine:
    """The scheduler of TSUBAME and of ABCI until 2024."""

    title = "Grid Engine"
    prefix = "#$"
    writes_log = True
    clients: Words = ("qsub", "qstat", "qdel")
    shell = Shell(
        id="id=${JOB_ID:-$$}",
        task='task=${SGE_TASK_ID:-}\n[ "$task" != undefined ] || task=',
        folder="${SGE_O_WORKDIR:-$PWD}",
        hosts='if [ -r "${PE_HOSTFILE:-}" ]; then cut -d " " -f 1 "$PE_HOSTFILE"; else hostname; fi',
        passed=("JOB_ID", "JOB_NAME", "SGE_*", "NSLOTS", "NHOSTS"),
    )

    def options(self, job: Job, site: Site) -> tuple[Words, ...]:
        """Return the #$ lines; an account that belongs on the command line is left to ``submit``."""
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
        lines += [("-q", partition)] if partition else []
        if intent.account and not site.fields.account_on_command_line:
            lines.append((site.fields.account or "-P", intent.account))
        if intent.array:
            array = intent.array
            step = f":{array.step}" if array.step > 1 else ""
            lines.append(("-t", f"{array.first}-{array.last}{step}"))
            lines += [("-tc", str(array.limit))] if array.limit else []
        # there is no test for success: the script reads the receipts of the jobs in --after itself
        held = (*intent.after, *intent.after_any)
        lines += [("-hold_jid", ",".join(held))] if held else []
        if site.gridengine.notify and not job.interactive:
            lines.append(("-notify",))
        return (*lines, *split((*site.fields.options, *intent.options)))

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
            gpus, rest = divmod(grant.gpus, slots) if dialect.gpu_per == "slot" else (grant.gpus, 0)
            if rest:
                rule = f"are counted per slot here, and {grant.gpus} cannot be shared evenly by {slots} slots"
                refuse(site, "gpus", rule, f"--cpus {max(1, grant.gpus)} or fewer cores")
            lines.append(("-l", f"{dialect.gpu_name}={gpus}"))
        if grant.memory is not None:
            size = -(-grant.memory // slots) if dialect.memory_per == "slot" else grant.memory
            lines.append(("-l", f"{dialect.memory}={short_memory(size, 'G', 'M')}"))
        return lines

    def submit(self, script: str, job: Job, site: Site) -> Words:
        """Return the qsub line; -w e refuses what can never run, which Grid Engine would let wait for ever."""
        return ("qsub", "-terse", *self._on_command_line(job, site), script)

    def _on_command_line(self, job: Job, site: Site) -> Words:
        account = job.intent.account if site.fields.account_on_command_line else None
        verify = ("-w", "e") if site.gridengine.verify else ()
        return (*verify, *((site.fields.account or "-P", account) if account else ()))

    def interactive(self, script: str, job: Job, site: Site) -> Words:
        """Return the qrsh line: qrsh takes the script for a plain command and reads none of its lines."""
        words = flat(
            tuple(word for part in option for word in part.split())
            for option in self.options(job, site)
        )
        own = flat(split(site.fields.interactive))
        return (
            "qrsh",
            "-now",
            "n",
            *self._on_command_line(job, site),
            *words,
            *own,
            "bash",
            script,
        )

    def attach(self, script: str, job: str, *, terminal: bool) -> Words:  # noqa: ARG002
        """Refuse: qrsh -inherit is for the tasks of a parallel environment, started by the job itself."""
        raise nobody_enters(self.title, "qrsh -inherit is only for what the job itself starts")

    def read_id(self, result: Result) -> str:
        """Read "4" or "10.1-3:1"."""
        found = last_match(r"\d+(\.\d+-\d+:\d+)?", result.stdout)
        if found is None:
            raise no_id(result)
        return found.partition(".")[0]

    def questions(self, job: str) -> tuple[Question, ...]:
        """Ask the queue, then accounting; not every build has qstat -xml, so the plain list is read."""
        return (
            Question(argv=("qstat",), read=_read_queue),
            Question(argv=("qacct", "-j", job), read=_read_accounting),
        )

    def why(self, job: str) -> Question | None:
        """Ask for the error reason of a job in the state E."""
        return Question(argv=("qstat", "-j", job), read=_read_reason)

    def cancel(self, job: str) -> Words:
        """Return the qdel line."""
        return ("qdel", job)


def _read_queue(result: Result, job: str) -> Status | None:
    rows = [line.split() for line in result.stdout.splitlines()]
    states = [row[4] for row in rows if len(row) > 4 and row[0] == job]
    if not states:
        return None
    if any("E" in state for state in states):
        return Status(phase="queued", reason="it is in the error state Eqw", stuck=True)
    if any(re.search(r"[rtd]", state) for state in states):
        return Status(phase="running")
    return Status(phase="queued", reason="held" if all("h" in state for state in states) else "")


def _read_reason(result: Result, job: str) -> Status | None:  # noqa: ARG001
    """Read why a job waits: the error of its last start, else what the scheduler says last."""
    errors = re.findall(r"^error reason\s+\d*:\s*(.*)$", result.stdout, flags=re.MULTILINE)
    told = re.findall(
        r"^(?:scheduling info:)?\s+(.*(?:cannot run|dropped because|not requested).*)$",
        result.stdout,
        re.MULTILINE,
    )
    reasons = [text.strip() for text in errors or told]
    return Status(phase="queued", reason=reasons[-1]) if reasons else None


def _read_accounting(result: Result, job: str) -> Status | None:
    """Read qacct's blocks; a job that ran again has several records of a task, of which the last counts."""
    tasks: dict[str, Status] = {}
    for block in re.split(r"^=+$", result.stdout, flags=re.MULTILINE):
        fields = dict(re.findall(r"^(\w+)[ \t]+(.*?)[ \t]*$", block, flags=re.MULTILINE))
        if fields.get("jobnumber") == job:
            tasks[fields.get("taskid", "")] = _ended(fields)
    if result.code or not tasks:
        return None
    return max(tasks.values(), key=lambda status: (status.code is None, status.code or 0))


def _ended(fields: dict[str, str]) -> Status:
    code = re.match(r"\d+", fields.get("exit_status", ""))
    failed = re.match(r"\d+", fields.get("failed", "0"))
    number, node = int(failed[0]) if failed else 0, fields.get("hostname", "")
    exit_code = int(code[0]) if code else None
    if number:
        reason = FAILED.get(number, f"Grid Engine says: failed {fields['failed']}")
        return Status(phase="ended", reason=reason, code=exit_code or None, node=node)
    return Status(phase="ended", reason="it failed" if exit_code else "", code=exit_code, node=node)
