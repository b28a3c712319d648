"""Run the scripts that conda packages bring for their installation, as Debian's are run.

CEP 34 says that pre-link and post-link scripts have to be run. They see the image as root of a
user namespace, without a network; what they change is kept as a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from envbuild import limits
from envbuild.build.in_base.overlay_run import OverlayScript
from envbuild.conda.archive import open_archive, plain_name
from envbuild.formats.file_tree import merge_parts
from envbuild.limits import reading
from envbuild.lock.conda_order import install_order
from envbuild.lock.model import CondaPackage, Lock
from envbuild.parts.cache import CachedPart
from envbuild.parts.reader import read_file
from envbuild.plan.quoting import quote_literal
from envbuild.store.units import count_noun

PHASES = ("pre-link", "post-link")
VARIABLES = (("LC_ALL", "C.UTF-8"), ("PYTHONHASHSEED", "0"), ("TZ", "UTC"))


class _BuildNumber(msgspec.Struct, frozen=True):
    build_number: int = 0


def link_script(
    lock: Lock, linked: Mapping[str, CachedPart], compressor: str
) -> OverlayScript | None:
    """Return what runs all scripts of a lock's packages, None where they bring none.

    ``linked`` are the packages' parts by name.
    """
    folder = lock.conda_prefix
    found = {p: [*_scripts_of(p, linked[p.name], folder)] for p in install_order(lock.conda)}
    packages = [package for package, phases in found.items() if phases]
    if not packages:
        return None
    prefix = quote_literal(folder)
    lines = [
        "set -eu",
        "umask 022",
        f"export PREFIX={prefix} CONDA_PREFIX={prefix} PATH={prefix}/bin:$PATH",
        f"export SOURCE_DATE_EPOCH={lock.base.epoch}",
        # they are written for bash, which a small base may lack
        "shell=/bin/sh",
        'for found in "$PREFIX/bin/bash" /bin/bash; do',
        '    if [ -x "$found" ]; then shell=$found; break; fi',
        "done",
    ]
    for package in packages:
        number = _build_number(package, linked[package.name], folder, compressor)
        lines += _lines_of(package, found[package], number)
    return OverlayScript(
        name=f"run the scripts of {count_noun(len(packages), 'conda package')}",
        script=tuple(lines),
        environment=VARIABLES,
        hint="a script of the package failed; it has no network. Lock another build of it",
    )


def read_scripts(file: Path, package: CondaPackage) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each script that a package of the store brings.

    Raises IntegrityError for what is no such package.
    """
    names = {script_name(package.name, phase) for phase in PHASES}
    size = file.stat().st_size
    with reading("this conda package cannot be read", package.file), file.open("rb") as raw:
        archive = open_archive(raw, package.file, size)
        # its own list tells without unpacking whether there are any
        if not names & {path.path for path in archive.info.paths}:
            return
        for member, content in archive.members():
            name = plain_name(member.name)
            if name in names and content is not None:
                yield name, content.read(limits.SCRIPT).decode("utf-8", "replace")


def script_name(package: str, phase: str) -> str:
    """Return where a package's script of a phase lies in the prefix."""
    return f"bin/.{package}-{phase}.sh"


def _scripts_of(package: CondaPackage, part: CachedPart, prefix: str) -> Iterator[str]:
    """Yield the phases that a package has a script for."""
    there = {entry.path for entry in part.part.entries}
    for phase in PHASES:
        if f"{prefix}/{script_name(package.name, phase)}".lstrip("/") in there:
            yield phase


def _lines_of(package: CondaPackage, phases: Sequence[str], number: int) -> Sequence[str]:
    """Return the lines that run the scripts of one package."""
    fields = {"NAME": package.name, "VERSION": package.version, "BUILDNUM": str(number)}
    variables = " ".join(f"PKG_{name}={quote_literal(value)}" for name, value in fields.items())
    lines = []
    for phase in phases:
        file = f'"$PREFIX"/{quote_literal(script_name(package.name, phase))}'
        failed = quote_literal(f"the {phase} script of {package.name} failed")
        lines.append(f'{variables} "$shell" {file} || {{ echo {failed} >&2; exit 1; }}')
    # what a script wants to tell people
    lines.append('if [ -f "$PREFIX/.messages.txt" ]; then')
    lines.append('    cat "$PREFIX/.messages.txt" >&2; rm -f "$PREFIX/.messages.txt"')
    lines.append("fi")
    return lines


def _build_number(package: CondaPackage, part: CachedPart, prefix: str, compressor: str) -> int:
    path = f"{prefix}/conda-meta/{package.stem}.json".lstrip("/")
    record = read_file(merge_parts([part.part]), [part], path, compressor=compressor) or b"{}"
    return msgspec.json.decode(record, type=_BuildNumber).build_number
