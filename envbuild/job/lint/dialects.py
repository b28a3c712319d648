"""What lint knows of each scheduler: how its scripts are written, and what goes wrong in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from envbuild.job.schedulers import SCHEDULERS
from envbuild.names import Texts

SBATCH_SHORT = {
    "-t": "--time", "-o": "--output", "-e": "--error", "-a": "--array", "-n": "--ntasks",
    "-N": "--nodes", "-G": "--gpus", "-w": "--nodelist", "-J": "--job-name",
    "-c": "--cpus-per-task",
    "-p": "--partition", "-A": "--account", "-D": "--chdir",
}  # fmt: skip
"""Options of sbatch(1) that have a short form; the others mean little here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HomeStart:
    """For a scheduler that starts jobs in the home folder: what moves them elsewhere.

    ``options`` and ``resources`` (of -l) of the scheduler do, and commands that ``pattern`` finds.
    """

    options: Texts
    resources: Texts = ()
    pattern: str
    fix: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedLog:
    """Paths of logs (a pattern) that all tasks of an array write to."""

    pattern: str
    reason: str
    fix: str


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Dialect:
    """How scripts for one scheduler are written.

    ``name`` is the scheduler's.  ``directive_end`` is a pattern of what follows the prefix of a
    directive; ``reads_late``: directives count wherever they stand.  ``instead_of_variables`` is
    what to write in a directive, "" for a scheduler that expands variables there;
    ``log_variables_with`` is a name of -l of a relative that expands them in the paths of logs.
    ``time_options``, ``memory_options`` are options, ``time_resources``, ``memory_resources``
    names of -l; a time without a unit is in ``bare_time``, and too little up to ``short_time``;
    amounts without a unit are in ``bare_memory``.  ``log_has_host``: a log's path may begin with
    HOST: and may be a folder.  ``log_loss`` says what becomes of a job whose log has no folder.
    ``submit_folder`` is the variable with the folder of the submission, ``variables`` are all that
    the scheduler sets, ``foreign`` is a pattern of those that only others set.
    """

    name: str
    directive_end: str = r"\s+"
    reads_late: bool = False
    long_of: Mapping[str, str] = field(default_factory=dict)
    needs_shebang: bool = False
    instead_of_variables: str = ""
    log_variables_with: str = ""
    time_options: Texts = ()
    time_resources: Texts = ()
    bare_time: str = "seconds"
    short_time: int = 500
    memory_options: Texts = ()
    memory_resources: Texts = ()
    bare_memory: str = "bytes"
    array_option: str
    log_has_host: bool = True
    log_loss: str
    shared_log: SharedLog | None = None
    home_start: HomeStart | None = None
    submit_folder: str
    variables: str
    foreign: str
    free_port: str = "a port from the job's number"

    @property
    def title(self) -> str:
        """What people call the scheduler."""
        return SCHEDULERS[self.name].features.title

    @property
    def prefix(self) -> str:
        """What its lines begin with."""
        return SCHEDULERS[self.name].features.prefix

    @property
    def directive(self) -> re.Pattern[str]:
        """The pattern of the beginning of its lines."""
        return re.compile(re.escape(self.prefix) + self.directive_end)


RESOURCES_OF_MEMORY = ("h_vmem", "mem_free", "s_vmem", "mem", "pmem", "vmem")
DIALECTS = (
    Dialect(
        name="slurm",
        long_of=SBATCH_SHORT,
        needs_shebang=True,
        instead_of_variables="%j, %x, %A and %a",
        time_options=("--time",),
        bare_time="minutes",
        short_time=0,
        memory_options=("--mem", "--mem-per-cpu", "--mem-per-gpu"),
        bare_memory="MB",
        array_option="--array",
        log_has_host=False,
        log_loss="Slurm before 23.02 ends the job without a word",
        shared_log=SharedLog(
            pattern=r"(?!.*(?:%\d*[ajJ]|\{\{))",
            reason="all tasks of the array write to one log: Slurm empties it at the start of each",
            fix="%A_%a in its name",
        ),
        submit_folder="$SLURM_SUBMIT_DIR",
        variables="SLURM_*",
        foreign=r"\$\{?((?:PBS_(?!NODEFILE)|SGE_)[A-Z_]+)\}?",
        free_port="MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))",
    ),
    Dialect(
        name="pbs",
        instead_of_variables="give it to qsub instead",
        log_variables_with="nodes",  # Torque (expand_path in its start_exec.c)
        time_resources=("walltime", "h_rt"),
        memory_resources=RESOURCES_OF_MEMORY,
        array_option="-J",
        log_loss="PBS cannot deliver the log",
        home_start=HomeStart(
            options=("-d", "-w"),
            resources=("wd",),
            pattern=r"\b(?:cd|pushd|chdir)\b|PBS_O_WORKDIR",
            fix='cd "$PBS_O_WORKDIR"',
        ),
        submit_folder="$PBS_O_WORKDIR",
        variables="PBS_*",
        foreign=r"\$\{?((?:SLURM_|SGE_)[A-Z_]+)\}?",
    ),
    Dialect(
        name="gridengine",
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
    ),
)
"""A row each; where two have as many lines in a script, the first one counts."""
