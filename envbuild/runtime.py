"""The container runtime of this machine: found, measured, and the commands that it takes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from envbuild.cage import Cage, find_cage
from envbuild.errors import HostError, UsageError
from envbuild.host import Host, network_namespaces_work, read_host
from envbuild.run import Command, Runner
from envbuild.settings import Settings
from envbuild.tools import find_runtime_program

MINIMUM = {"apptainer": (1, 1), "singularity": (3, 10)}
"""Oldest versions that take a variable's value as it is; earlier ones evaluate it (--no-eval)."""
SEALED = ("--cleanenv", "--containall", "--no-home")
HOME = "/tmp"  # noqa: S108  (inside the container, where it is an empty tmpfs of its own)
"""HOME in a sealed container: writable in every image, with nothing of the user's."""
IMAGE_FOLDERS = ("/bin", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr", "/var/lib")
"""Folders that belong to the image: a project folder in one of them is not bound over it."""
KEPT = (
    "CACHEDIR",
    "TMPDIR",
    "CONFIGDIR",
    "KEYSDIR",
    "DISABLE_CACHE",
    "DOCKER_USERNAME",
    "DOCKER_PASSWORD",
)
"""The runtime's settings that a user may make; all others (BIND, NV, …) would change what runs."""

HANDED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|TERM|TMPDIR|LANG|LC_ALL|LD_LIBRARY_PATH|SSL_CERT_(?:FILE|DIR)|(?:https?|ftp|all|no)_proxy"
    r"|(?:APPTAINER|SINGULARITY)_(?:CACHEDIR|TMPDIR|CONFIGDIR|DISABLE_CACHE)",
    re.IGNORECASE,
)
"""The caller's variables that the runtime's processes get: what runs inside may read theirs."""
APART = ("--pid", "--ipc", "--no-mount", "tmp")
OFFLINE = ("--net", "--network", "none")

Bind = tuple[Path, str, bool]
"""Source on this machine, absolute target in the container, whether it may be written."""

SQUASHFUSE = ("squashfuse_ll", "squashfuse")


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """An Apptainer or Singularity and how to call it here; it builds commands, and starts nothing.

    ``flags`` are what every ``exec`` needs on this host; ``environment`` is that of its processes.
    ``offline`` tells that a run can be kept from the network; ``cage`` is where root runs foreign
    code, ``build_cage`` where anybody builds from a definition (``with_build_cage``).  ``overlays``
    are squashfs files that every ``exec`` lays over its image, read-only.
    """

    program: Path
    name: str
    version: tuple[int, ...]
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    offline: bool = True
    cage: Cage | None = None
    build_cage: Cage | None = None
    overlays: tuple[Path, ...] = ()

    @property
    def version_text(self) -> str:
        """Return the version as people write it."""
        return ".".join(map(str, self.version))

    def exec_command(
        self,
        image: Path,
        argv: tuple[str, ...],
        *,
        sealed: bool = True,
        binds: Sequence[Bind] = (),
        env: Mapping[str, str] | None = None,
        gpu: bool = False,
        stdin: str | None = None,
        timeout: float | None = None,
        cwd: str | None = None,
        verb: str = "exec",
        network: bool = True,
        home: Path | None = None,
        foreign: bool = True,
    ) -> Command:
        """Build the command that runs ``argv`` in an image.

        Sealed: nothing of the caller's environment, home, processes or temporary files; HOME is
        /tmp, an own tmpfs (of half the memory for root, 64 MB for others: bind a folder to /tmp
        where a program writes more). ``cwd`` is a path in the container (sealed and None: /tmp).
        ``verb`` may be "shell" with an empty ``argv``. Not sealed: as an ordinary exec, but with no
        process, temporary file or memory of others to be seen. There ``home`` is the home folder,
        and where it starts. Without ``network`` only the container itself can be reached, where
        this machine can do that (``offline``). Unless it is no ``foreign`` code, but what the user
        asked for, root runs it in the cage. Raises UsageError for a bind that the runtime cannot
        express.
        """
        caged = foreign and self.cage is not None
        line = [str(self.program), "--quiet", verb, *(() if caged else self.flags)]
        if sealed:
            line += [*SEALED, "--home", HOME]
        else:
            line += APART
        if cwd or sealed:
            line += ["--pwd", cwd or HOME]
        if not network:
            line += self._without_network()
        if gpu:
            line.append("--nv")
        for overlay in self.overlays:
            line += overlay_flags(overlay)
        for bind in binds:
            line += bind_flags(bind)
        command = Command(
            argv=(*line, str(image), *argv),
            env=self._child_environment(inside=env or {}),
            stdin=stdin,
            timeout=timeout,
            cwd=home,
        )
        return self._caged(command, image, binds, home) if caged else command

    def root_command(
        self,
        image: Path,
        argv: tuple[str, ...],
        *,
        overlay: Path | None,
        binds: Sequence[Bind] = (),
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Command:
        """Build the command that runs ``argv`` as root of a user namespace; changes go to a folder.

        Without ``overlay`` the image is read-only.  It has no network.
        """
        mapped = () if self.cage is not None else ("--fakeroot",)
        line = [
            str(self.program),
            "--quiet",
            "exec",
            *mapped,
            *SEALED,
            "--pwd",
            "/",
            *self._without_network(),
        ]
        if overlay is not None:
            line += ["--overlay", str(overlay)]
        for bind in binds:
            line += bind_flags(bind)
        argv = (*line, str(image), *argv)
        command = Command(argv=argv, env=self._child_environment(inside=env or {}), timeout=timeout)
        return self._caged(command, image, binds, overlay)

    def _caged(
        self, command: Command, image: Path, binds: Sequence[Bind], own: Path | None
    ) -> Command:
        """Return a command as root has to run it; the runtime writes to the folder ``own``."""
        if self.cage is None:
            return command
        if image.exists() and not image.stat().st_mode & 0o004:
            hint = f"chmod a+r {image}"
            raise UsageError(
                "others may not read it, and root runs foreign code as another",
                where=str(image),
                hint=hint,
            )
        write = [source for source, _, writable in binds if writable]
        read = (source for source, _, writable in binds if not writable)
        show = [image, *self.overlays, *read]
        return self.cage.around(
            command, show=show, write=(*write, own) if own is not None else write
        )

    def build_command(
        self,
        target: Path,
        definition: Path,
        *,
        tmpdir: Path,
        fakeroot: bool = True,
        binds: Sequence[Bind] = (),
        packer_arguments: str | None = None,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        timeout: float | None = None,
        sandbox: bool = False,
        test: bool = True,
        reads: Sequence[Path] | None = None,
    ) -> Command:
        """Build the command that makes an image (or, with ``sandbox``, a folder) from a definition.

        ``env`` is seen by %setup, not by %post; ``packer_arguments`` go to mksquashfs; an existing
        target is replaced; without ``test`` the definition's %test does not run. With ``reads``,
        what it reads beside the definition and the binds, it is built in the cage; then ``tmpdir``
        and the folder of ``target`` have to be the build's own. %post has a /tmp and /var/tmp of
        the image's own: Apptainer would bind the host's, and recipes love to empty it.
        """
        cage = self.build_cage if reads is not None else None
        line = [str(self.program), "build", "--force"]
        if fakeroot and cage is None:
            line.append("--fakeroot")
        if sandbox:
            line.append("--sandbox")
        if not test:
            line.append("--notest")
        if packer_arguments:
            line += ["--mksquashfs-args", packer_arguments]
        for bind in binds:
            line += bind_flags(bind)
        command = Command(
            argv=(*line, str(target), str(definition)),
            env={
                **self._child_environment(tmpdir=tmpdir),
                f"{self.name.upper()}_NO_MOUNT": "tmp",
                **(env or {}),
            },
            log=log,
            timeout=timeout,
        )
        if cage is None:
            return command
        # a base from a registry is laid out there; the home of such a run holds a megabyte
        cache = {f"{self.name.upper()}_CACHEDIR": str(tmpdir)}
        command = replace(command, env={**(command.env or {}), **cache})
        show = [
            definition,
            *(reads or ()),
            *(source for source, _, writable in binds if not writable),
        ]
        write = [target.parent, tmpdir, *(source for source, _, writable in binds if writable)]
        return cage.around(command, show=show, write=write)

    def _without_network(self) -> tuple[str, ...]:
        return OFFLINE if self.offline else ()

    def _child_environment(
        self, *, inside: Mapping[str, str] | None = None, tmpdir: Path | None = None
    ) -> dict[str, str]:
        prefix = self.name.upper()
        env = {key: value for key, value in self.environment.items() if HANDED_ON.fullmatch(key)}
        # in the environment, not in --env: that splits at commas and shows secrets to everybody who
        # lists processes
        env.update({f"{prefix}ENV_{key}": value for key, value in (inside or {}).items()})
        env[f"{prefix}_NO_EVAL"] = "1"
        if tmpdir is not None:
            env["TMPDIR"] = env[f"{prefix}_TMPDIR"] = str(tmpdir)
        return env


def bind_flags(bind: Bind) -> tuple[str, str]:
    """Write a bind as the runtime wants it: --bind, or --mount (a CSV line) for special characters.

    Raises UsageError for a path with a newline and for a target that is not absolute.
    """
    source, target, writable = bind
    for text in (str(source), target):
        if "\n" in text:
            raise UsageError("a bound path cannot contain a newline", where=repr(text))
    if not target.startswith("/"):
        raise UsageError("the path in the container must be absolute", where=target)
    if not re.search(r"[,:\"\\]", f"{source}{target}"):
        return "--bind", f"{source}:{target}:{'rw' if writable else 'ro'}"
    fields = [
        "type=bind",
        f"source={source}",
        f"destination={target}",
        *([] if writable else ["ro"]),
    ]
    return "--mount", ",".join('"' + text.replace('"', '""') + '"' for text in fields)


def overlay_flags(layer: Path) -> tuple[str, str]:
    """Write a squashfs that is laid over an image.  UsageError for a path that it would split."""
    if re.search(r"[,:\n]", str(layer)):
        what = "no comma, colon or line end can be in the path of a layer over an image"
        raise UsageError(what, where=str(layer), hint="rename the folder, or work in another one")
    return "--overlay", f"{layer}:ro"


def find_runtime(settings: Settings, runner: Runner, host: Host | None = None) -> Runtime:
    """Find the runtime: the configured program, else apptainer, else singularity on PATH.

    Raises HostError when there is none, when it does not start, and when it is older than MINIMUM.
    """
    program = find_runtime_program(settings)
    environment = _clean(settings.environment)
    trial = Command(argv=(str(program), "--version"), env=environment, timeout=30)
    answer = runner(trial, check=False)
    name, version = parse_version(
        answer.stdout, where=str(program), failed=answer.code != 0, stderr=answer.stderr
    )
    if version < MINIMUM[name]:
        least = ".".join(map(str, MINIMUM[name]))
        raise HostError(
            f"{name} {'.'.join(map(str, version))} is too old: {least} or newer is needed",
            where=str(program),
            hint="look for a newer one (module avail apptainer), or name it: ENVBUILD_RUNTIME=/path/to/apptainer",
        )
    facts = host or read_host()
    return Runtime(
        program=program,
        name=name,
        version=version,
        flags=_flags(program, name, environment, facts, runner),
        environment=environment,
        offline=network_namespaces_work(),
        cage=find_cage(facts, runner, trial),
    )


def parse_version(
    text: str, *, where: str, failed: bool = False, stderr: str = ""
) -> tuple[str, tuple[int, ...]]:
    """Read "apptainer version 1.4.5-1.el9" or "singularity-ce version 4.1.0"; else HostError."""
    found = re.search(r"\b(apptainer|singularity)(?:-ce|-pro)? version (\d+(?:\.\d+)*)", text)
    if failed or found is None:
        said = (stderr or text).strip() or "nothing"
        raise HostError(
            f"this is no working Apptainer or Singularity; --version said: {said}", where=where
        )
    return found[1], tuple(map(int, found[2].split(".")))


def _flags(
    program: Path, name: str, env: Mapping[str, str], host: Host, runner: Runner
) -> tuple[str, ...]:
    """Return what makes ``exec`` work on this host.

    Root that lacks a capability must take the way of ordinary users; and where one of those cannot
    open /dev/fuse, an Apptainer that is not setuid has to unpack the image (Singularity does so by
    itself).
    """
    if host.crippled_root:
        return ("--userns",)
    if (
        host.uid != 0
        and not host.fuse
        and name == "apptainer"
        and not _built_setuid(program, env, runner)
    ):
        return ("--unsquash",)
    return ()


def is_setuid(runtime: Runtime, runner: Runner) -> bool:
    """Tell whether this runtime is setuid root: then it runs images without user namespaces."""
    return _built_setuid(runtime.program, runtime.environment, runner)


def find_squashfuse(runtime: Runtime) -> str | None:
    """Return the program that mounts images for those who may not ask the kernel to.

    A runtime may have its own.
    """
    bundled = runtime.program.resolve().parent.parent / "libexec" / runtime.name / "bin"
    places = f"{runtime.environment.get('PATH', '')}:{bundled}"
    return next((found for name in SQUASHFUSE if (found := shutil.which(name, path=places))), None)


def _built_setuid(program: Path, env: Mapping[str, str], runner: Runner) -> bool:
    built = runner(
        Command(argv=(str(program), "buildcfg"), env=env, timeout=30), check=False
    ).stdout
    return "SUID_INSTALL=1" in built


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out the caller's settings of the runtime, but for those in KEPT."""
    clean = {}
    for key, value in environment.items():
        setting = re.fullmatch(r"(?:APPTAINER|SINGULARITY)(?:ENV)?_(.*)", key)
        if setting is None or (setting[1] in KEPT and "ENV_" not in key):
            clean[key] = value
    return clean
