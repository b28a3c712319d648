"""What differs between schedulers: a file of data each (data/schedulers)."""

from __future__ import annotations

import functools
from typing import Literal

import msgspec

from envbuild.data.tables import TableRow, table_loader
from envbuild.names import Texts

Cause = Literal["account", "limit", "queue-limit", "array", "queue", "node", "resource", "silent"]
"""Why a job is refused; data/refusals.toml has the words for each."""


class HomeStart(TableRow, frozen=True, kw_only=True):
    """For a scheduler that starts jobs in the home folder: what moves them elsewhere.

    ``options`` and ``resources`` (of -l) of the scheduler do, and commands that ``pattern`` finds.
    """

    options: Texts
    resources: Texts = ()
    pattern: str
    fix: str


class SharedLog(TableRow, frozen=True, kw_only=True):
    """Paths of logs (a pattern) that all tasks of an array write to."""

    pattern: str
    reason: str
    fix: str


class Dialect(TableRow, frozen=True, kw_only=True):
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
    long_of: dict[str, str] = msgspec.field(default_factory=dict)
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


class Shell(TableRow, frozen=True, kw_only=True):
    """What a job's own script takes from its scheduler, as bash.

    ``id`` and ``task`` set those variables, ``folder`` is where it was submitted, ``hosts`` prints
    one node a line, ``passed`` are shell patterns of variables that the container gets to see.
    ``setup`` are lines at the start. ``tell_ranks`` gives a signal to the ranks that the
    scheduler's own starter has started; ``ignored`` are signals that the scheduler sends to every
    process of a job, and that must not end the command.  ``gpus`` are lines that turn the
    scheduler's choice of GPUs into CUDA_VISIBLE_DEVICES, with @name@ for the resource; ``number``
    is the variable with the number of an array's task; ``put_back`` is a function that puts the job
    back into the queue, with @script@ for its script; ``preempted`` is a function that tells
    whether another job takes this one's place, or it is started again for another reason, and
    ``await_preemption`` one that waits for it where the script is not told; ``kill_later`` is one
    that ends a command which goes on after TERM, where the scheduler itself does not.
    """

    id: str
    task: str
    folder: str
    hosts: str
    passed: Texts = ()
    setup: str = ""
    tell_ranks: str = ""
    ignored: Texts = ()
    gpus: str = ""
    number: str = ""
    put_back: str = ""
    preempted: str = ""
    await_preemption: str = ""
    kill_later: str = ""


class Banner(TableRow, frozen=True, kw_only=True):
    """What a client says of itself: whom it belongs to, what to ask it, and the pattern of the answer."""

    title: str
    argv: Texts
    pattern: str


class States(TableRow, frozen=True, kw_only=True):
    """The scheduler's words for the states of a job, with what they mean to people.

    ``halted``: it has begun and stands still; ``waiting`` are reasons why it does not run;
    ``ended`` are states, or codes, of a job that has ended badly.
    """

    queued: Texts = ()
    running: Texts = ()
    halted: dict[str, str] = msgspec.field(default_factory=dict)
    waiting: dict[str, str] = msgspec.field(default_factory=dict)
    ended: dict[str, str] = msgspec.field(default_factory=dict)


class Features(TableRow, frozen=True, kw_only=True):
    """What a scheduler can do and how its clients speak; everything that differs between them and is no text of a job.

    ``name`` is what site files call it, ``title`` what people do; ``prefix`` starts its lines in a
    script. ``queues`` is False for this machine, where nothing waits and nothing is handed out.
    ``gpu_dialects`` are the values of ``[resources] gpu`` that it knows.  ``tests_success``: it can
    hold a job until another has succeeded, ``tests_arrays``: also until each task of an array has.
    ``requeues_tasks``: a task of an array may go back into the queue.  ``trusts_unknown``: it takes
    a job that it does not know for one that succeeded.  ``types_only``: several nodes, and GPUs by
    type, go with [[type]] alone.  ``starts_ranks``: it has a starter of its own for ranks, which tells each its number.
    ``lightning_counts_tasks``: Lightning takes the tasks of a job for all of its processes.
    ``reads_logins``: a job begins with a login shell, which reads the user's login files.
    ``array_from`` and ``array_least`` are the first number and the fewest tasks of an array.
    ``unknown`` is how a client says that there is no such job: whatever else it says when it fails,
    is no answer. ``owned`` are options that envbuild writes, with the flag that gives them;
    ``joins_options``: the value of one of a single letter may follow without a blank.  ``accounts``
    are variables that name the account; ``client_variables`` is a pattern of those that its clients need.
    ``folder_option`` is for clients that read options in files of the current folder, which may be
    a stranger's: it names the job's folder to one that is started elsewhere.
    ``refusals`` are patterns of what they say when they refuse a job, by cause.  ``dialect`` is how
    its scripts are written, None where they have no lines for it.  ``banner`` is its own client's
    word, ``strangers`` those of others that have clients of the same name.
    """

    name: str
    title: str
    prefix: str
    shell: Shell
    by_hand: str
    gpu_dialects: Texts
    banner: Banner | None = None
    writes_log: bool = True
    queues: bool = True
    tests_success: bool = True
    tests_arrays: bool = True
    requeues_tasks: bool = True
    trusts_unknown: bool = False
    types_only: bool = False
    starts_ranks: bool = False
    lightning_counts_tasks: bool = False
    reads_logins: bool = False
    appends_log: bool = False
    joins_options: bool = True
    array_from: int = 0
    array_least: int = 1
    array_source: str = ""
    unknown: str = "$^"
    owned: dict[str, str] = msgspec.field(default_factory=dict)
    accounts: Texts = ()
    client_variables: str = ""
    folder_option: str = ""
    refusals: dict[Cause, str] = msgspec.field(default_factory=dict)
    dialect: Dialect | None = None
    strangers: tuple[Banner, ...] = ()
    states: States = States()


@functools.cache
def load_features(name: str) -> Features:
    """Read what a scheduler can do, and its words."""
    return table_loader(f"schedulers/{name}.toml", Features)()
