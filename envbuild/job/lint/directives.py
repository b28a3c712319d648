"""Traps in the lines for the scheduler."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

from envbuild.job.lint.batch import DIALECTS, BatchScript
from envbuild.job.lint.finding import LintFinding, name_trap

LONG = (
    "account|array|chdir|constraint|cpus-per-task|error|exclusive|export|gpus|gres|job-name|"
    "mail-type|mail-user|mem|mem-per-cpu|nodelist|nodes|ntasks|ntasks-per-node|output|partition|"
    "qos|requeue|time"
)
"""Options of sbatch(1) that are written with one dash by mistake."""
COUNT = re.compile(r"\d{1,18}")
HOURS = "24|36|48|72|96|168"
"""Numbers that people write when they mean hours."""
GIGABYTES = (*range(1, 65), 96, 128, 192, 256)
"""Numbers that people write when they mean gigabytes."""
STARTERS = r"\b(?:srun|mpirun|mpiexec|mpiexec\.hydra|prun|aprun|ibrun|jsrun|parallel|orterun)\b"
"""Programs that start one process for each task."""


def find_shebang(script: BatchScript) -> Iterator[LintFinding]:
    """Find a first line that is no interpreter: sbatch refuses it (sbatch(1))."""
    first = script.lines[0]
    is_needed = script.dialect is not None and script.dialect.needs_shebang
    if re.match(r"#!\s*/\S+", first) or not (first.startswith("#!") or is_needed):
        return
    yield name_trap("shebang.needed" if is_needed else "shebang", 1)


def find_crlf(script: BatchScript, text: str) -> Iterator[LintFinding]:
    """Find line ends of Windows: bash takes the carriage return for a part of the last word."""
    line = text[: text.find("\r\n")].count("\n") + 1
    if "\r\n" in text and script.dialect:
        yield name_trap("crlf", line)


def find_late(script: BatchScript) -> Iterator[LintFinding]:
    """Find directives behind the first command: sbatch and qsub of PBS stop reading there."""
    if script.dialect is None or script.dialect.reads_late:
        return
    late = [directive for directive in script.directives if directive.late]
    if late:
        first = script.commands[0].line
        yield name_trap(
            "late-directive", late[0].line, title=script.title, first=first, count=len(late)
        )


def find_misspelt(script: BatchScript) -> Iterator[LintFinding]:
    """Find a prefix with letters out of order or in small ones: it is a comment."""
    first = script.commands[0].line if script.commands else len(script.lines) + 1
    prefixes = [features.prefix[1:] for features, _ in DIALECTS.values()]
    words = [prefix for prefix in prefixes if prefix.isalpha()]
    for number, line in enumerate(script.lines[: first - 1], 1):
        found = re.match(r"#([A-Za-z]{3,8}) ?(?=-{1,2}[A-Za-z])", line)
        if not found:
            continue
        written = found[1]
        for word in words:
            if written != word and _is_like(written, word):
                yield name_trap("misspelt", number, written=written, word=word)


def _is_like(text: str, word: str) -> bool:
    """Tell whether a word was meant; #sbatch and #xSBATCH are lines that were put aside."""
    if text.islower() or text[0] not in word[:2]:
        return False
    upper = text.upper()
    return sorted(upper) == sorted(word) or SequenceMatcher(None, upper, word).ratio() > 0.8


def find_variables(script: BatchScript) -> Iterator[LintFinding]:
    """Find variables in directives: Slurm and PBS expand none (sbatch(1), qsub(1B))."""
    if script.dialect is None or not script.dialect.instead_of_variables:
        return
    for directive in script.directives:
        if _expands_logs(script) and re.match(r"-[oe]\b", directive.text):
            continue
        text = re.sub(r"\s#.*$", "", directive.text)
        found = re.search(r"\$\{?[A-Za-z_]\w*\}?|\$\(|`", text)
        if found and not directive.late:
            fix = script.dialect.instead_of_variables
            yield name_trap(
                "variable-in-directive", directive.line, title=script.title, found=found[0], fix=fix
            )


def _expands_logs(script: BatchScript) -> bool:
    """Tell whether a script is for a relative of its scheduler that expands variables in logs."""
    mark = script.dialect.log_variables_with if script.dialect else ""
    return mark in script.resources()


def find_spaces(script: BatchScript) -> Iterator[LintFinding]:
    """Find blanks around "=": the value becomes another word."""
    for directive in script.directives:
        if re.match(r"--?[\w-]+(?:\s+[\w-]+)?(?:\s+=|=\s+[^\s#-])", directive.text):
            yield name_trap("blank-beside-equals", directive.line)


def find_typography(script: BatchScript) -> Iterator[LintFinding]:
    """Find dashes and quotes of a web page or a word processor."""
    if script.scheduler is None:
        return
    prefix = re.escape(script.scheduler.prefix)
    for number, line in enumerate(script.lines, 1):
        if re.match(rf"{prefix}\s*[-\u2010-\u2015\u2212]", line):
            text = re.sub(r"\s#.*$", "", line[1:])
            if found := re.search(r"[\u2010-\u2015\u2212\u2018-\u201f\u00a0]", text):
                yield name_trap("typography", number, found=found[0])


def find_one_dash(script: BatchScript) -> Iterator[LintFinding]:
    """Find one dash before a long option of Slurm: "-mem=4G" is "-m em=4G"."""
    for directive in script.directives:
        found = re.match(rf"-({LONG})(?:=|\s|$)", directive.text)
        if found:
            option = found[1]
            yield name_trap(
                "one-dash", directive.line, option=option, letter=option[0], rest=option[1:]
            )


def find_time(script: BatchScript) -> Iterator[LintFinding]:
    """Find times that mean less than they look like."""
    dialect = script.dialect
    if dialect is None:
        return
    line, value = script.find_option(*dialect.time_options) or (0, "")
    for name in reversed(dialect.time_resources):
        line, value = script.resources().get(name, (line, value))
    if re.fullmatch(rf"(?:{HOURS}):00", value):
        yield name_trap("short-time.minutes", line, value=value, minutes=value[:-3])
    elif re.fullmatch(HOURS, value) or (
        COUNT.fullmatch(value) and int(value) <= dialect.short_time
    ):
        yield name_trap("short-time", line, value=value, unit=dialect.bare_time)


def find_memory(script: BatchScript) -> Iterator[LintFinding]:
    """Find amounts of memory without a unit."""
    dialect = script.dialect
    if dialect is None:
        return
    unit = dialect.bare_memory
    found = [script.find_option(name) for name in dialect.memory_options]
    resources = script.resources()
    found += [resources.get(name) for name in dialect.memory_resources]
    for line, amount in filter(None, found):
        if COUNT.fullmatch(amount) and _is_too_little(int(amount), unit):
            yield name_trap("bare-memory", line, amount=amount, unit=unit)


def _is_too_little(amount: int, unit: str) -> bool:
    return amount in GIGABYTES if unit == "MB" else 0 < amount < 10**7


def find_logs(script: BatchScript, folder: Path | None) -> Iterator[LintFinding]:
    """Find logs in folders that are not there, and logs that several tasks share."""
    dialect = script.dialect
    if dialect is None:
        return
    for name in ("--output", "-o"):
        line, path = script.find_option(name) or (0, "")
        if path in ("", "/dev/null"):
            continue
        has_host = dialect.log_has_host
        path = path.rpartition(":")[2] if has_host else path
        is_folder = has_host and path.endswith("/")
        parent = path.rstrip("/") if is_folder else str(Path(path).parent)
        if parent not in (".", "") and not parent.startswith(("/", "~", "$", "%")):
            there = folder is not None and (folder / parent).is_dir()
            if not there:
                yield name_trap(
                    "log-folder",
                    line,
                    parent=parent,
                    log_loss=dialect.log_loss,
                    quoted=shlex.quote(str(parent)),
                )
        shared = dialect.shared_log
        is_array = script.find_option(dialect.array_option) is not None
        if shared and is_array and re.match(shared.pattern, path):
            yield LintFinding(kind="shared-log", line=line, reason=shared.reason, fix=shared.fix)
        return


def find_mixed_pbs(script: BatchScript) -> Iterator[LintFinding]:
    """-l nodes= beside -l select=: qsub(1B) refuses it."""
    resources = script.resources()
    if "nodes" in resources and "select" in resources:
        yield name_trap("nodes-and-select", resources["nodes"][0])


def find_export(script: BatchScript) -> Iterator[LintFinding]:
    """--export without ALL: the job has no other variable of the caller's (sbatch(1))."""
    found = script.find_option("--export")
    if found is None:
        return
    line, names = found
    if not re.match(r"(?:ALL|NONE|NIL)\b", names, re.IGNORECASE):
        yield name_trap("export-without-all", line, names=names)


def find_fixed_node(script: BatchScript) -> Iterator[LintFinding]:
    """Find a node by its name."""
    found = script.find_option("--nodelist")
    line, node = found or (0, "")
    if node:
        yield name_trap("fixed-node", line, node=node)


def find_spread_tasks(script: BatchScript) -> Iterator[LintFinding]:
    """Find several tasks, and nobody who starts them: their cores may be on several nodes."""
    found = script.find_option("--ntasks")
    tied = script.find_option("--nodes", "--ntasks-per-node")
    line, count = found or (0, "")
    if tied or not COUNT.fullmatch(count) or int(count) < 2:
        return
    if not re.search(STARTERS, script.body) and "SLURM_NTASKS" not in script.body:
        yield name_trap("tasks-for-cores", line, count=count)
