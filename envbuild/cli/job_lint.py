"""``envbuild job lint``: traps of a batch script that is there already."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from envbuild.cli.output import json_option, print_json, print_text
from envbuild.errors import UsageError
from envbuild.job.lint.batch import DIALECTS
from envbuild.job.lint.lint import lint_script
from envbuild.limits import open_plain, readable
from envbuild.store.units import count_noun

BIGGEST = 4 << 20
"""Bytes that schedulers take at most (slurm.conf(5), max_script_size)."""


@click.command("lint")
@click.argument("file", metavar="FILE|-", type=click.Path(path_type=Path, allow_dash=True))
@json_option
def command(file: Path, *, as_json: bool) -> int:
    """Name the traps of a batch script for Slurm, PBS or Grid Engine, with line, reason and fix.

    \b
    envbuild job lint train.sbatch

    Nothing is run, submitted or changed. The exit code is 1 where something was found.
    """
    with readable(file):
        data = sys.stdin.buffer.read(BIGGEST + 1) if str(file) == "-" else _read_file(file)
    if len(data) > BIGGEST or b"\0" in data:
        raise UsageError("is not a batch script", where=file)
    text = data.decode("utf-8", "replace")
    script, findings = lint_script(text, None if str(file) == "-" else file.parent)
    if as_json:
        print_json(findings)
        return int(bool(findings))
    if script.dialect is None and script.other_scheduler:
        print_text(f"the lines for {script.other_scheduler} are not judged, only the commands")
    elif script.dialect is None:
        *others, last = (features.title for features, _ in DIALECTS.values())
        print_text(f"no line for {', '.join(others)} or {last}: judged as a plain script")
    for finding in findings:
        print_text(f"line {finding.line}: {click.style(finding.reason, bold=True)}")
        print_text(f"  do    {finding.fix}")
        print_text(f"  kind  {finding.kind}")
    traps, lines = count_noun(len(findings), "trap"), count_noun(len(script.lines), "line")
    print_text(f"{traps} in {lines}")
    return int(bool(findings))


def _read_file(file: Path) -> bytes:
    with open_plain(file) as opened:
        return opened.read(BIGGEST + 1)
