"""``envbuild kernel``: an image as a kernel of Jupyter."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click

from envbuild.app.wrap.kernel import KernelRequest, kernel_name, remove_kernel, write_kernel
from envbuild.app.wrap.wrapper import WrapperOptions, name_of_word
from envbuild.cli.job import RESOURCES, job_option
from envbuild.cli.options import flag, image_argument, path_option, site_option
from envbuild.cli.output import json_option, print_json, print_text
from envbuild.cli.wrapper import wrapper_options
from envbuild.context import Context
from envbuild.errors import UsageError
from envbuild.job.request.intent import Flags, check_flags


@click.command("kernel")
@image_argument
@path_option("--prefix", "Write below PREFIX/share/jupyter (default: your own Jupyter folder).")
@site_option(
    "--on node_site", "Run the kernel on a node of this cluster, as a job with the options below."
)
@job_option(*RESOURCES)
@wrapper_options
@flag("--remove", "Remove the kernel.")
@json_option
@click.pass_obj
def command(
    context: Context,
    /,
    *,
    name: str | None,
    prefix: Path | None,
    wrapper: WrapperOptions,
    remove: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Add the image to the kernels of a Jupyter that is there already.

    The kernel starts on the machine where Jupyter runs: here, or on the node of a hub or portal.
    With --on, each start of the kernel is a job, and no port of the node is open. The kernel sees
    the notebook's folder, and needs no envbuild. If the image has no ipykernel, envbuild adds it in
    a layer.
    """
    node_site = given.pop("node_site")
    flags = Flags(**given)
    check_flags(flags)
    if node_site is None and flags != Flags():
        raise UsageError("job options need --on SITE", hint="envbuild site list")
    if remove:
        if name is None:
            hint = "envbuild kernel NAME --remove"
            raise UsageError("which kernel?", where="--remove", hint=hint)
        folder = remove_kernel(kernel_name(name_of_word(name), node_site), prefix, context)
        context.report.say(f"removed {folder}")
        return
    request = KernelRequest(image=name, prefix=prefix, options=wrapper, site=node_site, flags=flags)
    folder = write_kernel(request, context)
    if as_json:
        print_json({"kernel": folder.name, "folder": str(folder)})
    else:
        _print_kernel(folder, request)


def _print_kernel(folder: Path, request: KernelRequest) -> None:
    """Print what was installed, how it is chosen in Jupyter, and how it goes away."""
    title = json.loads((folder / "kernel.json").read_bytes())["display_name"]
    print_text(f'kernel "{title}" in {folder}')
    print_text(
        "  choose   reload Jupyter's page: it is in the launcher, and in Kernel, Change Kernel"
    )
    print_text(f"  or       jupyter console --kernel {folder.name}")
    if request.image:
        words = ["envbuild", "kernel", request.image]
        if request.site:
            words += ["--on", request.site]
        if request.prefix:
            words += ["--prefix", str(request.prefix)]
        print_text(f"  remove   {shlex.join(words)} --remove")
