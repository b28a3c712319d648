"""Read a batch script: its scheduler, its directives with options, and its commands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from envbuild.job.schedulers import SCHEDULERS
from envbuild.job.schedulers.features import Dialect, Features
from envbuild.limits import split_words
from envbuild.names import Texts
from envbuild.records import frozen_record

DIALECTS = {
    name: (scheduler.features, scheduler.features.dialect)
    for name, scheduler in SCHEDULERS.items()
    if scheduler.features.dialect
}
"""The schedulers whose lines the rules read: what each can do, and how its scripts are written."""
OTHERS = {
    "#PJM": "Fujitsu's Technical Computing Suite",
    "#BSUB": "LSF",
    "#COBALT": "Cobalt",
    "#OAR": "OAR",
    "#MSUB": "Moab",
}
"""Prefixes of schedulers whose lines no rule reads, and their names."""
HEREDOC = re.compile(r"(?<!<)<<(?!<)-?\s*([\"']?)([A-Za-z_]\w*)\1")
QUOTES = ("'", '"')
QUOTED_SCRIPT = re.compile(r"=([\"'])#!\s*/[^\"']*$")
"""A script that another one holds in a variable: text="#!/bin/bash, up to a line that closes it."""


@frozen_record
class Directive:
    """One line for the scheduler without its prefix; ``late``: it stands among the commands."""

    line: int
    text: str
    late: bool

    @property
    def words(self) -> list[str]:
        """The words as the scheduler reads them."""
        try:
            return split_words(self.text, comments=True)
        except ValueError:
            return self.text.split()


@frozen_record
class ScriptCommand:
    """One command with the lines that continue it, joined by blanks, without comments."""

    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class BatchScript:
    """A script: ``scheduler`` is that of most of its directives, None where it has none."""

    lines: Texts
    scheduler: Features | None
    directives: tuple[Directive, ...]
    commands: tuple[ScriptCommand, ...]
    several: bool

    @property
    def dialect(self) -> Dialect | None:
        """How scripts for its scheduler are written."""
        return self.scheduler.dialect if self.scheduler else None

    @property
    def title(self) -> str:
        """What people call its scheduler."""
        return self.scheduler.title if self.scheduler else ""

    @cached_property
    def options(self) -> tuple[tuple[int, str, str], ...]:
        """Every option that counts: line, name (long, where Slurm has both), value."""
        found: list[tuple[int, str, str]] = []
        if self.dialect is None:
            return ()
        long = self.dialect.long_of
        for directive in self.directives:
            if not directive.late or self.dialect.reads_late:
                pairs = _pairs(directive.words, long)
                found += [(directive.line, long.get(name, name), value) for name, value in pairs]
        return tuple(found)

    @property
    def other_scheduler(self) -> str | None:
        """The scheduler whose lines these are where no rule reads them; None for none."""
        words = [line.split(maxsplit=1)[0] for line in self.lines if line.startswith("#")]
        return next((title for prefix, title in OTHERS.items() if prefix in words), None)

    def find_option(self, *names: str) -> tuple[int, str] | None:
        """Return line and value of the last of these options; None where there is none."""
        found = [(line, value) for line, name, value in self.options if name in names]
        return found[-1] if found else None

    def resources(self) -> dict[str, tuple[int, str]]:
        """Return what -l asks for: "walltime=1:00:00" as name, line and value."""
        found = {}
        for line, name, value in self.options:
            if name == "-l":
                for part in re.split(r"[,:](?=[A-Za-z_]\w*=)", value):
                    key, _, amount = part.partition("=")
                    found[key.strip()] = (line, amount.strip())
        return found

    def find_command(self, pattern: str) -> ScriptCommand | None:
        """Return the first command in which a pattern is found."""
        return next((one for one in self.commands if re.search(pattern, one.text)), None)

    @property
    def body(self) -> str:
        """All commands, one a line."""
        return "\n".join(command.text for command in self.commands)


def read_batch(text: str) -> BatchScript:
    """Take a script apart."""
    lines = tuple(line.rstrip("\r") for line in text.removesuffix("\n").split("\n"))
    inside = _text_lines(lines)
    commands = tuple(_commands(lines, inside))
    first = commands[0].line if commands else len(lines) + 1
    found: dict[str, list[Directive]] = {}
    for name, (features, dialect) in DIALECTS.items():
        beginning = re.compile(re.escape(features.prefix) + dialect.directive_end)
        for number, line in enumerate(lines, 1):
            if number not in inside and beginning.match(line):
                text = beginning.sub("", line).strip()
                directive = Directive(line=number, text=text, late=number > first)
                found.setdefault(name, []).append(directive)
    # of two with as many lines: "#$" begins other comments as well
    most = max(
        found,
        key=lambda name: (len(found[name]), DIALECTS[name][0].prefix[1:].isalpha()),
        default=None,
    )
    return BatchScript(
        lines=lines,
        scheduler=DIALECTS[most][0] if most else None,
        directives=tuple(found[most]) if most else (),
        commands=commands,
        several=len(found) > 1,
    )


def _text_lines(lines: Texts) -> frozenset[int]:
    """Return the numbers of lines that are text: behind <<, or in quotes that hold a script."""
    found, end = set(), ""
    for number, line in enumerate(lines, 1):
        if end:
            found.add(number)
            closed = line.strip() == end or (end in QUOTES and line.lstrip().startswith(end))
            end = "" if closed else end
            continue
        if line.lstrip().startswith("#"):
            continue
        opened, quoted = HEREDOC.search(line), QUOTED_SCRIPT.search(line)
        end = opened[2] if opened else ""
        end = quoted[1] if quoted else end
    return frozenset(found)


def _commands(lines: Texts, inside: frozenset[int]) -> Iterator[ScriptCommand]:
    """Yield the commands, without comments, text behind << and marks of templates."""
    start = 0
    parts: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if number in inside or text.startswith(("#", "{%", "{#")) or not text:
            if parts:
                yield ScriptCommand(line=start, text=" ".join(parts))
                parts = []
            continue
        start = start if parts else number
        text = re.sub(r"\s#\s.*$", "", text)
        goes_on = line.endswith("\\")
        parts.append(text.rstrip("\\").strip() if goes_on else text)
        if not goes_on:
            yield ScriptCommand(line=start, text=" ".join(parts))
            parts = []
    if parts:
        yield ScriptCommand(line=start, text=" ".join(parts))


def _pairs(words: list[str], joined: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield options with their values: "--time=1", "--time 1", "-t 1", "-t1" (of ``joined``)."""
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-"):
            continue
        name, equals, value = word.partition("=")
        if not equals and index < len(words) and not words[index].startswith("-"):
            value = words[index]
            index += 1
        if not word.startswith("--") and name[:2] in joined and len(name) > 2 and not value:
            name, value = name[:2], name[2:]
        yield name, value
