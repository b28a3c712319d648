"""A writable tree to try things in, and what was done in it by hand, said as lines of a recipe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
from packaging.utils import canonicalize_name

from envbuild.base.facts import probe_text, read_probe
from envbuild.base.model import BaseFacts
from envbuild.build.make import prepare_build
from envbuild.build.model import BuildSpec
from envbuild.build.modes.estimate import SpaceNeed, check_space, packed_size
from envbuild.build.modes.fakeroot import packer_arguments
from envbuild.build.modes.perform import run_build
from envbuild.build.modes.sandbox_network import OURS, write_network
from envbuild.build.modes.sandbox_rights import withdraw_rights
from envbuild.build.pinned_compressor import running_codec
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.failures import explain_failure
from envbuild.limits import PROJECT, UNREADABLE, read_whole
from envbuild.lock.digest import lock_digest
from envbuild.lock.model import Packer
from envbuild.names import Texts
from envbuild.quota import quotas_of
from envbuild.records import frozen_record
from envbuild.resolve.sources.source_trees import SANDBOX_NOTE
from envbuild.run import Runner
from envbuild.runtime import BuildOptions, ExecOptions, Runtime
from envbuild.store.atomic import os_errors_as, publish, write_bytes, write_text
from envbuild.store.gc import tree_size

NOTE = SANDBOX_NOTE
"""It is not packed."""
PROBE_SECONDS = 600.0
PASSING = re.compile(
    r"^/(dev|proc|sys|tmp|run|mnt|root/\.cache|\.singularity\.d|var/(tmp|cache|log|lib/(apt|dpkg)))(/|$)"
    r"|/__pycache__(/|$)|^/etc/(ld\.so\.cache|resolv\.conf|hosts|hostname|mtab)$|^/\.envbuild-sandbox(\.json|/|$)"
)
"""What changes by itself, or is kept account of elsewhere."""


class SandboxNote(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox as it was built.

    Recipe, lock, packer, versions of distributions and Debian packages, and its files. ``files``
    maps paths to size (bytes) and time (nanoseconds since 1970).
    """

    recipe: str
    lock: str
    python: str
    packer: Packer
    dists: dict[str, str]
    apt: dict[str, str]
    files: dict[str, tuple[int, int]]


class VersionChange(NamedTuple):
    """A package with another version than before; None where there is none."""

    name: str
    before: str | None
    now: str | None


@frozen_record
class ManualChanges:
    """What was done in a sandbox.

    ``files`` are paths; ``direct`` and ``asked_for`` are the names of distributions and Debian
    packages that nothing else brought along.
    """

    dists: tuple[VersionChange, ...]
    apt: tuple[VersionChange, ...]
    files: Texts
    direct: Texts
    asked_for: Texts


def make_sandbox(order: BuildSpec, context: Context) -> None:
    """Build the tree ``order.target``.  Raises UsageError where something is there already."""
    folder = order.target
    if folder.exists() or folder.is_symlink():
        hint = f"pack it: envbuild make --from-sandbox {folder.name}; or remove it"
        raise UsageError("is there already", where=folder, hint=hint)
    with context.store.outside(folder.parent, chosen=True) as work:
        partial = work / folder.name
        with (
            prepare_build(order, context, partial) as request,
            context.report.stage("install") as stage,
        ):
            run_build(request, mode="sandbox", context=context, stage=stage)
        facts = look_inside(partial, order.lock.base.python_path, context.runtime, context.runner)
        note = SandboxNote(
            recipe=order.recipe.name,
            lock=lock_digest(order.lock),
            python=order.lock.base.python_path,
            packer=order.lock.packer,
            dists={dist.name: dist.version for dist in facts.dists},
            apt={package.name: package.version for package in facts.apt},
            files=dict(_read_files(partial)),
        )
        write_bytes(partial / NOTE, msgspec.json.encode(note))
        write_network(partial, order, context)
        with os_errors_as(folder):
            withdraw_rights(partial)
            partial.rename(folder)


def read_note(folder: Path) -> SandboxNote:
    """Read what a sandbox was when it was built.

    Raises UsageError for a folder that is none of ours.
    """
    try:
        return msgspec.json.decode(read_whole(folder / NOTE, PROJECT), type=SandboxNote)
    except OSError as error:
        hint = "make one: envbuild make NAME --mode sandbox"
        raise UsageError("is not a sandbox of envbuild", where=folder, hint=hint) from error
    except UNREADABLE as error:
        raise UsageError(f"is damaged: {error}", where=folder / NOTE) from error


def look_inside(folder: Path, python: str, runtime: Runtime, runner: Runner) -> BaseFacts:
    """Read a tree's facts by running the probe in it."""
    command = runtime.exec_command(
        folder, (python, "-s", "-B", "-"), ExecOptions(stdin=probe_text(), timeout=PROBE_SECONDS)
    )
    result = runner(command, check=False)
    if result.code != 0:
        raise explain_failure(result)
    return read_probe(result.stdout, image=str(folder))


def find_manual_changes(folder: Path, note: SandboxNote, facts: BaseFacts) -> ManualChanges:
    """Tell what differs between a sandbox and what it was when it was built."""
    dists = _changed_versions(note.dists, {dist.name: dist.version for dist in facts.dists})
    apt = _changed_versions(note.apt, {package.name: package.version for package in facts.apt})
    # files of distributions and of Debian packages are told by their packages
    of_packages = [f"{site}/" for site in facts.site]
    if dists:
        # scripts of new distributions; Debian's Python puts them into /usr/local
        of_packages += [f"{Path(note.python).parent}/", "/usr/local/bin/"]
    of_debian = _debian_files(folder, [change.name for change in apt if change.now])
    changed = _changed_files(folder, note.files)
    own = [path for path in changed if not path.startswith(tuple(of_packages))]
    required = _required_names(facts)
    there = [change.name for change in dists if change.now]
    added = [change.name for change in apt if change.now and not change.before]
    automatic = _automatic_packages(folder)
    files = tuple(path for path in own if path not in of_debian)
    direct = tuple(name for name in there if canonicalize_name(name) not in required)
    asked = tuple(name for name in added if name not in automatic)
    return ManualChanges(dists=dists, apt=apt, files=files, direct=direct, asked_for=asked)


def _changed_files(folder: Path, before: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return the paths that are new, gone or have other content, sorted."""
    now = dict(_read_files(folder))
    paths = sorted({*before, *now})
    return [path for path in paths if before.get(path) != now.get(path)]


def _required_names(facts: BaseFacts) -> set[str]:
    """Return the names that distributions require in any case, without an extra."""
    lines = chain.from_iterable(dist.requires for dist in facts.dists)
    always = (line for line in lines if "extra ==" not in line)
    return {canonicalize_name(re.split(r"[\s\[(;<>=!~@]", line)[0]) for line in always}


def recipe_lines(done: ManualChanges) -> Texts:
    """Return the lines that would do in a recipe what was done by hand."""
    versions = {change.name: change.now for change in done.dists}
    lines: list[str] = []
    if done.direct:
        listed = "".join(f'\n  "{name}=={versions[name]}",' for name in done.direct)
        lines += ["[python]", *f"dependencies = [{listed}\n]".splitlines()]
    if done.asked_for:
        lines += [
            "[system]",
            "packages = [" + ", ".join(f'"{name}"' for name in done.asked_for) + "]",
        ]
    return tuple(lines)


@contextmanager
def packing_sandbox(
    folder: Path, target: Path, note: SandboxNote, context: Context
) -> Iterator[Path]:
    """Pack a sandbox as an image and yield it; it gets its final name at the end of the block.

    What envbuild keeps in it is left out; the tree stays as it is. Raises SpaceError before
    anything is written.
    """
    if not str(folder).isprintable():
        raise UsageError(
            "its path has a character that would add lines to a definition", where=repr(str(folder))
        )
    size = tree_size(folder)
    check_space(
        (
            SpaceNeed(context.settings.tmpdir, size, "TMPDIR"),
            SpaceNeed(target.parent, packed_size(size), "-o"),
        ),
        lambda folder: quotas_of(folder, context.runner),
    )
    with (
        context.store.work("pack") as work,
        context.store.outside(context.settings.tmpdir) as temporary,
        context.store.beside(target) as partial,
    ):
        definition = work / "pack.def"
        write_text(definition, f"Bootstrap: localimage\nFrom: {folder}\n")
        command = context.runtime.build_command(
            partial,
            definition,
            temporary,
            BuildOptions(
                packer_arguments=packer_arguments(running_codec(note.packer, context)), test=False
            ),
        )
        with _without_ours(folder), context.report.stage(f"pack {folder.name}"):
            result = context.runner(command, check=False)
        if result.code != 0 or not partial.is_file():
            raise explain_failure(result)
        yield partial
        publish(partial, target)


@contextmanager
def _without_ours(folder: Path) -> Iterator[None]:
    """Keep what envbuild wrote into a tree beside it for a while: none of it is packed."""
    aside = folder.with_name(f".{folder.name[:64]}{NOTE}")
    moved: list[tuple[Path, Path]] = []
    with os_errors_as(folder):
        aside.mkdir(mode=0o700)
    try:
        for number, name in enumerate((NOTE, *OURS)):
            if (folder / name).exists():
                with os_errors_as(folder):
                    moved.append((folder / name, (folder / name).rename(aside / str(number))))
        yield
    finally:
        for own, away in moved:
            away.rename(own)
        aside.rmdir()


def _read_files(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Tell every file and link of a tree that does not change by itself.

    What may not be read is passed over.
    """
    for top, folders, names in os.walk(folder):
        inside = "/" + os.path.relpath(top, folder).lstrip(".").lstrip("/")
        prefix = inside.rstrip("/")
        folders[:] = [name for name in folders if not PASSING.search(f"{prefix}/{name}")]
        for name in names:
            path = f"{prefix}/{name}"
            if not PASSING.search(path):
                found = Path(top, name).lstat()
                yield path, (found.st_size, found.st_mtime_ns)


def _changed_versions(
    before: Mapping[str, str], now: Mapping[str, str]
) -> tuple[VersionChange, ...]:
    names = sorted({*before, *now})
    rows = [VersionChange(name, before.get(name), now.get(name)) for name in names]
    return tuple(row for row in rows if row.before != row.now)


def _debian_files(folder: Path, names: list[str]) -> set[str]:
    """Return the paths of Debian packages, under both names where /bin is a link to /usr/bin."""
    found: set[str] = set()
    for name in names:
        for listing in (folder / "var/lib/dpkg/info").glob(f"{name}*.list"):
            for line in listing.read_text("utf-8", "replace").splitlines():
                found |= {line, f"/usr{line}"}
    return found


def _automatic_packages(folder: Path) -> set[str]:
    """Return the Debian packages that came along with others, as apt keeps account of them."""
    path = folder / "var/lib/apt/extended_states"
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    return set(
        re.findall(r"^Package: (\S+)\n(?:\S+: .*\n)*?Auto-Installed: 1$", text, re.MULTILINE)
    )
