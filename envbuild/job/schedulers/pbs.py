"""PBS (OpenPBS, PBS Professional): qsub(1B), qstat(1B), qdel(1B)."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

from envbuild.errors import UsageError
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

SERVER_CODES = {
    -27: "it used more memory than it had asked for",
    -29: "it reached its time limit",
    -1: "it could not be started on its node",
    -2: "it could not be started on its node, and its output is lost",
    -3: "it could not be started on its node and was to run again",
}
"""Negative values of Exit_status (openpbs job.h, JOB_EXEC_*)."""


class Pbs:
    """The scheduler of ABCI 3.0, Miyabi and Sockeye."""

    title = "PBS"
    prefix = "#PBS"
    writes_log = False
    clients: Words = ("qsub", "qstat", "qdel")
    shell = Shell(
        id="id=${PBS_JOBID:-$$}\nid=${id%%.*}\nid=${id%%[[]*}",
        task="task=${PBS_ARRAY_INDEX:-}",
        folder="${PBS_O_WORKDIR:-$PWD}",
        hosts='if [ -r "${PBS_NODEFILE:-}" ]; then awk \'!seen[$0]++\' "$PBS_NODEFILE"; else hostname; fi',
        passed=("PBS_*", "NCPUS"),
    )

    def options(self, job: Job, site: Site) -> tuple[Words, ...]:
        """Return the #PBS lines; -o is a folder, as the name of a log cannot hold the id (the script opens its own)."""
        intent = job.intent
        lines: list[Words] = [("-N", job_name(job.name))]
        if not job.interactive:
            lines += [("-j", "oe"), ("-o", f"{PurePosixPath(log_pattern(job)).parent}/")]
        partition = (
            job.allocation.type
            if site.pbs.type_is_queue
            else intent.partition or site.fields.partition
        )
        lines += [("-q", partition)] if partition else []
        if intent.account:
            option = site.fields.account or "-A"
            lines.append(
                ("-W", f"group_list={intent.account}")
                if option == "-W"
                else (option, intent.account)
            )
        lines.append(("-l", f"select={self._chunks(job, site)}"))
        if intent.walltime is not None:
            lines.append(("-l", f"walltime={clock(intent.walltime)}"))
        if intent.array:
            array = intent.array
            step = f":{array.step}" if array.step > 1 else ""
            limit = f"%{array.limit}" if array.limit else ""
            lines.append(("-J", f"{array.first}-{array.last}{step}{limit}"))
        waits = [f"afterok:{':'.join(intent.after)}"] if intent.after else []
        waits += [f"afterany:{':'.join(intent.after_any)}"] if intent.after_any else []
        lines += [("-W", f"depend={','.join(waits)}")] if waits else []
        return (*lines, *split((*site.fields.options, *intent.options)))

    def _chunks(self, job: Job, site: Site) -> str:
        """Return N:ncpus=…, never the old nodes=N:ppn=…, which may not be mixed with it."""
        grant, dialect = job.allocation, site.resources
        starts_itself = job.intent.launcher in ("single", "torchrun")
        parts = [str(grant.nodes)]
        if dialect.cpus == "asked":
            parts.append(f"ncpus={grant.processes * (grant.cpus or 1)}")
        if dialect.gpu == "ngpus" and grant.gpus:
            parts.append(f"ngpus={grant.gpus}")
        if grant.memory is not None:
            parts.append(f"mem={short_memory(grant.memory, 'gb', 'mb')}")
        processes = 1 if starts_itself else grant.processes
        if processes > 1 or grant.nodes > 1:
            parts.append(f"mpiprocs={processes}")
            if grant.cpus is not None:
                parts.append(f"ompthreads={grant.cpus}")
        return ":".join((*parts, *site.pbs.chunk))

    def submit(self, script: str, job: Job, site: Site) -> Words:  # noqa: ARG002
        """Return the qsub line."""
        return ("qsub", script)

    def interactive(self, script: str, job: Job, site: Site) -> Words:
        """Return the qsub -I line, which opens a shell on the node and runs no command."""
        if job.argv[:1] != ("bash",):
            raise UsageError(
                "PBS opens a shell and runs no command in it (qsub(1B), -I)",
                where="--interactive",
                hint=f"leave the command out, and type on the node: bash {script}",
            )
        return ("qsub", "-I", *flat(self.options(job, site)), *flat(split(site.fields.interactive)))

    def attach(self, script: str, job: str, *, terminal: bool) -> Words:  # noqa: ARG002
        """Refuse: pbs_tmrsh and pbsdsh are for the tasks of the job itself."""
        raise nobody_enters(self.title, "pbsdsh is only for what the job itself starts")

    def read_id(self, result: Result) -> str:
        """Read "123.server" or "123[].server", as it is."""
        found = last_match(r"\d+(\[\])?(\.[\w.-]+)?", result.stdout)
        if found is None:
            raise no_id(result)
        return found

    def questions(self, job: str) -> tuple[Question, ...]:
        """Ask for JSON, then for text: values of the environment can make the JSON invalid."""
        return (
            Question(argv=("qstat", "-x", "-f", "-F", "json", job), read=_read_json),
            Question(argv=("qstat", "-x", "-f", job), read=_read_text),
        )

    def why(self, job: str) -> Question | None:  # noqa: ARG002
        """Return None: qstat has the scheduler's comment."""
        return None

    def cancel(self, job: str) -> Words:
        """Return the qdel line."""
        return ("qdel", job)


def _read_json(result: Result, job: str) -> Status | None:  # noqa: ARG001
    try:
        data: Any = json.loads(result.stdout)
        jobs = list(data.get("Jobs", {}).values())
    except (ValueError, AttributeError):
        return None
    return _status({str(key): str(value) for key, value in jobs[0].items()}) if jobs else None


def _read_text(result: Result, job: str) -> Status | None:  # noqa: ARG001
    joined = result.stdout.replace("\n\t", "")
    fields = dict(re.findall(r"^\s+([\w.]+) = (.*)$", joined, flags=re.MULTILINE))
    return _status(fields) if "job_state" in fields else None


def _status(fields: dict[str, str]) -> Status | None:
    state, comment = fields.get("job_state", ""), fields.get("comment", "")
    node = fields.get("exec_host", "").partition("/")[0]
    if state in ("R", "E", "B"):
        return Status(phase="running", node=node)
    if state in ("F", "X"):
        return _ended(fields.get("Exit_status"), comment, node)
    if state in ("Q", "H", "W", "T", "S", "U", "M"):
        return Status(phase="queued", reason=comment, stuck="Can Never Run" in comment)
    return None


def _ended(code: str | None, comment: str, node: str) -> Status:
    if code is None or not re.fullmatch(r"-?\d+", code):
        return Status(phase="ended", reason=comment or "it ended without having run", node=node)
    number = int(code)
    if number < 0:
        return Status(
            phase="ended",
            reason=SERVER_CODES.get(number, f"PBS says: Exit_status {number}"),
            node=node,
        )
    if number >= 256:  # 256 + signal; 271 is TERM, as after qdel
        return Status(
            phase="ended",
            reason=f"signal {number - 256} ended it",
            code=128 + number - 256,
            node=node,
        )
    return Status(phase="ended", reason="it failed" if number else "", code=number, node=node)
