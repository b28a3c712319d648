"""The command that runs something inside an image: what is bound, which variables are set, what is kept."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from envbuild.app.dev.layer import MountedLayer, runtime_with
from envbuild.app.image import FoundImage, find_layer
from envbuild.caches import make_folders, make_scratch, plan_caches
from envbuild.context import Context
from envbuild.errors import EnvbuildError, UsageError
from envbuild.host import read_driver
from envbuild.job.track.records import RESULTS, job_folder
from envbuild.recipe.find import RECIPES
from envbuild.run import Command
from envbuild.runtime import HOME, IMAGE_FOLDERS, Bind, ExecOptions

HANDED_ON = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""Variables of a scheduler that say which GPUs are ours; without them a sealed container uses
all."""

CHANGING = {"install", "reinstall", "uninstall", "remove", "purge", "create"}
CHANGING |= {"update", "upgrade", "full-upgrade"}
"""What a package manager is asked to do that a read-only image cannot keep."""
KEEP_OF_INDEX = """note: the image is read-only; what pip puts into its HOME is lost when the command ends
  to try a package:  envbuild add --dev {name} PKG    (seconds)
  to keep it:        envbuild add {name} PKG"""
TRY_AND_KEEP = {
    "apt": """note: the image is read-only, so apt cannot change it
  to try a package:  envbuild make {name} --mode sandbox    (a writable folder)
  to keep it:        add it to [system] packages, then: envbuild lock {name}""",
    "pip": KEEP_OF_INDEX,
    "uv": KEEP_OF_INDEX,
    "conda": """note: the image is read-only, so conda cannot change it
  to try a package:  envbuild add --dev {name} PKG      (from Python's index; seconds)
  to keep it:        envbuild add --conda {name} PKG    (or from Python's index: add {name} PKG)""",
}
"""What is told of a command that would change the image, by its package manager."""
MANAGERS = {
    "apt": re.compile(r"apt(?:-get)?"),
    "pip": re.compile(r"pip[\d.]*"),
    "uv": re.compile(r"uv|pipx|poetry"),
    "conda": re.compile(r"conda|mamba|micromamba"),
}


def plan_entry(
    found: FoundImage,
    argv: Sequence[str],
    context: Context,
    *,
    binds: Sequence[str],
    variables: Sequence[str],
    dry_run: bool,
) -> Command:
    """Return the command that runs ``argv`` in an image, or opens a shell where it is empty.

    The current folder is bound at its own path.  Without ``dry_run`` the folders that the command
    needs are made.  The development layer of the image is laid over it.
    """
    settings = context.settings
    given = tuple(parse_bind(text, settings.cwd) for text in binds)
    handed_on = tuple(name for name in HANDED_ON if name in settings.environment)
    env = parse_variables((*handed_on, *variables), settings.environment)
    if not dry_run:
        _make_records(settings.cwd)
    project = _project_bind(settings.cwd)
    if not project:
        context.report.say(f"{settings.cwd} is a folder of the image too, so it is not bound")
    kept, kept_env = _kept_folders(found, env, context, make=not dry_run)
    scratch = () if dry_run else _scratch_bind(context)
    layer = find_layer(found, context)
    runtime = runtime_with(layer, context)
    pip_note, manager = _pip_note(found), _changing_manager(argv)
    # where that file is, pip prints it, and changes nothing
    if manager and found.path.is_file() and not (manager == "pip" and pip_note):
        name = found.source.recipe.name if found.source else "NAME"
        context.report.say(TRY_AND_KEEP[manager].format(name=shlex.quote(name)))
    editable = _editable_binds(layer, settings.cwd, shown=bool(project))
    return runtime.exec_command(
        layer.image_for(found.path) if layer else found.path,
        argv,
        ExecOptions(
            verb="exec" if argv else "shell",
            binds=(*scratch, *project, *editable, *pip_note, *kept, *given),
            env={**kept_env, **env},
            gpu=read_driver() is not None,
            cwd=str(settings.cwd) if project else None,
            foreign=False,
        ),
    )


def _changing_manager(argv: Sequence[str]) -> str | None:
    """Return the package manager that a command asks to install, remove or update something."""
    if not CHANGING & set(argv):
        return None
    program = Path(argv[0]).name
    if program.startswith("python") and argv[1:2] == ("-m",):
        program = argv[2]
    return next((name for name, words in MANAGERS.items() if words.fullmatch(program)), None)


def _editable_binds(layer: MountedLayer | None, cwd: Path, *, shown: bool) -> tuple[Bind, ...]:
    """Return the binds of a layer's projects, without what the bound current folder holds."""
    if layer is None:
        return ()
    return layer.binds_beside(cwd) if shown else layer.binds


def parse_bind(text: str, cwd: Path) -> Bind:
    """Read "SRC[:DEST][:ro|:rw]"; SRC must exist and DEST be absolute (left out: the same path)."""
    parts = text.split(":")
    mode = "rw"
    if len(parts) > 1 and parts[-1] in ("ro", "rw"):
        mode = parts.pop()
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise UsageError("--bind takes SRC[:DEST][:ro]", where=text)
    written, *inside = parts
    source = cwd / written
    if not source.exists():
        raise UsageError("the file or folder to bind does not exist", where=written)
    target = inside[0] if inside else str(source)
    if not target.startswith("/"):
        raise UsageError("the path in the container must be absolute", where=text)
    return source, target, mode == "rw"


def parse_variables(texts: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Read "KEY=VALUE", or "KEY" for the caller's own value.

    Raises UsageError for a bad name, and for one that is not set.
    """
    variables: dict[str, str] = {}
    for text in texts:
        key, given, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise UsageError("--env takes KEY or KEY=VALUE", where=text)
        if not given and key not in environment:
            raise UsageError("--env names a variable that is not set here", where=key)
        variables[key] = value if given else environment[key]
    return variables


def _kept_folders(
    found: FoundImage, taken: Mapping[str, str], context: Context, *, make: bool
) -> tuple[tuple[Bind, ...], dict[str, str]]:
    """Return what to bind and to set so that downloads and compiled code outlive the container."""
    run = found.run
    used = {*taken, *run.environment}
    caches = plan_caches(found.path, context.settings, wanted=run.caches, taken=used)
    try:
        if make:
            make_folders(caches)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        context.report.say(f"note: downloads are not kept: {reason} (ENVBUILD_CACHES=FOLDER)")
        return (), {}
    binds = [(Path(folder), f"{HOME}/{below}", True) for folder, below in caches.folders]
    binds += [(Path(folder), folder, True) for _, folder in caches.given]
    env = {name: f"{HOME}/{below}" for name, below in caches.variables}
    return tuple(dict.fromkeys(binds)), {**env, **dict(caches.given)}


def _scratch_bind(context: Context) -> tuple[Bind, ...]:
    """Return the bind that gives /tmp, which is HOME too, the room of this machine's TMPDIR."""
    try:
        return ((make_scratch(context.settings.tmpdir), HOME, True),)
    except OSError as error:
        context.report.detail(f"{HOME} inside has little room: {error}")
        return ()


def _pip_note(found: FoundImage) -> tuple[Bind, ...]:
    """Return the bind that lets pip in a Debian image say how to add a package (PEP 668)."""
    lock = found.lock
    if found.source is None or lock is None or found.path.is_dir():
        return ()
    if not lock.is_bootstrap:
        return ()
    major, minor = lock.base.python.split(".")[:2]
    if (int(major), int(minor)) < (3, 11):  # the first whose Debian package has that file
        return ()
    text = Path(str(resources.files("envbuild.data").joinpath("pip-in-image.ini")))
    return ((text, f"/usr/lib/python{major}.{minor}/EXTERNALLY-MANAGED", False),)


def _make_records(cwd: Path) -> None:
    """Make the folder of jobs of a project: made later, it could be changed by what runs by then."""
    if (cwd / RECIPES).is_dir() or any(cwd.glob("*.sif")):
        with contextlib.suppress(EnvbuildError):  # a folder that may not be written has no jobs
            job_folder(cwd)


def _project_bind(cwd: Path) -> tuple[Bind, ...]:
    """Return the binds of the project: its files of jobs cannot be changed from inside."""
    if cwd == Path("/") or any(cwd.is_relative_to(folder) for folder in IMAGE_FOLDERS):
        return ()
    binds: list[Bind] = [(cwd, str(cwd), True)]
    results = cwd / RESULTS
    for folder, writable in ((results.parent, False), (results, True)):
        # a link that came with the folder would show what it leads to
        if not folder.is_dir() or folder.is_symlink():
            break
        binds.append((folder, str(folder), writable))
    return tuple(binds)
