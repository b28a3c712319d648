"""Put the final prefix into the files of a conda package, and write its entry points.

A package is built in a folder with a long name, the placeholder, which stands in its files. CEP 19
and the linker of rattler (crates/rattler/src/install/link.rs) say what becomes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from envbuild.errors import IntegrityError

SHEBANG = 127
"""Bytes of a first line ``#!…`` that Linux before 5.1 reads (BINPRM_BUF_SIZE)."""
FIRST_LINE = 1 << 16
"""Bytes of a first line that are looked at."""
LONGEST_STRING = 1 << 26
"""Bytes of a string in a machine file that holds the prefix; honest ones have some kilobytes."""
INTERPRETER = re.compile(rb"#! *(/(?:\\ |[^ \n\r\t])*)(.*)\Z", re.DOTALL)
PYTHON = re.compile(rb"python(?:[0-9]+(?:\.[0-9]+)?)?\Z")
DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z", re.ASCII)
PIECES = 4096
COMMAND = re.compile(r"(?!\.)[^/\\\0\s]+\Z")


def replace_in_text(blocks: Iterable[bytes], old: bytes, new: bytes) -> Iterator[bytes]:
    """Yield a text with the placeholder replaced; its length changes.

    A first line ``#!…`` that becomes too long for Linux starts its program in another way.
    """
    source = iter(blocks)
    head = b""
    for block in source:
        head += block
        if not head.startswith(b"#!"[: len(head)]) or b"\n" in head or len(head) > FIRST_LINE:
            break
    rest = b""
    for block in _chain(_with_short_shebang(head, old, new), source):
        pieces = (rest + block).split(old)
        rest = pieces.pop()
        # several at once: a placeholder of one letter stands everywhere
        for begin in range(0, len(pieces), PIECES):
            yield new.join((*pieces[begin : begin + PIECES], b""))
        # the placeholder may go on in the next block
        settled = max(0, len(rest) - len(old) + 1)
        yield rest[:settled]
        rest = rest[settled:]
    yield rest


def replace_in_binary(blocks: Iterable[bytes], old: bytes, new: bytes) -> Iterator[bytes]:
    """Yield a machine file with the placeholder replaced in its strings, which end with NUL.

    Each string keeps its place and its length: what becomes free is filled with NUL. Raises
    IntegrityError for a placeholder that is shorter than what replaces it.
    """
    if len(new) > len(old):
        raise IntegrityError(
            f"it was built for a folder of {len(old)} letters, and cannot lie in one of {len(new)}"
        )
    held = bytearray()
    searched = 0
    for block in _chain(blocks, (b"",)):
        held += block
        at = 0
        while (start := held.find(old, at)) >= 0:
            end = held.find(b"\0", max(start + len(old), searched))
            if end < 0 and block:
                break
            end = len(held) if end < 0 else end
            string = bytes(held[start:end])
            yield bytes(held[at:start]) + string.replace(old, new).ljust(len(string), b"\0")
            at = end
        # of a string that has not ended the next block shows more, as of a placeholder cut in two
        settled = start if start >= 0 else max(at, len(held) - len(old) + 1)
        settled = settled if block else len(held)
        yield bytes(held[at:settled])
        del held[:settled]
        searched = len(held) if start >= 0 else 0
        if len(held) > LONGEST_STRING:
            raise IntegrityError("holds the prefix in a string that does not end")


def entry_point_script(line: str, python: str) -> tuple[str, bytes]:
    """Return the command of an entry point ``command = module:function``, and its script.

    ``python`` is the program that runs it. Raises IntegrityError for one that is no such line, and
    for a command that is no plain name.
    """
    command, equals, target = (part.strip() for part in line.partition("="))
    module, colon, function = (part.strip() for part in target.partition(":"))
    # all of it is written into a script, so names have to be names
    is_plain = COMMAND.match(command) and DOTTED.match(module) and DOTTED.match(function)
    if not (equals and colon and is_plain):
        raise IntegrityError(f"{line[:200]!r} is not an entry point")
    shebang = f"#!{python}"
    if len(shebang) > SHEBANG:
        shebang = f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\" #'''"
    text = (
        f"{shebang}\n# -*- coding: utf-8 -*-\nimport re\nimport sys\n\n"
        f"from {module} import {function.partition('.')[0]}\n\n"
        "if __name__ == '__main__':\n"
        "\tsys.argv[0] = re.sub(r'(-script\\.pyw?|\\.exe)?$', '', sys.argv[0])\n"
        f"\tsys.exit({function}())\n"
    )
    return command, text.encode()


def _with_short_shebang(head: bytes, old: bytes, new: bytes) -> tuple[bytes, ...]:
    """Return the beginning of a text, whose first line says what runs it, in pieces."""
    if not head.startswith(b"#!"):
        return (head,)
    line, end, rest = head.partition(b"\n")
    line = line.replace(old, new)
    found = INTERPRETER.match(line)
    if len(line) > SHEBANG and found is not None:
        line = _through_shell(found[1], found[2])
    return (line + end + rest,)


def _through_shell(program: bytes, options: bytes) -> bytes:
    """Return a first line that starts a program whose path is too long for one."""
    name = program.rpartition(b"/")[2]
    if PYTHON.match(name):
        # a string for Python, a command for the shell
        return b"#!/bin/sh\n'''exec' \"" + program + b'"' + options + b' "$0" "$@" #\'\'\''
    return b"#!/usr/bin/env " + name + options


def _chain(first: Iterable[bytes], second: Iterable[bytes]) -> Iterator[bytes]:
    yield from first
    yield from second
