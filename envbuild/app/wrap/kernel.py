"""``envbuild kernel``: an image as a kernel of a Jupyter that is there already."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from envbuild.app.image import find_image, warn_of_old_image
from envbuild.app.wrap.wrapper import (
    WrapperOptions,
    choose_packages,
    lay_packages,
    name_of_image,
    plan_wrapper,
    replaced_folder,
    write_wrapper,
)
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.settings import Settings
from envbuild.store.atomic import os_errors_as, write_text
from envbuild.wrap.kernel import MARK, PREFIX, render_kernel
from envbuild.wrap.script import DIRECT


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRequest:
    """What the command line says; ``prefix`` None is the user's own Jupyter folder."""

    image: str | None
    prefix: Path | None = None
    options: WrapperOptions = field(default_factory=WrapperOptions)


def kernel_folder(name: str, prefix: Path | None, settings: Settings) -> Path:
    """Return the folder of a kernel (jupyter_core, jupyter_data_dir).

    Raises UsageError for one that a kernel spec cannot name.
    """
    if prefix is not None:
        data = (settings.cwd / prefix).resolve() / "share/jupyter"
    elif own := settings.environment.get("JUPYTER_DATA_DIR"):
        data = settings.cwd / own
    else:
        shared = settings.environment.get("XDG_DATA_HOME") or settings.home / ".local/share"
        data = Path(shared) / "jupyter"
    if re.search(r"[{}\x00-\x1f\x7f]", str(data)):
        raise UsageError("Jupyter starts no program of such a path", where=str(data))
    return data / "kernels" / f"{PREFIX}{name}"


def write_kernel(request: KernelRequest, context: Context) -> Path:
    """Write wrapper and kernel.json; return their folder."""
    found = find_image(request.image, context)
    warn_of_old_image(found, context)
    folder = kernel_folder(name_of_image(found), request.prefix, context.settings)
    _check_own(folder)
    packages = choose_packages(found, "ipykernel", request.options.packages, context)
    found = lay_packages(found, packages, context)
    wrapper = plan_wrapper(found, "kernel", request.options, context)
    with replaced_folder(folder, context) as new:
        write_wrapper(wrapper, new, folder)
        spec = render_kernel(wrapper.name, str(folder / DIRECT), wrapper.image)
        write_text(new / "kernel.json", spec)
    return folder


def remove_kernel(name: str, prefix: Path | None, context: Context) -> Path:
    """Remove a kernel of ours; return its folder.  Raises UsageError where there is none."""
    folder = kernel_folder(name, prefix, context.settings)
    if not folder.exists():
        raise UsageError("there is no such kernel", where=str(folder))
    _check_own(folder)
    with os_errors_as(folder):
        shutil.rmtree(folder)
    return folder


def _check_own(folder: Path) -> None:
    """Raise UsageError for a kernel that somebody else has put there."""
    if not folder.exists():
        return
    try:
        spec = json.loads((folder / "kernel.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        spec = None
    metadata = spec.get("metadata") if isinstance(spec, dict) else None
    if not isinstance(metadata, dict) or MARK not in metadata:
        raise UsageError("this is there already, and not of envbuild", where=str(folder))
