"""Make a root file system from locked Debian packages: offline, without root, reproducible."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import quote

from envbuild.base.debian.apt import debian_mirror
from envbuild.base.debian.apt_failure import explain_failure
from envbuild.base.debian.mmdebstrap import mmdebstrap_arguments
from envbuild.base.debian.offline_facts import machine_of, read_packages
from envbuild.base.debian.package_set import Bootstrap
from envbuild.base.facts import cached_facts, keep_facts, probe_text, read_probe
from envbuild.base.model import BaseFacts, DebianPackage
from envbuild.cage import find_cage
from envbuild.context import Context
from envbuild.errors import HostError, IntegrityError, ToolFailedError
from envbuild.host import Host, closed_above, read_host
from envbuild.net.fetch import Artifact, fetch_artifacts, missing_artifacts
from envbuild.progress import Stage
from envbuild.records import replace
from envbuild.run import Command
from envbuild.settings import Settings
from envbuild.store.atomic import link_or_copy, os_errors_as
from envbuild.store.layout import Store
from envbuild.store.sealed import commit_sealed, is_sealed
from envbuild.store.units import count_noun
from envbuild.tools import find_tool

ROOT_SECONDS = 1800.0
DPKG_STEPS = ("Unpacking ", "Setting up ")
"""What dpkg says once of every package."""
WITHOUT_IDS = (
    'without root: take an image as base (image = "docker://…"), or a store that has the Debian root already\n'
    "(ENVBUILD_STORE_BELOW=/the/lab's/store)"
)
PROBE = "/tmp/envbuild-probe.py"  # noqa: S108  (in the new root, cleaned by mmdebstrap)


def bootstrap_facts(bootstrap: Bootstrap, context: Context) -> BaseFacts:
    """Return the facts of a bootstrapped base: kept ones, else those of a root made for it.

    A root for another machine cannot run here: its facts are read from the unpacked packages.
    """
    facts = cached_facts(bootstrap.digest, context.store)
    if facts is None:
        machine = machine_of(bootstrap)
        host = read_host()
        is_foreign = machine not in (None, host.architecture)
        if not is_foreign:
            require_root_maker(context)
            _require_ids(host)
        fetch_packages(bootstrap, context)
        if is_foreign:
            with context.report.stage(
                f"read Debian {bootstrap.suite} for {machine} from its packages"
            ):
                keep_facts(
                    read_packages(bootstrap, machine or "", context),
                    bootstrap.digest,
                    context.store,
                )
            return bootstrap_facts(bootstrap, context)
        make_root(bootstrap, context)
        facts = cached_facts(bootstrap.digest, context.store)
    if facts is None:
        where = str(context.store.facts(bootstrap.digest))
        raise HostError("the facts just written cannot be read", where=where)
    return facts


def require_root_maker(context: Context) -> None:
    """Raise HostError where no Debian root can be made: no mmdebstrap, or a TMPDIR closed to the build's ids."""
    find_tool("mmdebstrap", context.settings, context.runner)
    closed = closed_above(context.settings.tmpdir)
    if closed is not None and read_host().uid != 0:
        raise HostError(
            f"other users may not enter {closed} (TMPDIR), and a Debian root is made with their ids",
            hint=f"chmod o+x {closed}\nor: export TMPDIR=/tmp",
        )


def _require_ids(host: Host) -> None:
    """Raise HostError for a user without ids: mmdebstrap gives them to the root's files."""
    if host.uid != 0 and host.missing_ids:
        files = " and ".join(host.missing_ids)
        raise HostError(
            f"{host.user} has no ids in {files}, and a Debian root is made with them",
            hint=f"{host.ids_remedy}\n{WITHOUT_IDS}",
        )


def fetch_packages(bootstrap: Bootstrap, context: Context) -> None:
    """Download what the store lacks of a bootstrap's packages."""
    wanted = debian_artifacts(bootstrap.packages)
    if missing_artifacts(wanted, context.store):
        mirror = debian_mirror(context)
        fetch_artifacts(wanted, context, debian_mirror=mirror)


def debian_artifacts(packages: Iterable[DebianPackage]) -> tuple[Artifact, ...]:
    """Return the files of Debian packages as something to fetch."""
    return tuple(
        Artifact(
            file=p.file, size=p.size, sha256=p.sha256, kind="debian", project=p.name, path=p.path
        )
        for p in packages
    )


def has_root(bootstrap: Bootstrap, store: Store) -> bool:
    """Tell whether the store has the root, undamaged, and its facts."""
    digest = bootstrap.digest
    return is_sealed(store.base(digest)) and cached_facts(digest, store) is not None


def make_root(bootstrap: Bootstrap, context: Context) -> Path:
    """Return the tar of the base's root, made where the store lacks it; its facts are kept beside.

    The packages have to be in the store.  The same bootstrap gives the same bytes.  Raises
    HostError for a missing mmdebstrap or user namespaces, SpaceError for a full disk,
    IntegrityError when other packages came out.
    """
    digest = bootstrap.digest
    final = context.store.base(digest)
    if bootstrap.over is not None and not is_sealed(final):
        make_root(bootstrap.over, context)
    with context.store.lock(f"base-{digest}", context.report):
        if has_root(bootstrap, context.store):
            return final
        final = context.store.own(final)
        require_root_maker(context)
        with context.store.work("base") as work, _report_stage(bootstrap, context) as stage:
            output = _run_mmdebstrap(bootstrap, work / "root.tar", context, stage)
            facts = read_probe(
                output,
                image=f"debian:{bootstrap.suite}",
                digest=digest,
                created=bootstrap.created,
                size=(work / "root.tar").stat().st_size,
            )
            locked = {(p.name, p.version, p.architecture) for p in bootstrap.packages}
            found = {(p.name, p.version, p.architecture) for p in facts.apt}
            if locked != found:
                names = sorted({name for name, _, _ in locked ^ found})
                raise IntegrityError(
                    f"the root does not hold the locked packages: {', '.join(names[:8])}"
                )
            keep_facts(facts, digest, context.store)
            commit_sealed(work / "root.tar", final)
    return final


def _report_stage(bootstrap: Bootstrap, context: Context) -> AbstractContextManager[Stage]:
    count = count_noun(len(bootstrap.added), "Debian package")
    title = (
        f"make Debian {bootstrap.suite} from packages" if bootstrap.over is None else f"add {count}"
    )
    # of each package: its control file, its files, its scripts; packing the root and removing the
    # folder it was made in count as another half
    return context.report.stage(title, total=round(3.5 * len(bootstrap.added)))


def _run_mmdebstrap(bootstrap: Bootstrap, target: Path, context: Context, stage: Stage) -> str:
    """Make the root and return what the probe printed in it."""
    host, env = read_host(), _clean_environment(bootstrap, context.settings)
    # started by root, both modes of mmdebstrap leave maintainer scripts the machine
    cage = find_cage(host, context.runner, Command(argv=("true",), env=env))
    mode = "root" if host.uid == 0 and cage is None else "unshare"
    with context.store.outside(context.settings.tmpdir) as folder:
        with os_errors_as(folder):
            folder.chmod(0o755)  # root of a user namespace is another user to the outside
        repository = folder / "packages"
        write_repository(bootstrap.added, repository, context, stage)
        over = folder / "over.tar" if bootstrap.over is not None else None
        if bootstrap.over is not None and over is not None:
            with os_errors_as(over):
                link_or_copy(context.store.base(bootstrap.over.digest), over)
        probe, facts = folder / "probe.py", target.with_name("facts")
        probe.write_text(probe_text(), encoding="utf-8")
        probe.chmod(0o644)  # whatever the caller's umask is
        hooks = (
            f"upload {shlex.quote(str(probe))} {PROBE}",
            f'chroot "$1" env -i PATH=/usr/bin:/bin python3 -s -B {PROBE} >&3',
        )
        arguments = mmdebstrap_arguments(
            bootstrap.added,
            repository=quote(str(repository)),
            target="-",
            mode=mode,
            hooks=hooks,
            over=over,
        )
        made = folder / "made"
        with os_errors_as(made):
            made.mkdir()
            made.chmod(0o755)
        command = Command(
            # dpkg's lines while they come tell how far it is
            argv=(arguments[0], "--verbose", *arguments[1:]),
            env={**env, "TMPDIR": str(made)},
            cwd=folder,
            timeout=ROOT_SECONDS,
            foreign=True,
            on_line=lambda line: stage.advance(line.startswith(DPKG_STEPS)),
        )
        if cage is not None:
            command = cage.around(command, show=(folder,), write=(made,))
        # results come through open files: the scripts reach no folder of ours
        written = ("sh", "-c", 'exec "$@" >"$0"/root.tar 3>"$0"/facts', str(target.parent))
        command = replace(command, argv=(*written, *command.argv))
        try:
            context.runner(command)
        except ToolFailedError as error:
            raise explain_failure(error, context) from error
        return facts.read_text("utf-8", "replace")


def _clean_environment(bootstrap: Bootstrap, settings: Settings) -> dict[str, str]:
    """Return an environment that holds nothing of the caller's that could change a byte."""
    path = settings.environment.get("PATH", "")
    return {
        "PATH": ":".join(filter(None, (path, "/usr/sbin:/usr/bin:/sbin:/bin"))),
        "HOME": str(settings.home),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": str(bootstrap.epoch),
        # dpkg syncs every file it unpacks; what counts here is the tar,
        # which is synced when it is whole
        "DPKG_FORCE": "unsafe-io",
    }


def write_repository(
    packages: Iterable[DebianPackage], folder: Path, context: Context, stage: Stage
) -> None:
    """Lay out a repository: each .deb by name, and a Packages file with sizes and hashes.

    The stage counts the packages.

    Raises IntegrityError for a package that the store does not hold whole.
    """
    stanzas = []
    with os_errors_as(folder):
        folder.mkdir()
        folder.chmod(0o755)  # whatever the umask
        for package in packages:
            source = context.store.artifact(package.sha256)
            if not source.exists() or source.stat().st_size != package.size:
                raise IntegrityError(f"{package.file} is not whole in the store", where=source)
            link_or_copy(source, folder / package.file)
    for package in packages:
        argv = ("dpkg-deb", "--field", str(folder / package.file))
        control = context.runner(Command(argv=argv, timeout=60)).stdout.strip()
        stage.advance()
        stanzas.append(
            f"{control}\nFilename: ./{package.file}\nSize: {package.size}\nSHA256: {package.sha256}\n"
        )
    with os_errors_as(folder):
        (folder / "Packages").write_text("\n".join(stanzas), encoding="utf-8")
        (folder / "Packages").chmod(0o644)
