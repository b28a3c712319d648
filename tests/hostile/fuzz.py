"""Change sound inputs at random and read them: only errors of envbuild's own may come out.

``python -m tests.hostile.fuzz [--inputs N] [--first N] [--seconds N] [--seed N] [PARSER…]`` reads changed inputs, each parser in a process of
its own, and tells how many were read and how many refused, the slowest, by how much memory grew at most, and every other error with the number of an input
that raises it.  An input follows from parser, seed and number alone: ``--first NUMBER --inputs 1`` reads it again.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import random
import re
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envbuild.errors import EnvbuildError
from tests.hostile.caged import SECONDS, confine
from tests.hostile.parsers import PARSERS, seeds_of

KINDS = (
    *("flip", "set", "number", "cut", "remove", "repeat", "insert", "swap", "copy"),
    *("value", "exchange", "line", "twice", "splice"),
)
FIELD = re.compile(rb'"[^"\n]*"|\b\d[\w.:+-]*|\b(?:true|false|null)\b|\[\]|\{\}')
"""A value of TOML or JSON."""
VALUES = (
    b'""', b"[]", b"{}", b"0", b"-1", b"1e999", b"9" * 25, b"9" * 5000, b"0x" + b"f" * 5000, b"0x7fffffffffffffff", b"nan", b"-inf", b"true", b"null",
    b"9999-12-31T23:59:59Z", b"0000-00-00", b"1979-05-27", b"24:00:00", b"[[[]]]", b'[""]', b'[1, "a"]', b'{"a": 1}', b"{a = 1}",
    b'".."', b'"/"', b'"a/../b"', b'"-rf"', b'"a\\u0000b"', b'"a\\nb"', b'"\\u202e"', b'"\\ud800"', b'"\xd0\xb0"', b'"\xef\xbc\x91"',
    b'"%s"' % (b"a" * 5000), b'"a @ https://x.invalid/a.whl"', b'"six>=1.*"', b'"six==1!2.0+a"', b'"sha256:00"', b'"http://[::1"',
    b'"%s"' % (b"9" * 5000), b'"1.%s.2"' % (b"9" * 5000), b'">=%s"' % (b"9" * 5000), b'"six>=1.%s"' % (b"9" * 5000), b'"${HOME}"', b'"{0}"', b'"%(a)s"', b'"\xe2\x91\xa0"',
)  # fmt: skip
NUMBERS = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0xFFFFFFFF,
    1 << 40,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
WORDS = (
    b"..", b"/", b"\0", b"\n", b"9" * 5000, b"\x1b[2J", b"\xff", b"9" * 30, b"-1", b"nan", b"1e999", b"[" * 600, b'{"a":' * 600,
    b'"', b"'" * 3, b"\xe2\x80\xae", b"$(x)", b"=", b",", b"]", b"}", b"../../etc/passwd", b"a" * 5000, b"null", b"true",
)  # fmt: skip
STEP = 5000
"""Inputs for one process: each line of the output tells of so many."""
Edit = tuple[str, int, int]
"""What to do, where (a share of the input in 2**16), and with what."""


def changed(seeds: Sequence[bytes], edits: Sequence[Edit]) -> bytes:  # noqa: C901, PLR0912  (a branch for each kind)
    """Return the first of these inputs with changes made one after the other; the others end it."""
    raw = bytearray(seeds[0])
    for kind, place, value in edits:
        at = place * len(raw) >> 16
        size = value % 64 + 1
        if kind == "flip" and raw:
            raw[at] ^= 1 << value % 8
        elif kind == "set" and raw:
            raw[at] = value % 256
        elif kind == "number":
            width = (1, 2, 4, 8)[value % 4]
            number = NUMBERS[value // 4 % len(NUMBERS)] & (1 << 8 * width) - 1
            raw[at : at + width] = number.to_bytes(width, "little" if value % 3 else "big")
        elif kind == "cut":
            del raw[at:]
        elif kind == "remove":
            del raw[at : at + size]
        elif kind == "repeat":
            raw[at:at] = raw[at : at + size] * (value // 64 % 50 + 1)
        elif kind == "insert":
            raw[at:at] = WORDS[value % len(WORDS)]
        elif kind == "swap":
            other = value * len(raw) >> 16
            raw[at : at + 16], raw[other : other + 16] = raw[other : other + 16], raw[at : at + 16]
        elif kind == "copy":
            other = value * len(raw) >> 16
            raw[at : at + 64] = raw[other : other + 64]
        elif kind in ("value", "exchange"):
            change_field(raw, place, value if kind == "exchange" else None, value)
        elif kind in ("line", "twice"):
            begin = raw.rfind(b"\n", 0, at) + 1
            line = raw[begin : raw.find(b"\n", at) + 1 or len(raw)]
            raw[begin : begin + len(line)] = b"" if kind == "line" else line * 2
        elif kind == "splice":
            other_end = seeds[value % len(seeds)]
            raw[at:] = other_end[place * len(other_end) >> 16 :]
    return bytes(raw)


def change_field(raw: bytearray, place: int, other: int | None, value: int) -> None:
    """Put another value in the place of one: that of another field, or a strange one."""
    fields = [match.span() for match in FIELD.finditer(raw)]
    if fields:
        begin, end = fields[place * len(fields) >> 16]
        taken = slice(*fields[other * len(fields) >> 16]) if other is not None else None
        raw[begin:end] = raw[taken] if taken else VALUES[value % len(VALUES)]


def attempt(name: str, data: bytes, path: Path) -> bool:
    """Read an input; return whether it was taken.  Raises whatever is no error of ours."""
    parser = PARSERS[name]
    path.write_bytes(parser.mend(data))
    try:
        parser.read(path)
    except EnvbuildError:
        return False
    return True


def input_of(name: str, seed: int, number: int) -> bytes:
    """Return the input of this number; the first is empty."""
    chance = random.Random(f"{name} {seed} {number}")  # noqa: S311
    seeds = list(seeds_of(name))
    chance.shuffle(seeds)
    edits = [
        (chance.choice(KINDS), chance.randrange(1 << 16), chance.randrange(1 << 16))
        for _ in range(chance.choice((1, 1, 2, 3, 6)))
    ]
    return changed(seeds, edits) if number else b""


def read_inputs(
    name: str, numbers: range, seed: int, folder: Path, reached: bytearray | mmap.mmap
) -> dict[str, Any]:
    """Read inputs, and tell what came of them; ``reached`` holds the number of the one that is read."""
    taken, slowest = 0, (0.0, 0)
    before = resident()
    others: dict[str, int] = {}
    for number in numbers:
        reached[:] = number.to_bytes(8, "little")
        data = input_of(name, seed, number)
        # the kernel ends this process by a signal, within a search of `re` as well
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        begun = time.process_time()
        try:
            taken += attempt(name, data, folder / "input")
        except Exception as error:  # noqa: BLE001  (that is the question)
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            place = f"{Path(frame.f_code.co_filename).name}, line {line}"
            others.setdefault(f"{type(error).__name__} in {place}", number)
        slowest = max(slowest, (round(time.process_time() - begun, 3), number))
    signal.setitimer(signal.ITIMER_PROF, 0)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10
    return {"taken": taken, "slowest": slowest, "megabytes": grown, "others": others}


def resident() -> int:
    """Return the kB of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() >> 10


def read_apart(name: str, numbers: range, seed: int) -> tuple[dict[str, Any], int]:
    """Read inputs in a process of its own, within its limits; tell also which input was its last."""
    reached = mmap.mmap(-1, 8)
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for sound in seeds_of(name):
                    attempt(name, sound, Path(folder) / "input")
                confine()
                found = read_inputs(name, numbers, seed, Path(folder), reached)
                told.write_text(json.dumps(found))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        last = int.from_bytes(reached[:], "little")
        if status:
            return {"others": {f"ended the process with {status}": last}}, last
        return json.loads(told.read_bytes()), last


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="a parser, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*", metavar="PARSER")
    told = parser.parse_args()
    for name in told.names or PARSERS:
        first, end = told.first, told.first + told.inputs
        until = time.monotonic() + told.seconds
        while first < end and time.monotonic() < until:
            numbers = range(first, min(first + STEP, end))
            found, last = read_apart(name, numbers, told.seed)
            first = last + 1
            line = {"parser": name, "seed": told.seed, "inputs": [numbers[0], last], **found}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
