"""Traps in the lines for the scheduler."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

from envbuild.job.lint.batch import DIALECTS, BatchScript
from envbuild.job.lint.finding import LintFinding

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
    reason = "the first line names an interpreter that is no path from /"
    if is_needed:
        reason = "the first line names no interpreter by its path; sbatch refuses such a script"
    yield LintFinding(kind="shebang", line=1, reason=reason, fix="#!/bin/bash")


def find_crlf(script: BatchScript, text: str) -> Iterator[LintFinding]:
    """Find line ends of Windows: bash takes the carriage return for a part of the last word."""
    line = text[: text.find("\r\n")].count("\n") + 1
    if "\r\n" in text and script.dialect:
        reason = "the lines end as on Windows: the shell reads a carriage return in every last word"
        yield LintFinding(kind="crlf", line=line, reason=reason, fix="sed -i 's/\\r$//' FILE")


def find_late(script: BatchScript) -> Iterator[LintFinding]:
    """Find directives behind the first command: sbatch and qsub of PBS stop reading there."""
    if script.dialect is None or script.dialect.reads_late:
        return
    late = [directive for directive in script.directives if directive.late]
    if late:
        first = script.commands[0].line
        reason = (
            f"{script.title} reads no directive behind the first command (line {first}):"
            f" {len(late)} are ignored"
        )
        yield LintFinding(
            kind="late-directive",
            line=late[0].line,
            reason=reason,
            fix=f"move them above line {first}",
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
                reason = f"#{written} is a comment to the scheduler: the line is ignored"
                yield LintFinding(kind="misspelt", line=number, reason=reason, fix=f"#{word}")


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
            reason = f"{script.title} expands no {found[0]} in a directive"
            yield LintFinding(
                kind="variable-in-directive", line=directive.line, reason=reason, fix=fix
            )


def _expands_logs(script: BatchScript) -> bool:
    """Tell whether a script is for a relative of its scheduler that expands variables in logs."""
    mark = script.dialect.log_variables_with if script.dialect else ""
    return mark in script.resources()


def find_spaces(script: BatchScript) -> Iterator[LintFinding]:
    """Find blanks around "=": the value becomes another word."""
    for directive in script.directives:
        if re.match(r"--?[\w-]+(?:\s+[\w-]+)?(?:\s+=|=\s+[^\s#-])", directive.text):
            reason = "a blank beside = cuts the value off the option"
            yield LintFinding(
                kind="blank-beside-equals", line=directive.line, reason=reason, fix="no blanks"
            )


def find_typography(script: BatchScript) -> Iterator[LintFinding]:
    """Find dashes and quotes of a web page or a word processor."""
    if script.scheduler is None:
        return
    prefix = re.escape(script.scheduler.prefix)
    for number, line in enumerate(script.lines, 1):
        if re.match(rf"{prefix}\s*[-\u2010-\u2015\u2212]", line):
            text = re.sub(r"\s#.*$", "", line[1:])
            if found := re.search(r"[\u2010-\u2015\u2212\u2018-\u201f\u00a0]", text):
                reason = f"{found[0]!r} is no ASCII sign: the scheduler does not know the option"
                yield LintFinding(
                    kind="typography", line=number, reason=reason, fix="type - or ' anew"
                )


def find_one_dash(script: BatchScript) -> Iterator[LintFinding]:
    """Find one dash before a long option of Slurm: "-mem=4G" is "-m em=4G"."""
    for directive in script.directives:
        found = re.match(rf"-({LONG})(?:=|\s|$)", directive.text)
        if found:
            option = found[1]
            reason = f"-{option} is the option -{option[0]} with the value {option[1:]!r}"
            yield LintFinding(
                kind="one-dash", line=directive.line, reason=reason, fix=f"--{option}"
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
        reason = f"{value} is {value[:-3]} minutes, not hours"
        yield LintFinding(kind="short-time", line=line, reason=reason, fix=f"{value}:00 for hours")
    elif re.fullmatch(HOURS, value) or (
        COUNT.fullmatch(value) and int(value) <= dialect.short_time
    ):
        reason = f"{value} alone is {value} {dialect.bare_time}"
        yield LintFinding(
            kind="short-time", line=line, reason=reason, fix=f"{value}:00:00 for hours"
        )


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
            reason = f"{amount} without a unit is {amount} {unit}"
            yield LintFinding(kind="bare-memory", line=line, reason=reason, fix=f"{amount}G")


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
                reason = (
                    f"without the folder {parent}, {dialect.log_loss};"
                    " mkdir in the script is too late"
                )
                yield LintFinding(
                    kind="log-folder",
                    line=line,
                    reason=reason,
                    fix=f"mkdir -p {shlex.quote(str(parent))}, before submitting",
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
        reason = "-l nodes= and -l select= cannot be used together"
        fix = "-l select=N:ncpus=M:ngpus=G:mem=SIZE alone"
        yield LintFinding(
            kind="nodes-and-select", line=resources["nodes"][0], reason=reason, fix=fix
        )


def find_export(script: BatchScript) -> Iterator[LintFinding]:
    """--export without ALL: the job has no other variable of the caller's (sbatch(1))."""
    found = script.find_option("--export")
    if found is None:
        return
    line, names = found
    if not re.match(r"(?:ALL|NONE|NIL)\b", names, re.IGNORECASE):
        reason = "--export without ALL hands on nothing else of your environment"
        fix = f"--export=ALL,{names}"
        yield LintFinding(kind="export-without-all", line=line, reason=reason, fix=fix)


def find_fixed_node(script: BatchScript) -> Iterator[LintFinding]:
    """Find a node by its name."""
    found = script.find_option("--nodelist")
    line, node = found or (0, "")
    if node:
        reason = f"the job waits for {node}, also while others are free, and for ever if it is gone"
        fix = "--constraint, or --exclude the bad ones"
        yield LintFinding(kind="fixed-node", line=line, reason=reason, fix=fix)


def find_spread_tasks(script: BatchScript) -> Iterator[LintFinding]:
    """Find several tasks, and nobody who starts them: their cores may be on several nodes."""
    found = script.find_option("--ntasks")
    tied = script.find_option("--nodes", "--ntasks-per-node")
    line, count = found or (0, "")
    if tied or not COUNT.fullmatch(count) or int(count) < 2:
        return
    if not re.search(STARTERS, script.body) and "SLURM_NTASKS" not in script.body:
        reason = f"{count} tasks may lie on several nodes, and nothing here starts more than one"
        fix = f"--ntasks=1 --cpus-per-task={count}"
        yield LintFinding(kind="tasks-for-cores", line=line, reason=reason, fix=fix)
