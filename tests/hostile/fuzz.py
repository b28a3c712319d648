"""Change sound inputs at random and read them: only errors of envbuild's own may come out.

``python -m tests.hostile.fuzz [--inputs N] [--seconds N] [--seed N] [PARSER…]`` tells of each parser how many inputs were read, how many
were refused, the slowest in seconds, and every other error with the input that raises it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from envbuild.errors import EnvbuildError
from tests.hostile.caged import confine
from tests.hostile.parsers import PARSERS, seeds_of

KINDS = (
    *("flip", "set", "number", "cut", "remove", "repeat", "insert", "swap", "copy"),
    *("value", "exchange", "line", "twice"),
)
FIELD = re.compile(rb'"[^"\n]*"|\b\d[\w.:+-]*|\b(?:true|false|null)\b|\[\]|\{\}')
"""A value of TOML or JSON."""
VALUES = (
    b'""', b"[]", b"{}", b"0", b"-1", b"1e999", b"9" * 25, b"9" * 5000, b"0x" + b"f" * 5000, b"0x7fffffffffffffff", b"nan", b"-inf", b"true", b"null",
    b"9999-12-31T23:59:59Z", b"0000-00-00", b"1979-05-27", b"24:00:00", b"[[[]]]", b'[""]', b'[1, "a"]', b'{"a": 1}', b"{a = 1}",
    b'".."', b'"/"', b'"a/../b"', b'"-rf"', b'"a\\u0000b"', b'"a\\nb"', b'"\\u202e"', b'"\\ud800"', b'"\xd0\xb0"', b'"\xef\xbc\x91"',
    b'"%s"' % (b"a" * 5000), b'"a @ https://x.invalid/a.whl"', b'"six>=1.*"', b'"six==1!2.0+a"', b'"sha256:00"', b'"http://[::1"',
    b'"${HOME}"', b'"{0}"', b'"%(a)s"', b'"\xe2\x91\xa0"',
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
    b"..", b"/", b"\0", b"\n", b"\x1b[2J", b"\xff", b"9" * 30, b"-1", b"nan", b"1e999", b"[" * 600, b'{"a":' * 600,
    b'"', b"'" * 3, b"\xe2\x80\xae", b"$(x)", b"=", b",", b"]", b"}", b"../../etc/passwd", b"a" * 5000, b"null", b"true",
)  # fmt: skip
Edit = tuple[str, int, int]
"""What to do, where (a share of the input in 2**16), and with what."""


def changed(data: bytes, edits: Sequence[Edit]) -> bytes:  # noqa: C901  (a branch for each kind)
    """Return an input with these changes made one after the other."""
    raw = bytearray(data)
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="of processor, a parser")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("names", nargs="*", metavar="PARSER")
    told = parser.parse_args()
    confine()
    for name in told.names or PARSERS:
        with tempfile.TemporaryDirectory() as folder:
            found = run(name, told.inputs, told.seed, Path(folder), told.seconds)
            print(json.dumps({"parser": name, **found}), flush=True)


def run(
    name: str, inputs: int, seed: int, folder: Path, seconds: float = math.inf
) -> dict[str, object]:
    """Read so many changed inputs, or for so long, and tell what came of them."""
    chance = random.Random(f"{name} {seed}")  # noqa: S311
    taken, slowest, tried = 0, 0.0, 0
    others: dict[str, object] = {}
    end = time.process_time() + seconds
    while tried < inputs and time.process_time() < end:
        tried += 1
        start = chance.choice(seeds_of(name))
        edits = [
            (chance.choice(KINDS), chance.randrange(1 << 16), chance.randrange(1 << 16))
            for _ in range(chance.choice((1, 1, 2, 3, 6)))
        ]
        begun = time.process_time()
        try:
            taken += attempt(name, changed(start, edits), folder / "input")
        except Exception as error:  # noqa: BLE001  (that is the question)
            others.setdefault(
                f"{type(error).__name__}: {error}"[:160], [seeds_of(name).index(start), edits]
            )
        slowest = max(slowest, time.process_time() - begun)
    return {
        "inputs": tried,
        "taken": taken,
        "refused": tried - taken,
        "slowest": round(slowest, 3),
        "others": others,
    }


if __name__ == "__main__":
    main()
