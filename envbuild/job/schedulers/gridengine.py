"""Grid Engine (SGE, Univa, Altair): submit(1), qstat(1), accounting(5), qdel(1)."""

from __future__ import annotations

import re

from envbuild.job.model import Job, Status
from envbuild.job.request.units import clock, clock_seconds, short_memory, time_text
from envbuild.job.schedulers.dialect import (
    RESOURCES_OF_MEMORY,
    Dialect,
    HomeStart,
    SharedLog,
)
from envbuild.job.schedulers.protocol import (
    Ask,
    Banner,
    Features,
    Shell,
    StateQuestion,
    Words,
    array_text,
    command_words,
    job_name,
    last_match,
    log_pattern,
    no_id,
    nobody_enters,
    split_options,
    user_options,
)
from envbuild.job.sites.site import Site, refuse
from envbuild.run import Result
from envbuild.toml import quote

FAILED = {
    26: "its log file could not be opened (is there a log folder?)",
    27: "its folder is not on the node",
    37: "it reached a limit of time or memory",
    100: "it was ended by a signal",
}
"""Codes of the field ``failed`` (sge_status(5)) that users meet."""
OWNED = {
    "-t": "--array",
    "-tc": "--array",
    **dict.fromkeys(("-o", "-e", "-j"), "--output"),
    "-N": "--name",
    "-pe": "--cpus",
    **dict.fromkeys(("-hold_jid", "-hold_jid_ad"), "--after"),
    "-q": "--partition",
    **dict.fromkeys(("-cwd", "-wd", "-S", "-terse", "-C", "-b", "-sync"), ""),
}
GPUS = """\
# Univa and Altair name the GPUs of a job in a variable of the resource (RSMAP); plain Grid Engine names none
if [ -n "${SGE_HGR_@name@:-}" ] && [ -z "${CUDA_VISIBLE_DEVICES:-}" ]; then
  CUDA_VISIBLE_DEVICES=$(tr -s ' ' , <<<"$SGE_HGR_@name@" | tr -cd '0-9,')
  export CUDA_VISIBLE_DEVICES
elif [ -z "${CUDA_VISIBLE_DEVICES:-}" ]; then
  printf 'envbuild: Grid Engine names no GPU for this job: it sees all of the node\\n'
fi
"""
PUT_BACK = """\
# Grid Engine runs a job again that ends with 99 (sge_conf(5), FORBID_RESCHEDULE)
put_back() { code=99; }
"""
PREEMPTED = """\
# what is to start again (qmod -rj, or suspended in an environment of checkpoint(5)) waits already, or runs on another
# node (R); of the queue's name and node, qstat shows the first 30 letters
preempted() {
  local PATH=${SGE_O_PATH:-}:$PATH answer row
  ask_scheduler qstat || return 1
  while read -ra row; do
    [[ ${#row[@]} -gt 7 && ${row[0]} = "$JOB_ID" ]] || continue
    [[ -z $task || ${row[*]: -1} = "$task" ]] || continue
    case ${row[4]} in
    *q*) ;;
    *R*) [[ ${QUEUE-}@${HOSTNAME-} != "${row[7]}"* ]] || continue ;;
    *) continue ;;
    esac
    reason='Grid Engine stops it and starts it again'
    put_back() { :; }
    return 0
  done <<<"$answer"
  return 1
}
"""
QUEUES = 20
"""Queues that are asked for their limits: one call each."""
DIALECT = Dialect(
    # its prefix also begins other comments
    directive_end=r"\s*(?=-)",
    reads_late=True,
    time_resources=("walltime", "h_rt"),
    memory_resources=RESOURCES_OF_MEMORY,
    array_option="-t",
    log_loss="Grid Engine puts the job into the state Eqw",
    shared_log=SharedLog(
        pattern=r"(?!.*TASK_ID).*\.\w+$",
        reason="all tasks of the array write to one log",
        fix="$TASK_ID in its name",
    ),
    home_start=HomeStart(
        options=("-cwd", "-wd"), pattern=r"\b(?:cd|pushd)\b|SGE_O_WORKDIR", fix="#$ -cwd"
    ),
    submit_folder="$SGE_O_WORKDIR",
    variables="JOB_ID, SGE_*",
    foreign=r"\$\{?((?:SLURM_|PBS_)[A-Z_]+)\}?",
)


class GridEngine:
    """The scheduler of TSUBAME and of ABCI until 2024."""

    features = Features(
        name="gridengine",
        title="Grid Engine",
        prefix="#$",
        by_hand="qsub job.sh",
        gpu_dialects=("consumable", "type", "none"),
        banner=Banner(
            title="Grid Engine",
            argv=("qstat", "-help"),
            pattern=r"^(?:SGE|UGE|AGE|GE|OGE|Univa Grid Engine|Altair Grid Engine) \d\S*",
        ),
        strangers=(Banner(title="PBS", argv=("qsub", "--version"), pattern=r"^pbs_version = \S+"),),
        tests_success=False,
        tests_arrays=False,
        types_only=True,
        joins_options=False,
        reads_logins=True,
        array_from=1,
        array_source="qsub(1), -t",
        unknown=r"error: job id \d+ not found|do not exist",
        owned=OWNED,
        client_variables="SGE_ROOT|SGE_CELL|SGE_CLUSTER_NAME|SGE_QMASTER_PORT|SGE_EXECD_PORT",
        refusals={
            "account": "job rejected: the (?:requested )?project",
            "limit": "job rejected: .*(?:limit|maximum)|max_u_jobs",
            "queue": "no suitable queues",
            "silent": "unable to send message|got send error|can't get configuration|"
            "unable to contact qmaster",
        },
        dialect=DIALECT,
        shell=Shell(
            id="id=${JOB_ID:-$$}",
            task='task=${SGE_TASK_ID:-}\n[ "$task" != undefined ] || task=',
            number="SGE_TASK_ID",
            folder="${SGE_O_WORKDIR:-$PWD}",
            hosts='if [ -r "${PE_HOSTFILE:-}" ]; then cut -d " " -f 1 "$PE_HOSTFILE"; else hostname; fi',
            passed=("JOB_ID", "JOB_NAME", "SGE_*", "NSLOTS", "NHOSTS"),
            # -notify sends them to every process of the job (qsub(1))
            ignored=("USR1", "USR2"),
            put_back=PUT_BACK,
            preempted=PREEMPTED,
            gpus=GPUS,
        ),
    )

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
        """Return the qsub line; -w e refuses what can never run and would wait for ever."""
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
        words += split_options((*user_options(job, site), *site.fields.interactive))
        return ("qrsh", "-now", "n", *self._on_command_line(job, site), *words, "bash", script)

    def attach(self, script: str, job: str, *, terminal: bool) -> Words:  # noqa: ARG002
        """Refuse: qrsh -inherit is for the tasks that the job itself starts."""
        raise nobody_enters(
            self.features.title, "qrsh -inherit is only for what the job itself starts"
        )

    def read_id(self, result: Result) -> str:
        """Read "4" or "10.1-3:1"."""
        found = last_match(r"\d+(\.\d+-\d+:\d+)?", result.stdout)
        if found is None:
            raise no_id(result)
        return found.partition(".")[0]

    def questions(self, job: str) -> tuple[StateQuestion, ...]:
        """Ask the queue, then accounting; the plain list, as not every build has qstat -xml."""
        return (
            StateQuestion(argv=("qstat",), read=_read_queue),
            StateQuestion(argv=("qacct", "-j", job), read=_read_accounting),
        )

    def why(self, job: str) -> StateQuestion | None:
        """Ask for the error reason of a job in the state E."""
        return StateQuestion(argv=("qstat", "-j", job), read=_read_reason)

    def cancel(self, job: str, task: int | None = None) -> Words:
        """Return the qdel line."""
        return ("qdel", job) if task is None else ("qdel", job, "-t", str(task))

    def site_sections(self, ask: Ask) -> list[str]:
        """Return complexes, parallel environments, queues and the size of arrays, from qconf."""
        complexes, words = ask("qconf", "-sc"), ask("qconf", "-spl").split()
        environments = [word for word in words if re.fullmatch(r"[\w.-]+", word)]
        # complex(5): name, shortcut, type, relation, requestable,
        # consumable; RSMAP is of Univa and Altair
        form = r"^({})\s+\S+\s+({})\s+\S+\s+(?:YES|FORCED)\s+(YES|JOB|NO|HOST)\s"
        flags = re.MULTILINE | re.IGNORECASE
        gpu = re.search(form.format(r"\S*gpu\S*", "INT|RSMAP"), complexes, flags)
        memory = re.search(form.format("h_vmem", "MEMORY"), complexes, flags)
        lines = ["[resources]", f'gpu = "{"consumable" if gpu else "none"}"']
        if gpu:
            per = "slot" if gpu[3] == "YES" else "job"
            said = f"consumable {gpu[3]} in qconf -sc"
            lines += [f"gpu-name = {quote(gpu[1])}", f'gpu-per = "{per}"  # {said}']
        if memory:
            # a limit that is no consumable is counted for each slot too (queue_conf(5), h_vmem)
            per = "job" if memory[3] == "JOB" else "slot"
            lines += ['memory = "h_vmem"', f'memory-per = "{per}"']
        if environments:
            usual = [name for name in environments if name in ("smp", "shm", "openmp")]
            chosen = (usual or environments)[0]
            lines.append(f"parallel-environment = {quote(chosen)}  # of: {' '.join(environments)}")
        lines += ["", "[fields]", '# required = ["account", "walltime"]', '# account = "-P"']
        most = re.search(r"^max_aj_tasks\s+(\d{1,9})", ask("qconf", "-sconf"), re.MULTILINE)
        if most and int(most[1]):
            lines += ["", "[limits]", f"array = {most[1]}"]
        queues = ask("qconf", "-sql").split()
        names = [word for word in queues if re.fullmatch(r"[A-Za-z0-9][\w.-]*", word)]
        for name in names[:QUEUES]:
            lines += ["", "[[partition]]", f"name = {quote(name)}"]
            limit = re.search(
                r"^h_rt\s+(\d{1,9}):(\d{1,2}):(\d{1,2})", ask("qconf", "-sq", name), re.MULTILINE
            )
            if limit:
                longest = time_text(clock_seconds(*limit.groups()))
                lines.append(f"walltime = {quote(longest)}")
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
    return max(tasks.values(), key=lambda status: (status.code is None, status.code or 0))


def _ended(fields: dict[str, str]) -> Status:
    code = re.match(r"\d{1,9}", fields.get("exit_status", ""))
    failed = re.match(r"\d{1,9}", fields.get("failed", "0"))
    number, node = int(failed[0]) if failed else 0, fields.get("hostname", "")
    exit_code = int(code[0]) if code else None
    if number:
        reason = FAILED.get(number, f"Grid Engine says: failed {fields['failed']}")
        return Status(phase="ended", reason=reason, code=exit_code or None, node=node)
    reason = ""
    if exit_code:
        reason = f"signal {exit_code - 128} ended it" if exit_code > 128 else "it failed"
    return Status(phase="ended", reason=reason, code=exit_code, node=node)
