"""What cluster this machine belongs to: which scheduler answers by its own word, and what it says about itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from envbuild.context import Context
from envbuild.errors import EnvbuildError, HostError, UsageError
from envbuild.host import read_driver
from envbuild.job.schedulers import SCHEDULERS
from envbuild.job.schedulers.features import Banner
from envbuild.job.submit import ask
from envbuild.names import Texts, Variables
from envbuild.records import frozen_record
from envbuild.run import Result
from envbuild.runtime_search import MINIMUM, parse_version
from envbuild.store.units import join_numbers
from envbuild.toml import closest, quote, write_pairs


@frozen_record
class DetectedScheduler:
    """A scheduler that answered: its kind, its version line, and who said so."""

    scheduler: str
    version: str
    program: str


def _ask(argv: Texts, context: Context) -> str:
    """Return what a program says on both streams, "" where it is missing or hangs."""
    result = _call(argv, context)
    return "" if result is None else f"{result.stdout}\n{result.stderr}"


def _call(argv: Texts, context: Context) -> Result | None:
    """Call a program; None where it is missing or hangs."""
    try:
        result = ask(argv, context, patience=10)
    except EnvbuildError:
        return None
    return None if result.timed_out else result


def _ask_cluster(found: DetectedScheduler, context: Context) -> list[str]:
    """Return the sections of a site file; raises HostError where the cluster answers no question."""
    calls: list[Result] = []

    def ask_client(*argv: str) -> str:
        result = _call(argv, context)
        if result is None:
            return ""
        calls.append(result)
        # a client that fails says why, which is no answer
        return "" if result.code else result.stdout

    sections = SCHEDULERS[found.scheduler].site_sections(ask_client)
    if calls and all(result.code for result in calls):
        first = calls[0]
        what = f"{found.version} is installed here, but does not answer: {first.last_lines(1)}"
        hint = "is its server running, and is this its login node? Ask who runs the cluster"
        raise HostError(what, where=first.argv[0], hint=hint)
    return sections


STRANGERS = (
    Banner(title="NQSV", argv=("qsub", "--version"), pattern=r"NQSV|NEC"),
    Banner(
        title="Torque", argv=("qsub", "--version"), pattern=r"^Version: \d.*|Commit: [0-9a-f]{8}"
    ),
    Banner(title="PJM", argv=("pjsub", "--version"), pattern=r"Technical Computing Suite|PJM"),
    Banner(title="LSF", argv=("bsub", "-V"), pattern=r"LSF"),
)
"""Schedulers that are known by name, and that jobs cannot be written for."""


def detect(context: Context, wanted: str | None = None) -> DetectedScheduler:
    """Return the scheduler that runs here, by what its client says of itself: qsub is the name of five programs.

    ``wanted`` is the one that is meant where several answer.

    Raises HostError where there is none, or one that jobs cannot be written for.
    """
    known = {name: one.features.banner for name, one in SCHEDULERS.items() if one.features.banner}
    if wanted is not None and wanted not in known:
        raise UsageError(
            f"there is no scheduler {wanted!r}{closest(wanted, known)}", where="--scheduler"
        )
    for name, banner in known.items():
        if wanted not in (None, name) or banner is None:
            continue
        answer = _ask(banner.argv, context)
        found = re.search(banner.pattern, answer, flags=re.MULTILINE)
        if found:
            return DetectedScheduler(scheduler=name, version=found[0], program=banner.argv[0])
    titles = ", ".join(banner.title for banner in known.values())
    programs = ", ".join(banner.argv[0] for banner in known.values())
    for banner in STRANGERS:
        answer = _ask(banner.argv, context)
        if re.search(banner.pattern, answer, flags=re.MULTILINE):
            raise HostError(
                f"{banner.title} runs here, for which envbuild writes no jobs",
                hint=f"known: {titles}",
            )
    raise HostError(
        f"no scheduler answers here (asked: {programs})",
        hint="run it on the login node of the cluster; without one, --on local is this machine",
    )


def site_text(name: str, found: DetectedScheduler, context: Context) -> str:
    """Return a site file with what can be found out.

    What has to be known stands there as a comment.
    """
    sections = _ask_cluster(found, context)
    here = os.uname()
    source = f"{found.version}, asked on {here.nodename}"
    about = {"name": name, "scheduler": found.scheduler, "source": source}
    lines = ["[site]", *write_pairs(about), "", *sections, ""]
    lines += _folder_lines(context.settings.environment)
    lines += ["[host]", *write_pairs({"architecture": here.machine})]
    known = {"runtime": _installed_runtime(context), "driver": read_driver()}
    for key, value in known.items():
        unknown = f'# {key} = ""  # envbuild site probe --on NAME fills it in'
        lines.append(f"{key} = {quote(value)}" if value else unknown)
    return "\n".join(lines) + "\n"


def _folder_lines(environment: Variables) -> list[str]:
    if environment.get("SCRATCH", "").startswith("/"):
        return ["[folders]", 'scratch = "$SCRATCH"', ""]
    return []


def _installed_runtime(context: Context) -> str:
    """Return name and version of the container runtime on PATH, "" where there is none."""
    answers = (_ask((program, "--version"), context) for program in MINIMUM)
    return next(filter(None, map(_read_runtime, answers)), "")


def _read_runtime(answer: str) -> str:
    try:
        name, version = parse_version(answer, where="--version")
    except HostError:
        return ""
    return f"{name} {join_numbers(version)}"


PROBE = (
    "bash",
    "-c",
    """\
echo "runtime=$(apptainer --version 2>/dev/null || singularity --version 2>/dev/null)"
echo "glibc=$(ldd --version | sed -n '1s/.* //p')"
echo "architecture=$(uname -m)"
nvidia-smi --query-gpu=driver_version,name,compute_cap,memory.total --format=csv,noheader | sed 's/^/gpu=/'""",
)
"""What one minute on a node tells."""


class ProbedGpu(NamedTuple):
    """A GPU as a node tells it; ``capability`` is times ten."""

    name: str
    capability: int
    memory: str


def probed_sections(log: str) -> tuple[dict[str, str], list[ProbedGpu]]:
    """Read the probe's log: facts of the host, and its different GPUs."""
    facts = dict(re.findall(r"^(glibc|architecture)=([\w.-]+)$", log, flags=re.MULTILINE))
    found = re.search(r"^runtime=(.+)$", log, flags=re.MULTILINE)
    runtime = _read_runtime(found[1]) if found else ""
    if runtime:
        facts["runtime"] = runtime
    gpus: list[ProbedGpu] = []
    for line in re.findall(r"^gpu=(.+)$", log, flags=re.MULTILINE):
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 4:
            continue
        driver, name, capability, memory = parts
        if re.fullmatch(r"\d{1,3}\.\d", capability):
            facts["driver"] = driver
            memory = re.sub(r"^(\d+) MiB$", r"\1MiB", memory)
            gpus.append(ProbedGpu(name, int(capability.replace(".", "")), memory))
    return facts, list(dict.fromkeys(gpus))


def with_facts(text: str, facts: Mapping[str, str], gpus: list[ProbedGpu]) -> str:
    """Return a site file whose [host] and [[gpu]] sections are the probe's.

    All else stays as it is written.
    """
    kept: list[str] = []
    skipping = False
    for line in text.splitlines():
        header = re.fullmatch(r"\s*\[\[?([\w-]+)\]\]?\s*(#.*)?", line)
        if header:
            skipping = header[1] in ("host", "gpu")
        if not skipping:
            kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    kept += ["", "[host]"]
    keys = ("driver", "glibc", "architecture", "runtime")
    kept += write_pairs({key: facts[key] for key in keys if key in facts})
    for gpu in gpus:
        kept += ["", "[[gpu]]", *write_pairs(gpu._asdict())]
    return "\n".join(kept) + "\n"
