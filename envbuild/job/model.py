"""The records of this stage: what a job needs, what a site grants, what became of it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from envbuild.caches import Caches
from envbuild.names import Numbers, Texts
from envbuild.recipe.model import Launcher
from envbuild.records import frozen_record

SCHEMA = 1
Phase = Literal["queued", "running", "ended", "unknown"]
JobId = Annotated[str, Meta(pattern=r"^[0-9][A-Za-z0-9_.\[\]-]*\Z", max_length=200)]
"""A word of a scheduler's command line: never an option."""
TaskNumber = Annotated[int, Meta(ge=0, lt=1 << 31)]
SiteName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+:@-]*\Z", max_length=100)]


@frozen_record
class Array:
    """The tasks of an array: first, last, step, and how many may run at once (None: all)."""

    first: TaskNumber
    last: TaskNumber
    step: Annotated[int, Meta(gt=0)] = 1
    limit: int | None = None

    @property
    def numbers(self) -> range:
        """Return the tasks' numbers."""
        return range(self.first, self.last + 1, self.step)


@frozen_record
class Intent:
    """What a job needs, in nobody's dialect.

    ``gpus`` and ``tasks`` are in all, ``cpus`` per task; ``memory`` is MiB per node, ``walltime``
    seconds; None leaves a thing to the site.  ``after`` are ids of jobs that must have succeeded,
    ``after_any`` of jobs that must have ended; ``environment`` are names of the caller's variables;
    ``output`` is a pattern with {name}, {id} and {task}; ``inputs`` are paths that must be readable
    inside, ``stage`` those that are copied to the node's disk first; ``options`` go to the
    scheduler as they are.  ``warning`` is how many seconds before the end of its time a job is told
    to end (None: as the scheduler does it), ``requeue`` how often it then goes back into the queue;
    ``checkpoint`` names the folder that its command may go on from; ``notify`` is a shell line for
    its end.
    """

    gpus: int = 0
    gpu_type: str | None = None
    nodes: int | None = None
    tasks: int | None = None
    cpus: int | None = None
    memory: int | None = None
    walltime: int | None = None
    partition: str | None = None
    account: str | None = None
    array: Array | None = None
    after: Texts = ()
    after_any: Texts = ()
    launcher: Launcher = "single"
    environment: Texts = ()
    output: str | None = None
    inputs: Texts = ()
    stage: Texts = ()
    trial: bool = False
    options: Texts = ()
    warning: int | None = None
    requeue: int = 0
    checkpoint: str | None = None
    notify: str | None = None


@frozen_record
class Allocation:
    """What the job gets of the site: ``gpus`` and ``processes`` per node, ``cpus`` per process, ``memory`` per node.

    ``type`` is the site's name for the node or the part of one, None where it has no such names;
    ``cpus`` and ``memory`` are None where the site decides.
    """

    nodes: int
    gpus: int
    processes: int
    cpus: int | None
    memory: int | None
    type: str | None = None


@frozen_record
class Image:
    """The image a job runs in: its path as the job sees it, and what identifies it.

    ``stamp`` is its size and time of change, which the job compares: an image may change while a
    job waits.
    """

    path: str
    digest: str
    lock: str | None = None
    stamp: str = ""


@frozen_record
class ParameterTable:
    """Parameters of an array's tasks: a row of values for each, under the names of the columns."""

    names: Texts
    rows: tuple[Texts, ...]


@frozen_record
class Job:
    """Everything that a script is made from.

    ``image`` None runs the command on the node itself; ``rows`` are the commands of an array's
    tasks (empty: all run ``argv``); ``binds`` are (source, target, writable); ``secrets`` is the
    file of handed-on variables (None: there are none); ``checked`` are receipts that must all tell
    success before the command starts; ``key`` names the submission's files (None: printed, not
    submitted); ``caches`` is what outlives the job of its HOME; ``umask`` is the submitter's;
    ``layer`` is a squashfs that is laid over the image.
    ``table`` is what the rows were made from; ``origin`` is the key of the submission whose failed
    tasks this one repeats, ``repeats`` are their numbers there (empty: it is no repetition).
    """

    name: str
    argv: Texts
    intent: Intent
    allocation: Allocation
    image: Image | None
    rows: tuple[Texts, ...] = ()
    binds: tuple[tuple[str, str, bool], ...] = ()
    commit: str = "none"
    secrets: str | None = None
    checked: Texts = ()
    interactive: bool = False
    key: str | None = None
    caches: Caches | None = None
    umask: str = "022"
    table: ParameterTable | None = None
    origin: str = ""
    repeats: Numbers = ()
    layer: str | None = None


class ResourceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a job used of its (first) node: cores on average, memory in bytes at most, GPUs in per cent of the time.

    What was asked for stands beside it, 0 where nothing was; ``gpus_used`` and ``gpu_busy`` are
    None where no driver said it, and ``gpu_unseen`` says why.
    """

    seconds: float
    walltime: float
    cores: float
    cores_asked: float
    memory: int
    memory_asked: float
    gpus_asked: float
    gpus_used: int | None
    gpu_busy: float | None
    gpu_memory: int
    gpu_memory_total: int
    advice: str
    gpu_unseen: str = ""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """What the job itself wrote at its end; ``signal`` is the one that ended it early, ``started`` is UTC.

    ``reason`` is what the job knows of why, such as its time limit; ``use`` is None where its node
    has no Python; ``runs`` counts how often it started.
    """

    job: str
    name: str
    code: int
    node: str
    started: str
    ended: str
    task: str = ""
    signal: str = ""
    site: str = ""
    image: str = ""
    lock: str = ""
    commit: str = ""
    gpus: Texts = ()
    driver: str = ""
    reason: str = ""
    use: ResourceUse | None = None
    runs: int = 1
    schema: int = SCHEMA


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One submission, kept in ``.envbuild/jobs`` of the folder it was submitted from.

    ``log`` is the pattern of its log files, with {id} and {task} still in it, ``receipt`` that of
    its receipts, which no other job shares, as ids come again; ``tasks`` are the numbers of an
    array; ``purpose`` tells jobs that envbuild made for itself ("check", "make", "probe") and
    ``subject`` what they are about; ``job`` is what the script was made from, without the rows of
    an array (None: an older envbuild submitted it); ``cancelled`` says that it was cancelled from
    here.
    """

    id: JobId
    site: SiteName
    name: str
    script: str
    log: str
    receipt: Annotated[str, Meta(pattern=r"^[^\x00]*[^\x00/]\.json\Z")]
    submitted: str
    tasks: Annotated[tuple[TaskNumber, ...], Meta(max_length=100_000)] = ()
    purpose: str = "command"
    subject: str = ""
    job: Job | None = None
    cancelled: bool = False
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Raise ValueError where its parts do not fit: a copied folder brings anybody's records."""
        if self.job is None:
            return
        array, table = self.job.intent.array, self.job.table
        every = array.numbers if array else range(0)
        count = len(every) or 1
        fits = [task in every for task in self.tasks]
        fits.append(len(self.job.repeats) in (0, count))
        if table is not None:
            fits.append(len(table.rows) == count)
            fits += [len(row) == len(table.names) for row in table.rows]
        if not all(fits):
            raise ValueError("tasks, table and repetitions do not fit together")


@frozen_record
class Status:
    """What the scheduler says; ``code`` is an exit code where it knows one, ``stuck`` means it will never start.

    ``answered`` is False where it did not answer at all.
    """

    phase: Phase
    reason: str = ""
    code: int | None = None
    stuck: bool = False
    node: str = ""
    answered: bool = True
