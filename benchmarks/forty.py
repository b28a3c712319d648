"""Type the forty things of forty.toml as a new user would, and count what comes of it.

    python benchmarks/forty.py [--quick] [--as-user USER]

Each row is typed in a new folder of its kind, with an empty HOME.  ``--quick`` leaves out the rows that build;
``--as-user``, for root, types them as that user, who needs lines in /etc/subuid and /etc/subgid to build.  Prints what
is not as expected, and the sums.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tomli

from envbuild.build.image.metadata import image_note
from envbuild.build.image.origin import NOTE
from envbuild.formats.sif_writer import JSON, data_object, partition_object, write_sif
from envbuild.lock.model import Lock
from envbuild.lock.read import read_lock
from envbuild.run import Command, LocalRunner, Result

ROOT = Path(__file__).parents[1]
NAME = "torch-mnist"
SMALL = """\
[recipe]
name = "small"
[base]
bootstrap = "debian:bookworm"
[python]
dependencies = ["six==1.16.0"]
[check]
imports = ["six"]
[run]
command = ["python", "-c", "print('the default command')"]
"""
MISTYPED = SMALL.replace('"small"', '"mine"').replace("dependencies", "dependecies")
LOG = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One thing to type: in which folder, what, and what is to come of it."""

    place: str
    typed: str
    codes: tuple[int, ...]
    says: str
    live: bool = False

    def fault(self, code: int, output: str) -> str | None:
        """Return what is not as expected; None where all is."""
        if code not in self.codes:
            return f"ends with {code}"
        return None if self.says in output else f"does not say {self.says!r}"


def rows() -> tuple[Row, ...]:
    """Return the table."""
    table = tomli.loads((ROOT / "benchmarks/forty.toml").read_text("utf-8"))["row"]
    return tuple(
        Row(
            place=row["in"],
            typed=row["type"],
            codes=tuple(row["code"]),
            says=row["says"],
            live=row.get("live", False),
        )
        for row in table
    )


def make_place(kind: str, folder: Path) -> Path:
    """Make a folder of a kind: what a new user has before him."""
    place = folder / ("thesis" if kind == "project" else kind)
    place.mkdir(parents=True)
    if kind == "project":
        _write(
            place,
            {"requirements.txt": "torch\nnumpy\n", "train.py": "import torch\n", "job.log": LOG},
        )
    if kind in ("small", "mistyped"):
        name, text = ("small", SMALL) if kind == "small" else ("mine", MISTYPED)
        _write(place, {f"recipes/{name}.toml": text})
    if kind in ("changed", "image", "old"):
        _take_shipped(place, kind)
    return place


def _take_shipped(place: Path, kind: str) -> None:
    """Lay out a shipped recipe with its lock: changed since, or with its image, or with the image of another lock."""
    text = (ROOT / f"recipes/{NAME}.toml").read_text("utf-8").partition("[job]")[0]
    if kind == "changed":
        text = text.replace("dependencies = [", 'dependencies = [\n  "rich",', 1)
    lock = ROOT / f"lockfiles/{NAME}.lock"
    _write(place, {f"recipes/{NAME}.toml": text, f"lockfiles/{NAME}.lock": lock.read_text("utf-8")})
    shutil.copytree(ROOT / "recipes" / NAME, place / "recipes" / NAME)
    if kind != "changed":
        made_from = read_lock(ROOT / "lockfiles/keras-bert.lock" if kind == "old" else lock)
        write_image(place / f"{NAME}.sif", made_from)


def write_image(path: Path, lock: Lock) -> None:
    """Write a file that says that it is the image of a lock; nothing can be run in it."""
    note = image_note(NAME, lock, mode="flat", packer="none", tree="sha256:" + "0" * 64)
    objects = [
        data_object(JSON, NOTE, note),
        partition_object(lambda out: out.write(b"hsqs"), machine="x86_64"),
    ]
    with path.open("wb") as out:
        write_sif(out, objects, machine="x86_64", epoch=0, identity="x")


def _write(place: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def type_row(row: Row, place: Path, home: Path, user: pwd.struct_passwd | None) -> Result:
    """Type a row in its folder, as another user where one is named."""
    switch: tuple[str, ...] = ()
    if user is not None:
        ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}")
        switch = ("setpriv", *ids, "--clear-groups", "--inh-caps=-all", "--")
    argv = (*switch, sys.executable, "-m", "envbuild", *shlex.split(row.typed))
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("ENVBUILD_", "XDG_"))
    }
    return LocalRunner()(
        Command(argv=argv, cwd=place, env={**kept, "HOME": str(home)}, timeout=1200), check=False
    )


def main() -> int:
    """Type all rows; return 1 where one is not as expected."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--as-user", type=pwd.getpwnam, metavar="USER")
    given = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="envbuild-forty-"))
    top.chmod(0o755)
    places: dict[str, Path] = {}
    home, good, faults = top / "home", 0, 0
    home.mkdir()
    chosen = [row for row in rows() if not (given.quick and row.live)]
    for row in chosen:
        if not row.live or row.place not in places:
            places[row.place] = make_place(row.place, top / f"{good + faults:02}")
        if given.as_user:
            _hand_to_user(top, given.as_user)
        started = time.monotonic()
        result = type_row(row, places[row.place], home, given.as_user)
        fault = row.fault(result.code, result.stdout + result.stderr)
        good, faults = good + (fault is None), faults + (fault is not None)
        if fault is not None:
            print(f"envbuild {row.typed}   ({row.place}): {fault}\n{result.last_lines(8)}")
        elif row.live:
            print(f"envbuild {row.typed}: {time.monotonic() - started:.1f} s")
    print(f"{good} of {len(chosen)} as expected")
    shutil.rmtree(top, ignore_errors=True)
    return 1 if faults else 0


def _hand_to_user(top: Path, user: pwd.struct_passwd) -> None:
    for path in (top, *top.rglob("*")):
        if path.stat(follow_symlinks=False).st_uid == 0:
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main())
