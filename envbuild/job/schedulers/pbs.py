"""PBS (OpenPBS, PBS Professional): qsub(1B), qstat(1B), qdel(1B)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import msgspec

from envbuild.job.model import Job, Status
from envbuild.job.request.units import clock, short_memory
from envbuild.job.schedulers.features import load_features
from envbuild.job.schedulers.protocol import (
    Ask,
    StateQuestion,
    Words,
    array_text,
    command_words,
    dependency_text,
    interactive_options,
    job_name,
    last_id,
    log_pattern,
    longest_walltime,
    nobody_enters,
    partition_section,
    user_options,
)
from envbuild.job.sites.site import Site, refuse
from envbuild.limits import UNREADABLE
from envbuild.run import Result
from envbuild.toml import quote

STATES = load_features("pbs").states
FAILED = tuple(map(str, range(1, 256)))
"""Values of Exit_status of a script that has ended by itself, and not with 0."""
NO_NODE = re.compile(r"ncpus \([^)]*T: 0\)")
"""In a comment: there is no core at all, as after a start of the server, before nodes report."""
NO_HISTORY = "PBS keeps no history (job_history_enable), so nobody knows how it ended"
LISTED = 5000
"""Lines of pbsnodes that are read: a large cluster repeats itself."""


class Pbs:
    """The scheduler of ABCI 3.0, Miyabi and Sockeye."""

    features = load_features("pbs")

    def options(self, job: Job, site: Site) -> tuple[Words, ...]:
        """Return the #PBS lines; -o is a folder, as the name of a log cannot hold the id (the script opens its own)."""
        intent = job.intent
        lines: list[Words] = [("-N", job_name(job.name))]
        if not job.interactive:
            # what PBS itself writes is kept where the job has failed only (-R): it says there what
            # it killed for
            lines += [("-j", "oe"), ("-R", "oe")]
            lines.append(("-o", f"{PurePosixPath(log_pattern(job)).parent}/"))
        partition = (
            job.allocation.type
            if site.pbs.type_is_queue
            else intent.partition or site.fields.partition
        )
        if partition:
            lines.append(("-q", partition))
        if intent.account:
            option = site.fields.account or "-A"
            lines.append(
                ("-W", f"group_list={intent.account}")
                if option == "-W"
                else (option, intent.account)
            )
        lines.append(("-l", f"select={self._chunks(job, site)}"))
        if job.allocation.nodes > 1 and not any(
            "place=" in text for text in user_options(job, site)
        ):
            # without it several chunks may share a node (pbs_resources(7B), place)
            lines.append(("-l", "place=scatter"))
        if intent.walltime is not None:
            lines.append(("-l", f"walltime={clock(intent.walltime)}"))
        if intent.array:
            lines.append(("-J", array_text(job)))
        if intent.requeue:
            lines.append(("-r", "y"))
        waits = dependency_text(intent)
        if waits:
            lines.append(("-W", f"depend={waits}"))
        if not job.interactive:
            # a job gets 077 otherwise, whatever its user's is
            lines.append(("-W", f"umask={job.umask}"))
        return tuple(lines)

    def _chunks(self, job: Job, site: Site) -> str:
        """Return N:ncpus=…, never the old nodes=N:ppn=…, which may not be mixed with it."""
        grant, dialect = job.allocation, site.resources
        starts_itself = job.intent.launcher in ("single", "torchrun")
        parts = [str(grant.nodes)]
        if dialect.cpus == "asked":
            parts.append(f"ncpus={grant.processes * (grant.cpus or 1)}")
        if dialect.gpu == "ngpus" and grant.gpus:
            parts.append(f"ngpus={grant.gpus}")
            if job.intent.gpu_type and site.pbs.gpu_type:
                parts.append(f"{site.pbs.gpu_type}={job.intent.gpu_type}")
        if grant.memory is not None:
            parts.append(f"mem={short_memory(grant.memory, 'gb', 'mb')}")
        processes = 1 if starts_itself else grant.processes
        if processes > 1 or grant.nodes > 1:
            parts.append(f"mpiprocs={processes}")
        cpus = grant.cpus or (1 if dialect.cpus == "asked" else None)
        if cpus is not None:
            # else PBS sets OMP_NUM_THREADS to the cores of the whole chunk
            parts.append(f"ompthreads={cpus}")
        return ":".join((*parts, *site.pbs.chunk))

    def submit(self, script: str, job: Job, site: Site) -> Words:  # noqa: ARG002
        """Return the qsub line."""
        return ("qsub", script)

    def interactive(self, script: str, job: Job, site: Site, *, terminal: bool = True) -> Words:
        """Return the qsub -I line; a program after -- is run, where a script would only be looked through."""
        if not terminal:
            rule = "PBS gives a job that is waited for a terminal, and no plain streams"
            refuse(site, "--on", rule, "envbuild notebook --on SITE starts JupyterLab there")
        own = interactive_options(job, site)
        words = command_words(self.options(job, site))
        return ("qsub", "-I", *words, *own, "--", "/bin/bash", script)

    def attach(self, script: str, job: str, *, terminal: bool) -> Words:  # noqa: ARG002
        """Refuse: pbs_tmrsh and pbsdsh are for the tasks of the job itself."""
        raise nobody_enters(self.features.title, "pbsdsh is only for what the job itself starts")

    def read_id(self, result: Result) -> str:
        """Read "123.server" or "123[].server", as it is."""
        return last_id(r"\d+(\[\])?(\.[\w.-]+)?", result)

    def questions(self, job: str) -> tuple[StateQuestion, ...]:
        """Ask for what waits and runs, then for history; for JSON, then for text.

        Values of the environment can make the JSON invalid.  Without job history, which is PBS's
        default, -x shows nothing at all, not even a job that runs.
        """
        return (
            StateQuestion(argv=("qstat", "-f", "-F", "json", job), read=_read_json),
            StateQuestion(argv=("qstat", "-f", job), read=_read_text),
            StateQuestion(argv=("qstat", "-x", "-f", "-F", "json", job), read=_read_json),
            StateQuestion(argv=("qstat", "-x", "-f", job), read=_read_text),
        )

    def cancel(self, job: str, task: int | None = None) -> Words:
        """Return the qdel line."""
        return ("qdel", job if task is None else job.replace("[]", f"[{task}]"))

    def site_sections(self, ask: Ask) -> list[str]:
        """Return queues, GPUs and the size of arrays, from qstat and pbsnodes."""
        text = ask("qstat", "-Qf")
        server = ask("qstat", "-Bf")
        nodes = "\n".join(ask("pbsnodes", "-a").splitlines()[:LISTED])
        gpus = [int(n) for n in re.findall(r"resources_available\.ngpus = (\d{1,9})", nodes)]
        most = max(gpus, default=0)
        lines = ["[resources]", f'gpu = "{"ngpus" if most else "none"}"', 'memory = "mem"']
        if most:
            lines.append(f"gpus-per-node = {most}")
        lines += ["", "[fields]", '# account = "-A"  # or -P, -W']
        default = re.search(r"default_queue = (\S+)", server)
        if default:
            lines.append(f"# partition = {quote(default[1])}  # the default here")
        size = re.search(r"max_array_size = (\d+)", server)
        # 10000 where nothing is set (pbs_server_attributes(7B), max_array_size)
        lines += ["", "[limits]", f"array = {size[1] if size else 10000}"]
        for part in re.split(r"^(?=Queue:? )", text, flags=re.MULTILINE):
            name = re.match(r"Queue:? (\S+)", part)
            if name is None or "queue_type = Route" in part:
                continue
            limit = r"resources_max\.walltime = (\d{1,9}):(\d{1,2}):(\d{1,2})"
            lines += partition_section(name[1], longest_walltime(limit, part))
            count = re.search(r"resources_max\.nodect = (\d+)", part)
            if count:
                lines.append(f"nodes = {count[1]}")
        return lines


class _Answer(msgspec.Struct, frozen=True):
    """The answer of qstat -F json: what it says of each job."""

    jobs: dict[str, dict[str, object]] = msgspec.field(name="Jobs", default_factory=dict)


def _read_json(result: Result, job: str) -> Status | None:  # noqa: ARG001
    if "not configured to maintain job history" in result.stderr:
        return Status(phase="unknown", reason=NO_HISTORY)
    try:
        jobs = msgspec.json.decode(result.stdout, type=_Answer).jobs
    except UNREADABLE:
        return None
    fields: Mapping[str, object] = next(iter(jobs.values()), {})
    return _status({key: str(value) for key, value in fields.items()})


def _read_text(result: Result, job: str) -> Status | None:  # noqa: ARG001
    joined = result.stdout.replace("\n\t", "")
    fields = dict(re.findall(r"^[ \t]+([\w.]+) = (.*)$", joined, flags=re.MULTILINE))
    return _status(fields) if "job_state" in fields else None


def _status(fields: dict[str, str]) -> Status | None:
    state, comment = fields.get("job_state", ""), fields.get("comment", "")
    node = fields.get("exec_host", "").partition("/")[0]
    if state == "E" and fields.get("Exit_status", "") in FAILED:
        # the script has ended; PBS may try for a minute to write its own file into a folder that is gone
        return _ended(fields["Exit_status"], comment, node)
    if state in ("R", "E", "B"):
        return Status(phase="running", node=node)
    if state in STATES.halted:
        return Status(phase="running", reason=STATES.halted[state], node=node)
    if state in ("F", "X"):
        return _ended(fields.get("Exit_status"), comment, node)
    if state in STATES.waiting:
        reason = comment or STATES.waiting[state]
        stuck = "Can Never Run" in comment and not NO_NODE.search(comment)
        return Status(phase="queued", reason=reason, stuck=stuck)
    return None


def _ended(code: str | None, comment: str, node: str) -> Status:
    cancelled = "and terminated" in comment  # "… and terminated by root@server" after qdel
    if code is None or not re.fullmatch(r"-?\d{1,9}", code):
        reason = "it was cancelled before it ran" if cancelled else comment
        return Status(phase="ended", reason=reason or "it ended without having run", node=node)
    number = int(code)
    if cancelled and number in (0, 1):
        # an array that was deleted has no code of its own
        return Status(phase="ended", reason="it was cancelled", node=node)
    if number < 0:
        return Status(
            phase="ended",
            reason=STATES.ended.get(str(number), f"PBS says: Exit_status {number}"),
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
