"""``envbuild kernel``: an image as a kernel of Jupyter."""

from __future__ import annotations

from pathlib import Path

import click

from envbuild.app.wrap.kernel import KernelRequest, remove_kernel, write_kernel
from envbuild.app.wrap.wrapper import WrapperOptions, name_of_word
from envbuild.cli.complete import complete_image
from envbuild.cli.output import json_option, print_json
from envbuild.cli.wrapper import wrapper_options
from envbuild.context import Context
from envbuild.errors import UsageError


@click.command("kernel")
@click.argument("name", metavar="[NAME|IMAGE]", required=False, shell_complete=complete_image)
@click.option(
    "--prefix",
    type=click.Path(path_type=Path),
    help="Write below PREFIX/share/jupyter (default: your own Jupyter folder).",
)
@wrapper_options
@click.option("--remove", is_flag=True, help="Remove the kernel.")
@json_option
@click.pass_obj
def command(
    context: Context,
    *,
    name: str | None,
    prefix: Path | None,
    options: WrapperOptions,
    remove: bool,
    as_json: bool,
) -> None:
    """Add the image to the kernels of a Jupyter that is there already.

    The kernel starts on the machine where Jupyter runs: here, or on the node of a hub or portal. It
    sees the notebook's folder. It needs no envbuild. Where the image has no ipykernel, a layer with
    it lies beside the kernel.
    """
    if remove:
        if name is None:
            raise UsageError(
                "which kernel?", where="--remove", hint="envbuild kernel NAME --remove"
            )
        context.report.say(f"removed {remove_kernel(name_of_word(name), prefix, context)}")
        return
    folder = write_kernel(KernelRequest(image=name, prefix=prefix, options=options), context)
    if as_json:
        print_json({"kernel": folder.name, "folder": str(folder)})
    else:
        click.echo(folder)
