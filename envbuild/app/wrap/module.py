"""``envbuild module``: modulefiles of an image, with wrappers, below one folder."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec

from envbuild.app.dev.layer import runtime_with
from envbuild.app.image import FoundImage, find_image, find_layer, lock_inside, warn_of_old_image
from envbuild.app.wrap.wrapper import (
    WrapperOptions,
    lay_packages,
    plan_wrapper,
    replaced_folder,
    write_wrapper,
)
from envbuild.build.image.origin import embedded_lock_digest
from envbuild.caches import image_mark
from envbuild.check.expected import requirement_name
from envbuild.context import Context
from envbuild.errors import HostError, UsageError
from envbuild.limits import UNREADABLE
from envbuild.names import Texts
from envbuild.records import field, frozen_record
from envbuild.runtime import ExecOptions
from envbuild.settings import Settings
from envbuild.store.atomic import make_folder, os_errors_as, write_text
from envbuild.wrap.modulefile import (
    Modulefile,
    check_version,
    render_default,
    render_lua,
    render_tcl,
)
from envbuild.wrap.script import DIRECT, PIPS, Wrapper, own_text

COMMAND = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
SYSTEM_FOLDERS = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
HIDING = ("python", "python3", "torchrun")
"""Commands that a module may put before the machine's own of the same name."""
MADE_BY = "written by envbuild"
"""What our modulefiles say of themselves; others are neither replaced nor removed."""


@frozen_record
class ModuleRequest:
    """What the command line says; ``folder`` None is the user's, ``commands`` are further ones."""

    image: str | None
    folder: Path | None = None
    version: str | None = None
    commands: Texts = ()
    options: WrapperOptions = field(default_factory=WrapperOptions)


@frozen_record
class ModuleFiles:
    """Where the files of one version lie."""

    lua: Path
    tcl: Path
    default: Path
    programs: Path


def module_folder(folder: Path | None, settings: Settings) -> Path:
    """Return the folder that holds ``modulefiles`` and ``programs``."""
    if folder is not None:
        return (settings.cwd / folder).resolve()
    return settings.data_home / "envbuild/modules"


def _files_of(top: Path, name: str, version: str) -> ModuleFiles:
    folder = top / "modulefiles" / name
    return ModuleFiles(
        lua=folder / f"{version}.lua",
        tcl=folder / version,
        default=folder / ".version",
        programs=top / "programs" / name / version,
    )


def write_module(request: ModuleRequest, context: Context) -> tuple[Modulefile, ModuleFiles]:
    """Write wrappers first, then the modulefiles, which name them.

    Raises UsageError for names that cannot be, and HostError where the image's Python does not
    start.
    """
    found = find_image(request.image, context)
    warn_of_old_image(found, context)
    found = lay_packages(found, request.options.packages, context)
    wrapper = plan_wrapper(found, "module", request.options, context)
    lock = embedded_lock_digest(found.path)
    version = request.version or _usual_version(lock, found.path)
    check_version(version)
    files = _files_of(module_folder(request.folder, context.settings), wrapper.name, version)
    _check_folder(files.programs)
    for path in (files.lua, files.tcl, files.default):
        _check_own(path)
    commands = _choose_commands(found, request, context)
    if wrapper.command:
        commands = tuple(dict.fromkeys((*commands, wrapper.name)))
    module = Modulefile(
        name=wrapper.name,
        version=version,
        summary=found.source.recipe.recipe.summary if found.source else "",
        image=wrapper.image,
        programs=str(files.programs / "bin"),
        commands=commands,
        modules=wrapper.site.modules.load if wrapper.site else (),
        lock=lock,
    )
    lua, tcl = render_lua(module), render_tcl(module)
    _write_programs(files.programs, wrapper, commands, context)
    write_text(files.tcl, tcl)
    write_text(files.lua, lua)
    write_text(files.default, render_default(version))
    return module, files


def _usual_version(lock: str | None, image: Path) -> str:
    """Return a version that changes with the image: first digits of its lock, or its mark."""
    return lock.partition(":")[2][:12] if lock else image_mark(image)[:12]


def _check_folder(folder: Path) -> None:
    """Raise UsageError for a folder that PATH cannot carry, or Lmod gives a shell unquoted."""
    if not re.fullmatch(r"[\w./+@%=,~-]+", str(folder)):
        raise UsageError(
            "modules cannot be in a folder with such a name",
            where=folder,
            hint="name another one: -o FOLDER",
        )


def _check_own(path: Path) -> None:
    """Raise UsageError for a file that somebody else has written there."""
    if path.exists() and not _is_ours(path):
        raise UsageError(
            "this already exists, and envbuild did not make it",
            where=path,
            hint="name another folder (-o) or version (--version)",
        )


def _is_ours(path: Path) -> bool:
    return path.is_file() and MADE_BY in path.read_text("utf-8", "replace")[:200]


def _choose_commands(found: FoundImage, request: ModuleRequest, context: Context) -> Texts:
    """Return the names of the wrappers: Python, pip, direct packages' commands, those asked for.

    A package's command that would hide one of the machine's own is left out, with a note.
    """
    commands = [*PIPS]
    for name in _commands_inside(found, context):
        if not COMMAND.fullmatch(name) or name in (*PIPS, DIRECT):
            continue
        if name not in HIDING and shutil.which(name, path=SYSTEM_FOLDERS):
            context.report.say(
                f"note: {name} is a command of this machine too, so it gets no wrapper"
                f" (--command {name} makes one)"
            )
            continue
        commands.append(name)
    for name in request.commands:
        if not COMMAND.fullmatch(name) or name == DIRECT:
            raise UsageError(f"{name!r} is not a valid command name", where="--command")
        commands.append(name)
    return tuple(sorted(set(commands)))


def _commands_inside(found: FoundImage, context: Context) -> list[str]:
    """Ask the image which commands it has: Python's, and those of its direct packages."""
    shell, python = own_text("list_commands.sh"), own_text("list_commands.py")
    words = ("sh", "-c", shell, python, *_direct_packages(found))
    layer = find_layer(found, context)
    runtime = runtime_with(layer, context)
    command = runtime.exec_command(found.path, words, ExecOptions(network=False, timeout=120))
    with context.report.stage(f"look which commands {found.name} has"):
        result = context.runner(command, check=False)
    try:
        return msgspec.json.decode(result.stdout.encode(), type=list[str])
    except UNREADABLE as error:
        output = result.last_lines(3) or "nothing"
        raise HostError(
            f"the image did not say which commands it has; it said:\n{output}",
            where=found.path,
        ) from error


def _direct_packages(found: FoundImage) -> Texts:
    """Return the names of Python's packages that the recipe names, and the records of conda's."""
    lock = found.lock or lock_inside(found.path)
    if lock is None:
        return ()  # not of envbuild: it says nothing of its packages
    trees = [package.name for package in lock.python if package.source is not None]
    named = [requirement_name(line) for line in lock.direct]
    # Python has a wrapper of its own, and brings commands that nobody asks for
    tools = [p.stem for p in lock.conda if p.is_direct and p.name != "python"]
    records = [f"{lock.conda_prefix}/conda-meta/{stem}.json" for stem in tools]
    return tuple(name for name in (*named, *trees, *records) if name)


def _write_programs(folder: Path, wrapper: Wrapper, commands: Texts, context: Context) -> None:
    """Write the wrapper and a link for each command."""
    with replaced_folder(folder, context) as new:
        write_wrapper(wrapper, new, folder)
        for name in commands:
            link = new / "bin" / name
            make_folder(link.parent)
            link.symlink_to(f"../{DIRECT}")


def remove_module(name: str, version: str | None, top: Path) -> Texts:
    """Remove one version of a module, or all; return the versions.  Raises UsageError for none."""
    folder = top / "modulefiles" / name
    there = sorted(path.name.removesuffix(".lua") for path in folder.glob("[!.]*.lua"))
    versions = tuple(item for item in there if version in (None, item))
    if not versions:
        known = ", ".join(there) or "none"
        raise UsageError(
            f"there is no such module of envbuild in {top}",
            where=name if version is None else f"{name}/{version}",
            hint=f"versions there: {known}",
        )
    for item in versions:
        files = _files_of(top, name, item)
        for path in (files.lua, files.tcl):
            _check_own(path)
        with os_errors_as(folder):
            files.lua.unlink()
            files.tcl.unlink(missing_ok=True)
            shutil.rmtree(files.programs, ignore_errors=True)
            _remove_default(files.default, item)
    for empty in (folder, top / "programs" / name):
        if empty.is_dir() and not any(empty.iterdir()):
            empty.rmdir()
    return versions


def _remove_default(path: Path, version: str) -> None:
    if path.is_file() and path.read_text("utf-8", "replace") == render_default(version):
        path.unlink()
