"""The container runtime of this machine, and the commands that it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from envbuild.cage import Cage
from envbuild.errors import UsageError
from envbuild.names import Numbers, Paths, Texts, Variables
from envbuild.records import field, frozen_record
from envbuild.run import Command
from envbuild.store.units import join_numbers

SEALED = ("--cleanenv", "--containall", "--no-home")
HOME = "/tmp"  # noqa: S108  (inside the container, where it is an empty tmpfs of its own)
"""HOME in a sealed container: writable in every image, with nothing of the user's."""
IMAGE_FOLDERS = ("/bin", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr", "/var/lib")
"""Folders that belong to the image: a project folder in one of them is not bound over it."""
HANDED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|TERM|TMPDIR|LANG|LC_ALL|LD_LIBRARY_PATH|SSL_CERT_(?:FILE|DIR)|(?:https?|ftp|all|no)_proxy"
    r"|(?:APPTAINER|SINGULARITY)_(?:CACHEDIR|TMPDIR|CONFIGDIR|DISABLE_CACHE)",
    re.IGNORECASE,
)
"""The caller's variables that the runtime's processes get: what runs inside may read theirs."""
PROXY = re.compile(r"(?:https?|ftp|all|no)_proxy", re.IGNORECASE)
"""The caller's variables that the runtime hands in even with --cleanenv."""
APART = ("--pid", "--ipc", "--no-mount", "tmp")
OFFLINE = ("--net", "--network", "none")
DRIVER_LIBRARIES = "/.singularity.d/libs"
"""Where --nv puts the driver's files; the image's own 99-runtimevars.sh makes the loader look there.

Apptainer 1.4.5: an image without that file, as one that no Apptainer built, sees no GPU.
"""

Bind = tuple[Path, str, bool]
"""Source on this machine, absolute target in the container, whether it may be written."""


def handed_on(environment: Variables) -> dict[str, str]:
    """Return the caller's variables that the runtime's processes get."""
    return {key: value for key, value in environment.items() if HANDED_ON.fullmatch(key)}


@frozen_record
class ExecOptions:
    """How a command runs in an image.

    ``sealed``: nothing of the caller's environment, home, processes or temporary files; HOME is
    /tmp, an own tmpfs (of half the memory for root, 64 MB for others: bind a folder to /tmp where a
    program writes more).  Not sealed: as an ordinary exec, but with no process, temporary file or
    memory of others to be seen; there ``home`` is the home folder, and where it starts.  ``cwd`` is
    a path in the container (sealed and None: /tmp); ``verb`` may be "shell" with no command.
    Without ``network`` only the container itself can be reached, where this machine can do that.
    Unless it is no ``foreign`` code, but what the user asked for, root runs it in the cage.
    """

    sealed: bool = True
    binds: Sequence[Bind] = ()
    env: Variables = field(default_factory=dict)
    gpu: bool = False
    stdin: str | None = None
    timeout: float | None = None
    cwd: str | None = None
    verb: str = "exec"
    network: bool = True
    home: Path | None = None
    foreign: bool = True


@frozen_record
class BuildOptions:
    """How an image is made from a definition.

    ``env`` is seen by %setup, not by %post; ``packer_arguments`` go to mksquashfs; with ``sandbox``
    it is a folder; without ``test`` the definition's %test does not run.  With ``reads``, what it
    reads beside the definition and the binds, it is built in the cage; then the temporary folder
    and that of the target have to be the build's own.
    """

    fakeroot: bool = True
    binds: Sequence[Bind] = ()
    packer_arguments: str | None = None
    env: Variables = field(default_factory=dict)
    log: Path | None = None
    timeout: float | None = None
    sandbox: bool = False
    test: bool = True
    reads: Sequence[Path] | None = None


@frozen_record
class Runtime:
    """An Apptainer or Singularity and how to call it here; it builds commands, and starts nothing.

    ``flags`` are what every ``exec`` needs on this host; ``environment`` is that of its processes.
    ``offline`` says that a run can be kept from the network; ``cage`` is where root runs foreign
    code, ``build_cage`` where anybody builds from a definition (``with_build_cage``).  ``overlays``
    are squashfs files that every ``exec`` lays over its image, read-only.
    """

    program: Path
    name: str
    version: Numbers
    flags: Texts = ()
    environment: Variables = field(default_factory=dict)
    offline: bool = True
    cage: Cage | None = None
    build_cage: Cage | None = None
    overlays: Paths = ()

    @property
    def version_text(self) -> str:
        """Return the version as people write it."""
        return join_numbers(self.version)

    def exec_command(
        self, image: Path, argv: Sequence[str], options: ExecOptions | None = None
    ) -> Command:
        """Build the command that runs ``argv`` in an image.

        Raises UsageError for a bind that the runtime cannot express.
        """
        given = options or ExecOptions()
        caged = given.foreign and self.cage is not None
        line = [str(self.program), "--quiet", given.verb, *(() if caged else self.flags)]
        if given.sealed:
            line += [*SEALED, "--home", HOME]
        else:
            line += APART
        if given.cwd or given.sealed:
            line += ["--pwd", given.cwd or HOME]
        if not given.network:
            line += self._without_network()
        if given.gpu:
            line.append("--nv")
        for overlay in self.overlays:
            line += overlay_flags(overlay)
        for bind in given.binds:
            line += bind_flags(bind)
        command = Command(
            argv=(*line, str(image), *argv),
            env=self._inner_environment(given),
            stdin=given.stdin,
            timeout=given.timeout,
            cwd=given.home,
            foreign=given.foreign,
        )
        return self._caged(command, image, given.binds, given.home) if caged else command

    def root_command(
        self,
        image: Path,
        argv: Sequence[str],
        *,
        overlay: Path | None,
        binds: Sequence[Bind] = (),
        env: Variables | None = None,
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
        inner = self._inner_environment(ExecOptions(env=env or {}, network=False))
        command = Command(argv=argv, env=inner, timeout=timeout, foreign=True)
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
                where=image,
                hint=hint,
            )
        write = [source for source, _, writable in binds if writable]
        read = (source for source, _, writable in binds if not writable)
        show = [image, *self.overlays, *read]
        return self.cage.around(
            command, show=show, write=(*write, own) if own is not None else write
        )

    def build_command(
        self, target: Path, definition: Path, tmpdir: Path, options: BuildOptions | None = None
    ) -> Command:
        """Build the command that makes an image from a definition; an existing target is replaced.

        %post has a /tmp and /var/tmp of the image's own: Apptainer would bind the host's, and
        recipes love to empty it.
        """
        given = options or BuildOptions()
        cage = self.build_cage if given.reads is not None else None
        line = [str(self.program), "build", "--force"]
        if given.fakeroot and cage is None:
            line.append("--fakeroot")
        if given.sandbox:
            line.append("--sandbox")
        if not given.test:
            line.append("--notest")
        if given.packer_arguments:
            line += ["--mksquashfs-args", given.packer_arguments]
        for bind in given.binds:
            line += bind_flags(bind)
        prefix = self.name.upper()
        env = {**self._child_environment(tmpdir=tmpdir), f"{prefix}_NO_MOUNT": "tmp", **given.env}
        if cage is not None:
            # a base from a registry is laid out there; the home of such a run holds a megabyte
            env[f"{prefix}_CACHEDIR"] = str(tmpdir)
        argv = (*line, str(target), str(definition))
        command = Command(argv=argv, env=env, log=given.log, timeout=given.timeout, foreign=True)
        if cage is None:
            return command
        read = [source for source, _, writable in given.binds if not writable]
        written = [source for source, _, writable in given.binds if writable]
        show = [definition, *(given.reads or ()), *read]
        return cage.around(command, show=show, write=[target.parent, tmpdir, *written])

    def _without_network(self) -> Texts:
        return OFFLINE if self.offline else ()

    def _inner_environment(self, given: ExecOptions) -> dict[str, str]:
        """Return a command's environment: without a network no proxy, which a library may refuse."""
        env = self._child_environment(inside=given.env)
        if given.network:
            return env
        return {name: value for name, value in env.items() if not PROXY.fullmatch(name)}

    def _child_environment(
        self, *, inside: Mapping[str, str] | None = None, tmpdir: Path | None = None
    ) -> dict[str, str]:
        prefix = self.name.upper()
        env = handed_on(self.environment)
        # in the environment, not in --env:
        # that splits at commas and shows secrets to everybody who lists processes
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
    return "--mount", ",".join(map(_quote_field, fields))


def _quote_field(text: str) -> str:
    """Write a value of the runtime's options, which it reads as CSV."""
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def overlay_flags(layer: Path) -> tuple[str, str]:
    """Write a squashfs that is laid over an image.  UsageError for a path that it would split."""
    if re.search(r"[:\n]", str(layer)):
        what = "no colon or line end can be in the path of a layer over an image"
        raise UsageError(what, where=layer, hint="rename the folder, or work in another one")
    text = f"{layer}:ro"
    return "--overlay", _quote_field(text) if re.search(r"[,\"]", text) else text
