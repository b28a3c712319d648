"""What a wrapper of an image needs to know: shared by ``module``, ``kernel`` and the exports."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from envbuild.app.dev.layer import runtime_with
from envbuild.app.dev.make import with_packages
from envbuild.app.enter import parse_bind, parse_variables
from envbuild.app.image import FoundImage, find_layer, is_image_path, name_of_file
from envbuild.app.site import find_job_site
from envbuild.caches import image_mark
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.names import NAME, Texts
from envbuild.recipe.model import RunSection
from envbuild.records import frozen_record, replace
from envbuild.runtime import ExecOptions
from envbuild.store.atomic import copy_out, make_folder, os_errors_as, write_text
from envbuild.wrap.script import DIRECT, Wrapper, render_wrapper, stamp_of

LAYER = "layer.sqfs"
"""The packages that lie over the image, beside the wrapper."""


@frozen_record
class WrapperOptions:
    """What the command line says; ``packages`` are laid over the image."""

    site: str | None = None
    binds: Texts = ()
    variables: Texts = ()
    packages: Texts = ()


def plan_wrapper(
    found: FoundImage, verb: str, options: WrapperOptions, context: Context
) -> Wrapper:
    """Return the wrapper of an image; raises UsageError for a sandbox and for bad options."""
    path = found.path.absolute()
    if path.is_dir():
        raise UsageError(
            "this needs an image file, not a sandbox", where=path, hint="envbuild make"
        )
    run = found.run
    settings = context.settings
    layer = find_layer(found, context)
    editable = layer.binds if layer else ()
    fixed = tuple(text for text in options.variables if "=" in text)
    passed = tuple(text for text in options.variables if "=" not in text)
    for name in passed:
        # check a variable that is handed in when the wrapper runs: it need not be set here
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*\*?", name):
            raise UsageError("--env takes KEY, KEY* or KEY=VALUE", where=name)
    return Wrapper(
        name=found.name,
        verb=verb,
        image=str(path),
        stamp=stamp_of(path),
        mark=image_mark(path),
        command=run.command,
        site=find_job_site(options.site, context) if options.site else None,
        binds=(*editable, *(parse_bind(text, settings.cwd) for text in options.binds)),
        variables=tuple(parse_variables(fixed, {}).items()),
        passed=passed,
        kept=_kept_folders(run),
        layer=str(layer.path) if layer else None,
    )


def choose_packages(found: FoundImage, package: str, asked: Texts, context: Context) -> Texts:
    """Return the packages to lay over an image: those that were asked for, and one it must have.

    ``package`` has a module of its own name; it is among them where the image has none.
    """
    if _has_module(found, package, context):
        return asked
    context.report.say(f"{found.path.name} has no {package}: a layer over the image brings it")
    return (*asked, package)


def lay_packages(found: FoundImage, packages: Texts, context: Context) -> FoundImage:
    """Return the image with packages laid over it, where there are any."""
    if not packages:
        return found
    return with_packages(found, packages, context)


def _has_module(found: FoundImage, module: str, context: Context) -> bool:
    """Ask the image's Python, with its development layer, whether it finds a module."""
    layer = find_layer(found, context)
    runtime = runtime_with(layer, context)
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    words = ("python3", "-c", code)
    command = runtime.exec_command(found.path, words, ExecOptions(network=False, timeout=120))
    return context.runner(command, check=False).code == 0


def write_wrapper(wrapper: Wrapper, new: Path, final: Path) -> None:
    """Write a wrapper into a folder that will be ``final``, and its layer beside it."""
    if wrapper.layer is not None:
        copy_out(Path(wrapper.layer), new / LAYER)
        wrapper = replace(wrapper, layer=str(final / LAYER))
    write_text(new / DIRECT, render_wrapper(wrapper), mode=0o755)


def _kept_folders(run: RunSection) -> Texts | None:
    if run.caches is False:
        return None
    return run.caches if isinstance(run.caches, tuple) else ()


def name_of_word(word: str) -> str:
    """Return ``FoundImage.name`` for the user's word for an image, which need not be there any more."""
    if is_image_path(word):
        return name_of_file(Path(word))
    if not re.fullmatch(NAME, word):
        raise UsageError("letters, digits, dot, underscore and hyphen make a name", where=word)
    return word


@contextlib.contextmanager
def replaced_folder(folder: Path, context: Context) -> Iterator[Path]:
    """Yield a new folder that takes the place of an old one when it is whole.

    Raises HostError or SpaceError where it cannot be written.
    """
    with os_errors_as(folder):
        make_folder(folder.parent)
        with context.store.outside(folder.parent, chosen=True) as work:
            new = work / "new"
            new.mkdir()
            yield new
            if folder.exists():
                folder.rename(work / "old")
            new.rename(folder)
