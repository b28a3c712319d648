"""What cluster this machine belongs to: which scheduler answers by its own word, and what it says about itself."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from envbuild.errors import EnvbuildError, HostError
from envbuild.host import read_driver
from envbuild.job.submit import client_environment
from envbuild.job.units import parse_walltime, told_time
from envbuild.run import Command, Runner
from envbuild.settings import Settings
from envbuild.toml import quote


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A scheduler that answered: its kind, its version line, and who said so."""

    scheduler: str
    version: str
    program: str


def _ask(argv: tuple[str, ...], settings: Settings, runner: Runner) -> str:
    """Return what a program says on both streams, "" where it is missing or hangs."""
    try:
        result = runner(
            Command(argv=argv, env=client_environment(settings.environment), timeout=10),
            check=False,
        )
    except EnvbuildError:
        return ""
    return "" if result.timed_out else f"{result.stdout}\n{result.stderr}"


VERSIONS = (
    ("slurm", ("sbatch", "--version"), r"^slurm(?:-wlm)? \d\S*"),
    ("pbs", ("qsub", "--version"), r"^pbs_version = \S+"),
    (
        "gridengine",
        ("qstat", "-help"),
        r"^(?:SGE|UGE|AGE|GE|OGE|Univa Grid Engine|Altair Grid Engine) \d\S*",
    ),
)
STRANGERS = (
    ("NQSV", ("qsub", "--version"), r"NQSV|NEC"),
    ("Torque", ("qsub", "--version"), r"^Version: \d.*|Commit: [0-9a-f]{8}"),
    ("PJM", ("pjsub", "--version"), r"Technical Computing Suite|PJM"),
    ("LSF", ("bsub", "-V"), r"LSF"),
)


def detect(settings: Settings, runner: Runner, wanted: str | None = None) -> Found:
    """Return the scheduler that runs here, by what its client says of itself: qsub is the name of five programs.

    ``wanted`` is the one that is meant where several answer.

    Raises HostError where there is none, or one that jobs cannot be written for.
    """
    for scheduler, argv, pattern in VERSIONS:
        if wanted not in (None, scheduler):
            continue
        found = re.search(pattern, _ask(argv, settings, runner), flags=re.MULTILINE)
        if found:
            return Found(scheduler=scheduler, version=found[0], program=argv[0])
    for name, argv, pattern in STRANGERS:
        if re.search(pattern, _ask(argv, settings, runner), flags=re.MULTILINE):
            raise HostError(
                f"{name} runs here, for which envbuild writes no jobs",
                hint="known: Slurm, Grid Engine, PBS",
            )
    raise HostError(
        "no scheduler answers here (asked: sbatch, qsub, qstat)",
        hint="run it on the login node of the cluster; without one, --on local is this machine",
    )


def site_text(name: str, found: Found, settings: Settings, runner: Runner) -> str:
    """Return a site file with what can be found out; what has to be known stands there as a comment."""
    sections = {
        "slurm": _slurm_sections,
        "gridengine": _grid_engine_sections,
        "pbs": _pbs_sections,
    }[found.scheduler](settings, runner)
    lines = ["[site]", f"name = {quote(name)}", f"scheduler = {quote(found.scheduler)}"]
    lines += [
        f"source = {quote(f'{found.version}, asked on {os.uname().nodename}')}",
        "",
        *sections,
        "",
    ]
    lines += _folder_lines(settings.environment)
    lines += ["[host]", f"architecture = {quote(os.uname().machine)}"]
    driver = read_driver()
    lines += (
        [f"driver = {quote(driver)}"]
        if driver
        else ['# driver = ""  # envbuild site probe --on NAME fills it in']
    )
    return "\n".join(lines) + "\n"


def _slurm_sections(settings: Settings, runner: Runner) -> list[str]:
    text = _ask(("sinfo", "-h", "-o", "%P|%l|%G|%D"), settings, runner)
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 3]
    gpus = [
        found for row in rows for found in re.findall(r"gpu:(?:([A-Za-z][\w.-]*):)?(\d+)", row[2])
    ]
    types = sorted({kind for kind, _ in gpus if kind})
    most = max((int(count) for _, count in gpus), default=0)
    lines = ["[resources]", f'gpu = "{"gres" if gpus else "none"}"', 'memory = "mem"']
    lines += [f"gpu-types = [{', '.join(map(quote, types))}]"] if types else []
    lines += [f"gpus-per-node = {most}"] if most else []
    default = next((row[0].rstrip("*") for row in rows if row[0].endswith("*")), None)
    lines += (
        ["", "[fields]", f"# partition = {quote(default)}  # the default here"] if default else []
    )
    lines += ['# required = ["account", "walltime"]  # where a job without one is refused']
    for row in sorted({(row[0].rstrip("*"), row[1]) for row in rows}):
        lines += ["", "[[partition]]", f"name = {quote(row[0])}"]
        limit = _slurm_time(row[1])
        lines += [f"walltime = {quote(limit)}"] if limit else []
    return lines


def _slurm_time(text: str) -> str | None:
    """Turn "1-12:00:00" into "1d12h"; None for "infinite"."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+:\d\d:\d\d|\d+:\d\d)", text)
    if found is None:
        return None
    clock = found[2] if found[2].count(":") == 2 else f"0:{found[2]}"
    seconds = int(found[1] or 0) * 86400
    with contextlib.suppress(EnvbuildError):  # 1-00:00:00 has no hours of its own
        seconds += parse_walltime(clock, "sinfo")
    return told_time(seconds) if seconds else None


def _grid_engine_sections(settings: Settings, runner: Runner) -> list[str]:
    complexes = _ask(("qconf", "-sc"), settings, runner)
    environments = [
        line
        for line in _ask(("qconf", "-spl"), settings, runner).split()
        if re.fullmatch(r"[\w.-]+", line)
    ]
    gpu = re.search(
        r"^(\S*gpu\S*)\s+\S+\s+INT\s+\S+\s+(?:YES|FORCED)\s+(YES|JOB)\s",
        complexes,
        flags=re.MULTILINE | re.IGNORECASE,
    )
    lines = ["[resources]", f'gpu = "{"consumable" if gpu else "none"}"']
    if gpu:
        per = "slot" if gpu[2] == "YES" else "job"
        lines += [
            f"gpu-name = {quote(gpu[1])}",
            f'gpu-per = "{per}"  # consumable {gpu[2]} in qconf -sc',
        ]
    if environments:
        chosen = next(
            (name for name in environments if name in ("smp", "shm", "openmp")), environments[0]
        )
        lines.append(f"parallel-environment = {quote(chosen)}  # of: {' '.join(environments)}")
    return [*lines, "", "[fields]", '# required = ["account", "walltime"]', '# account = "-P"']


def _pbs_sections(settings: Settings, runner: Runner) -> list[str]:
    queues = re.findall(
        r"^Queue:? (\S+)", _ask(("qstat", "-Qf"), settings, runner), flags=re.MULTILINE
    )
    nodes = _ask(("pbsnodes", "-a"), settings, runner)
    gpu = "ngpus" if re.search(r"resources_available\.ngpus = [1-9]", nodes) else "none"
    lines = [
        "[resources]",
        f'gpu = "{gpu}"',
        'memory = "mem"',
        "",
        "[fields]",
        '# account = "-A"  # or -P, -W',
    ]
    return [
        *lines,
        *(line for queue in queues for line in ("", "[[partition]]", f"name = {quote(queue)}")),
    ]


def _folder_lines(environment: Mapping[str, str]) -> list[str]:
    if environment.get("SCRATCH", "").startswith("/"):
        return ["[folders]", 'scratch = "$SCRATCH"', ""]
    return []


PROBE = (
    "bash",
    "-c",
    """\
echo "glibc=$(ldd --version | sed -n '1s/.* //p')"
echo "architecture=$(uname -m)"
nvidia-smi --query-gpu=driver_version,name,compute_cap,memory.total --format=csv,noheader | sed 's/^/gpu=/'""",
)
"""What one minute on a node tells."""


def probed_sections(log: str) -> tuple[dict[str, str], list[tuple[str, int, str]]]:
    """Read the probe's log: facts of the host, and GPUs as (name, capability times ten, memory)."""
    facts = dict(re.findall(r"^(glibc|architecture)=([\w.-]+)$", log, flags=re.MULTILINE))
    gpus: list[tuple[str, int, str]] = []
    for line in re.findall(r"^gpu=(.+)$", log, flags=re.MULTILINE):
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 4 and re.fullmatch(r"\d+\.\d+", parts[2]):
            facts["driver"] = parts[0]
            memory = re.sub(r"^(\d+) MiB$", r"\1MiB", parts[3])
            gpus.append((parts[1], int(parts[2].replace(".", "")), memory))
    return facts, list(dict.fromkeys(gpus))


def with_facts(text: str, facts: Mapping[str, str], gpus: list[tuple[str, int, str]]) -> str:
    """Return a site file whose [host] and [[gpu]] sections are the probe's; all else stays as it is written."""
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
    kept += [
        "",
        "[host]",
        *(
            f"{key} = {quote(facts[key])}"
            for key in ("driver", "glibc", "architecture")
            if key in facts
        ),
    ]
    for name, capability, memory in gpus:
        kept += [
            "",
            "[[gpu]]",
            f"name = {quote(name)}",
            f"capability = {capability}",
            f"memory = {quote(memory)}",
        ]
    return "\n".join(kept) + "\n"
