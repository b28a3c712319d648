"""``envbuild doctor``: what works on this machine, and how to mend the rest."""

from __future__ import annotations

from itertools import chain

import click

from envbuild.app.doctor.examine import examine_machine
from envbuild.app.doctor.finding import Finding
from envbuild.cli.options import flag
from envbuild.cli.output import print_json, print_text, terminal_width, wrap_line
from envbuild.context import Context
from envbuild.errors import HostError

NARROW = 80
"""Columns of a terminal below which values do not get a column of their own."""


@click.command()
@flag("--json as_json", "Print the findings as JSON.")
@click.pass_obj
def command(context: Context, *, as_json: bool) -> int:
    """Test what works on this machine, and show how to repair the rest.

    Each line begins with "fine", "works differently" or "broken"; below it is how to repair it.
    The exit code is 7 when something is broken that `envbuild make` needs.
    """
    findings = examine_machine(context)
    broken = any(finding.verdict == "broken" for finding in findings)
    if as_json:
        print_json({"ok": not broken, "findings": findings})
    else:
        for finding in findings:
            _print_finding(finding)
    return HostError.code if broken else 0


def _print_finding(finding: Finding) -> None:
    colour, word = {
        "fine": ("green", "fine"),
        "differs": ("yellow", "works differently"),
        "broken": ("red", "broken"),
    }[finding.verdict]
    room = terminal_width()
    # in a narrow terminal the column of values would be a strip of a few words
    indent = 37 if room is None or room >= NARROW else 4
    whole = f"{word:<17}  {finding.name:<16}  {finding.value}"
    first, *more = wrap_line(whole, indent, room)
    print_text(click.style(first[:17], fg=colour) + first[17:])
    arrow = " " * indent + "→ "
    mends = [wrap_line(arrow + line, len(arrow), room) for line in finding.mend.splitlines()]
    for line in chain(more, *mends):
        print_text(line)
