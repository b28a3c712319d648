"""How batch scripts for a scheduler are written, and what goes wrong in them: what ``job lint`` knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envbuild.names import Texts

RESOURCES_OF_MEMORY = ("h_vmem", "mem_free", "s_vmem", "mem", "pmem", "vmem")
"""Names of -l in Grid Engine, PBS and Torque."""


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

    ``directive_end`` is a pattern of what follows the prefix of a
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
