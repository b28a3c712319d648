"""``exec``, ``shell`` and ``run``: a command inside the image, sealed, with the project folder bound."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import click

from envbuild.cli.complete import complete_image
from envbuild.context import Context
from envbuild.errors import EnvbuildError, UsageError
from envbuild.host import read_driver
from envbuild.recipe.find import find_recipe
from envbuild.recipe.model import Run, Source
from envbuild.run import hand_over
from envbuild.runtime import HOME, Bind, find_runtime

SIF_MAGIC = (32, b"SIF_MAGIC")
"""Offset and bytes that every SIF has (SIF specification: behind the 32 bytes of its launch line)."""
HANDED_ON = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""Variables of a scheduler that say which GPUs are ours; a sealed container would use all of them without."""
IMAGE_FOLDERS = ("/bin", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr", "/var/lib")
"""Folders that belong to the image: a project folder in one of them is not bound over it."""


class CommandAfterDashes(click.Command):
    """A verb that ends with a command of the user's; says so when an option of that command is taken for ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; an option that is none of ours gets the hint about ``--``."""
        try:
            return super().parse_args(ctx, self._with_name(ctx, args))
        except click.NoSuchOption as error:
            hint = f"if it belongs to your command, put -- before that: envbuild {ctx.info_name} NAME -- CMD …"
            raise click.UsageError(f"{error.format_message()}\n{hint}", ctx) from error

    def _with_name(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the only recipe's name before ``--`` where there is none: what follows is a command, never a name."""
        first = self.params[0].name
        if first not in ("image", "name") or "--" not in args:
            return args
        end = args.index("--")
        try:
            values, _, _ = self.make_parser(ctx).parse_args(args[:end])
        except click.UsageError:
            return args  # told when all of them are read
        if isinstance(values.get(first), str):
            return args
        return [*args[:end], find_recipe(None, ctx.obj.settings).recipe.name, *args[end:]]


_binds = click.option(
    "--bind",
    "-B",
    "binds",
    multiple=True,
    metavar="SRC[:DEST][:ro]",
    help="Bind another file or folder.",
)
_variables = click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="KEY[=VALUE]",
    help="Set a variable inside, or hand on yours.",
)
_dry_run = click.option("--dry-run", is_flag=True, help="Print the command line that would be run.")


@click.command(cls=CommandAfterDashes)
@click.argument("image", metavar="[NAME|IMAGE]", shell_complete=complete_image)
@click.argument("argv", metavar="-- CMD…", nargs=-1, required=True, type=click.UNPROCESSED)
@_binds
@_variables
@_dry_run
@click.pass_obj
def exec_command(
    context: Context,
    *,
    image: str,
    argv: tuple[str, ...],
    binds: tuple[str, ...],
    variables: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Run a command inside the image.

    Nothing of this machine is seen inside but the current folder (at the same path, writable), the folders bound with
    --bind, the GPUs where there is a driver, and the network. HOME is a folder of its own that vanishes, but for
    downloads of models and data sets and for compiled code, which are kept (docs/howto-data.md). The exit code is the
    command's; 125 when envbuild itself failed.
    """
    _enter(context, image, argv, binds, variables, dry_run=dry_run)


@click.command()
@click.argument("image", metavar="[NAME|IMAGE]", shell_complete=complete_image, required=False)
@_binds
@_variables
@_dry_run
@click.pass_obj
def shell_command(
    context: Context,
    *,
    image: str | None,
    binds: tuple[str, ...],
    variables: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Open a shell inside the image, in the current folder."""
    _enter(context, image, (), binds, variables, dry_run=dry_run)


@click.command(cls=CommandAfterDashes)
@click.argument("image", metavar="[NAME|IMAGE]", shell_complete=complete_image, required=False)
@click.argument("argv", metavar="[-- CMD…]", nargs=-1, type=click.UNPROCESSED)
@_binds
@_variables
@_dry_run
@click.pass_obj
def run_command(
    context: Context,
    *,
    image: str | None,
    argv: tuple[str, ...],
    binds: tuple[str, ...],
    variables: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Run the recipe's [run] command inside the image, or another one behind --."""
    _enter(
        context, image, argv or _recipe_command(image, context), binds, variables, dry_run=dry_run
    )


def find_image(name: str | None, context: Context) -> Path:
    """Return the image of a recipe (./NAME.sif) or at a path: a SIF, or the folder of a sandbox.

    Raises UsageError when there is none, naming the command that builds it, and for a file that is no image.
    """
    cwd = context.settings.cwd
    if name is not None and _is_path(name):
        image = cwd / name
        if not image.exists():
            raise UsageError("there is no such image", where=name)
    else:
        found = (
            None
            if name is not None and (cwd / f"{name}.sif").exists()
            else find_recipe(name, context.settings)
        )
        stem = found.recipe.name if found else name
        image = cwd / f"{stem}.sif"
        if not image.exists():
            raise UsageError(
                f"the image of {stem} is not built yet",
                where=str(image),
                hint=f"envbuild make {stem}",
            )
    if image.is_file() and not _is_sif(image):
        raise UsageError(
            "this is no image, or a damaged one", where=str(image), hint="copy or build it again"
        )
    return image


def parse_bind(text: str, cwd: Path) -> Bind:
    """Read "SRC[:DEST][:ro|:rw]"; SRC must exist and DEST be absolute (left out: the same path)."""
    parts = text.split(":")
    mode = parts.pop() if len(parts) > 1 and parts[-1] in ("ro", "rw") else "rw"
    if not 1 <= len(parts) <= 2 or not all(parts):
        raise UsageError("--bind takes SRC[:DEST][:ro]", where=text)
    source = cwd / parts[0]
    if not source.exists():
        raise UsageError("the file or folder to bind does not exist", where=parts[0])
    target = parts[1] if len(parts) == 2 else str(source)
    if not target.startswith("/"):
        raise UsageError("the path in the container must be absolute", where=text)
    return source, target, mode == "rw"


def parse_variables(texts: tuple[str, ...], environment: Mapping[str, str]) -> dict[str, str]:
    """Read "KEY=VALUE", or "KEY" for the caller's own value; raises UsageError for a name that is none or not set."""
    found: dict[str, str] = {}
    for text in texts:
        key, given, value = text.partition("=")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise UsageError("--env takes KEY or KEY=VALUE", where=text)
        if not given and key not in environment:
            raise UsageError("--env names a variable that is not set here", where=key)
        found[key] = value if given else environment[key]
    return found


def _enter(
    context: Context,
    name: str | None,
    argv: tuple[str, ...],
    binds: tuple[str, ...],
    variables: tuple[str, ...],
    *,
    dry_run: bool,
) -> None:
    """Replace this process by the runtime; an empty ``argv`` opens a shell."""
    from envbuild.app.current import recipe_of, tell_old

    settings = context.settings
    image, source = find_image(name, context), recipe_of(name, context)
    tell_old(image, source, context)
    handed_on = tuple(name for name in HANDED_ON if name in settings.environment)
    given = tuple(parse_bind(text, settings.cwd) for text in binds)
    env = parse_variables((*handed_on, *variables), settings.environment)
    project = _project_bind(settings.cwd)
    if project is None:
        context.report.say(f"{settings.cwd} is a folder of the image too, so it is not bound")
    notes = _pip_note(image, source)
    kept, kept_env = _keep(image, source, env, context, make=not dry_run)
    runtime = find_runtime(settings, context.runner)
    command = runtime.exec_command(
        image,
        argv,
        verb="exec" if argv else "shell",
        binds=(
            *_room(context, make=not dry_run),
            *((project,) if project else ()),
            *notes,
            *kept,
            *given,
        ),
        env={**kept_env, **env},
        gpu=read_driver() is not None,
        cwd=str(settings.cwd) if project else None,
        foreign=False,
    )
    child = dict(command.env or {})
    if dry_run:
        added = [
            f"{key}={value}"
            for key, value in child.items()
            if runtime.environment.get(key) != value
        ]
        click.echo(shlex.join(("env", *added, *command.argv)))
        return
    hand_over(command.argv, child)


def _keep(
    image: Path, source: Source | None, taken: Mapping[str, str], context: Context, *, make: bool
) -> tuple[tuple[Bind, ...], dict[str, str]]:
    """Return what to bind and to set so that downloads and compiled code outlive the container."""
    from envbuild.caches import make_folders, plan_caches

    run = source.recipe.run if source else Run()
    caches = plan_caches(
        image, context.settings, wanted=run.caches, taken={*taken, *run.environment}
    )
    try:
        if make:
            make_folders(caches)
    except OSError as error:
        context.report.say(
            f"note: downloads are not kept: {error.filename}: {error.strerror} (ENVBUILD_CACHES=FOLDER)"
        )
        return (), {}
    binds = [(Path(folder), f"{HOME}/{below}", True) for folder, below in caches.folders]
    binds += [(Path(folder), folder, True) for _, folder in caches.given]
    env = {name: f"{HOME}/{below}" for name, below in caches.variables}
    return tuple(dict.fromkeys(binds)), {**env, **dict(caches.given)}


def _room(context: Context, *, make: bool) -> tuple[Bind, ...]:
    """Return the bind that gives /tmp, which is HOME too, the room of this machine's TMPDIR."""
    from envbuild.caches import make_scratch

    if not make:
        return ()
    try:
        return ((make_scratch(context.settings.tmpdir), HOME, True),)
    except OSError as error:
        context.report.detail(f"{HOME} inside has little room: {error}")
        return ()


def _pip_note(image: Path, source: Source | None) -> tuple[Bind, ...]:
    """Return the bind that lets pip in a Debian image say how to try and how to keep a package (PEP 668)."""
    from importlib import resources

    from envbuild.lock.read import read_lock

    if (
        source is None
        or source.recipe.base.bootstrap is None
        or image.is_dir()
        or not source.lock.is_file()
    ):
        return ()
    try:
        major, minor = read_lock(source.lock).base.python.split(".")[:2]
    except EnvbuildError:
        return ()
    if (int(major), int(minor)) < (3, 11):  # the first whose Debian package has that file
        return ()
    text = Path(str(resources.files("envbuild.data").joinpath("pip-in-image.ini")))
    return ((text, f"/usr/lib/python{major}.{minor}/EXTERNALLY-MANAGED", False),)


def _project_bind(cwd: Path) -> Bind | None:
    inside = cwd == Path("/") or any(cwd.is_relative_to(folder) for folder in IMAGE_FOLDERS)
    return None if inside else (cwd, str(cwd), True)


def _recipe_command(name: str | None, context: Context) -> tuple[str, ...]:
    if name is not None and _is_path(name):
        raise UsageError(
            "an image has no [run] command of its own",
            where=name,
            hint="name the command: -- CMD …",
        )
    source: Source = find_recipe(name, context.settings)
    if not source.recipe.run.command:
        raise UsageError(
            "the recipe has no [run] command",
            where=str(source.path),
            hint="add one, or name it here: -- CMD …",
        )
    return source.recipe.run.command


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith(".sif")


def _is_sif(path: Path) -> bool:
    offset, magic = SIF_MAGIC
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(len(magic)) == magic
