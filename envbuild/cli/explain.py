"""``envbuild explain``: what a job's log says."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from envbuild.check.explain import Explanation, explain_log
from envbuild.cli.output import json_option, print_result
from envbuild.errors import UsageError
from envbuild.store.units import count_noun

PIECE = 1 << 20


class _LogFile(click.File):
    """The log, which ends: no folder, pipe or device."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Open the file."""
        if os.path.isdir(value):  # noqa: PTH112 - Path refuses long names
            hint = "name the log file in it; envbuild logs ID prints the log of a job"
            raise UsageError("this is a folder, not a log", where=value, hint=hint)
        if os.path.exists(value) and not os.path.isfile(value):  # noqa: PTH110, PTH113
            hint = "give what a pipe brings on standard input: … | envbuild explain -"
            raise UsageError("is no plain file", where=value, hint=hint)
        return super().convert(value, param, ctx)


@click.command("explain")
@click.argument("log", metavar="FILE|-", type=_LogFile("rb"))
@json_option
def command(log: BinaryIO, *, as_json: bool) -> None:
    """Explain the log of a job: print cause and remedy of each known message.

    \b
    envbuild explain slurm-1234.out
    python train.py 2>&1 | envbuild explain -
    """
    found = explain_log(_read_pieces(log))
    print_result(found, "\n".join(_explanation_lines(found)), as_json=as_json)


def _read_pieces(log: BinaryIO) -> Iterator[str]:
    """Read a log in any encoding; a byte that is no UTF-8 becomes a sign that no rule looks for."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while piece := log.read(PIECE):
            yield decoder.decode(piece)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=log.name) from error


def _explanation_lines(found: Explanation) -> Iterator[str]:
    lines = count_noun(found.lines, "line")
    for known in found.known:
        more = f", and {known.count - 1} more" if known.count > 1 else ""
        yield f"line {known.line}{more}: {known.text}"
        yield f"  cause  {click.style(known.cause, bold=True)}"
        for number, line in enumerate(known.do):
            yield f"  {'do' if number == 0 else '':<5}  {line}"
        yield f"  from   {known.source}\n"
    if found.known:
        yield f"{count_noun(len(found.known), 'known message')} in {lines}"
        return
    yield f"no known message in {lines}"
    if found.trouble:
        yield "lines that look like errors:"
        yield from (f"  {line}" for line in found.trouble)
    yield "on that node, this command tests the image and its GPU: envbuild check NAME --require-gpu"
