"""``envbuild kernel``: an image as a kernel of a Jupyter that is there already."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from envbuild.app.image import find_image, warn_of_old_image
from envbuild.app.job.prepare import JobRequest, plan_job, refuse_unfit
from envbuild.app.wrap.wrapper import (
    WrapperOptions,
    choose_packages,
    lay_packages,
    plan_wrapper,
    replaced_folder,
    write_wrapper,
)
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.job.preflight import check_client
from envbuild.job.request.intent import Flags
from envbuild.job.schedulers import features_of, scheduler_of
from envbuild.records import field, frozen_record, replace
from envbuild.settings import Settings
from envbuild.store.atomic import os_errors_as, write_text
from envbuild.wrap.kernel import (
    FORWARD,
    MARK,
    PREFIX,
    RELAY,
    START,
    NodeKernel,
    render_forward,
    render_kernel,
    render_node_kernel,
    render_start,
)
from envbuild.wrap.script import DIRECT, own_text


@frozen_record
class KernelRequest:
    """What the command line says; ``prefix`` None is the user's own Jupyter folder.

    ``site`` is where the kernel runs as a job with the resources of ``flags`` (None: where Jupyter
    runs).
    """

    image: str | None
    prefix: Path | None = None
    options: WrapperOptions = field(default_factory=WrapperOptions)
    site: str | None = None
    flags: Flags = field(default_factory=Flags)


def kernel_name(name: str, site: str | None) -> str:
    """Return the name of an image's kernel, which may have one for each site."""
    if site is None:
        return f"{PREFIX}{name}"
    host, _, _ = site.partition(":")
    return f"{PREFIX}{name}-on-{host}"


def _kernel_folder(name: str, prefix: Path | None, settings: Settings) -> Path:
    """Return the folder of a kernel (jupyter_core, jupyter_data_dir).

    Raises UsageError for one that a kernel spec cannot name.
    """
    if prefix is not None:
        data = (settings.cwd / prefix).resolve() / "share/jupyter"
    elif own := settings.environment.get("JUPYTER_DATA_DIR"):
        data = settings.cwd / own
    else:
        data = settings.data_home / "jupyter"
    if re.search(r"[{}\x00-\x1f\x7f]", str(data)):
        raise UsageError("Jupyter starts no program of such a path", where=data)
    return data / "kernels" / name


def write_kernel(request: KernelRequest, context: Context) -> Path:
    """Write wrapper and kernel.json; return their folder.

    Raises UsageError where a job of the site has no streams for a kernel.
    """
    found = find_image(request.image, context)
    warn_of_old_image(found, context)
    name = kernel_name(found.name, request.site)
    folder = _kernel_folder(name, request.prefix, context.settings)
    _check_own(folder)
    node = _plan_node_kernel(request, folder, context) if request.site else None
    packages = choose_packages(found, "ipykernel", request.options.packages, context)
    found = lay_packages(found, packages, context)
    options = request.options
    if node is not None and options.site is None:
        options = replace(options, site=node.site.name)
    wrapper = plan_wrapper(found, "kernel", options, context)
    with replaced_folder(folder, context) as new:
        write_wrapper(wrapper, new, folder)
        if node is None:
            spec = render_kernel(wrapper.name, str(folder / DIRECT), wrapper.image)
        else:
            spec = render_node_kernel(wrapper.name, wrapper.image, node)
            # write the files of a kernel on a node beside its wrapper
            write_text(new / RELAY, own_text(RELAY))
            write_text(new / FORWARD, render_forward(node), mode=0o755)
            write_text(new / START, render_start(node), mode=0o755)
        write_text(new / "kernel.json", spec)
    return folder


def _plan_node_kernel(request: KernelRequest, folder: Path, context: Context) -> NodeKernel:
    """Return the job that a kernel is; its command is left to the kernel's own files."""
    asked = JobRequest(
        image=request.image,
        argv=("python3",),
        site=request.site,
        flags=request.flags,
        interactive=True,
        alone=True,
    )
    job, site, found = plan_job(asked, context)
    if not features_of(site).queues:
        hint = f"envbuild kernel {found.name}"
        raise UsageError(f"{site.name} is where Jupyter runs", where="--on", hint=hint)
    refuse_unfit(found, job.intent, site)
    script = str(folder / START)
    words = scheduler_of(site).interactive(script, job, site, terminal=False)
    check_client(site, context)
    return NodeKernel(folder=str(folder), site=site, words=words)


def remove_kernel(name: str, prefix: Path | None, context: Context) -> Path:
    """Remove a kernel of ours; return its folder.  Raises UsageError where there is none."""
    folder = _kernel_folder(name, prefix, context.settings)
    if not folder.exists():
        raise UsageError("there is no such kernel", where=folder)
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
        raise UsageError("this already exists, and envbuild did not make it", where=folder)
