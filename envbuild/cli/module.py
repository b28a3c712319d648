"""``envbuild module``: an image as a module of the cluster."""

from __future__ import annotations

import shlex
from typing import Any

import click

from envbuild.app.wrap.module import ModuleRequest, module_folder, remove_module, write_module
from envbuild.app.wrap.wrapper import WrapperOptions, name_of_word
from envbuild.cli.options import flag, image_argument, path_option, values_option
from envbuild.cli.output import json_option, print_json, print_text
from envbuild.cli.wrapper import wrapper_options
from envbuild.context import Context
from envbuild.errors import UsageError


@click.command("module")
@image_argument
@path_option("-o --output folder", "Folder for modulefiles and programs (default: in your home).")
@click.option("--version", help="Version of the module (default: from the lock's digest).")
@values_option("--command commands", "NAME", "Also write a wrapper for this command.")
@wrapper_options
@flag("--remove", "Remove the module: this --version, or all versions.")
@json_option
@click.pass_obj
def command(
    context: Context,
    /,
    *,
    name: str | None,
    wrapper: WrapperOptions,
    remove: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Write modulefiles for Lmod and Environment Modules, with wrappers that run in the image.

    After "module load NAME", python, torchrun and the commands of the recipe's packages run in the
    image, in the current folder. The wrappers need no envbuild: they work on every node that has a
    container runtime and sees their folder and the image.
    """
    request = ModuleRequest(image=name, options=wrapper, **given)
    top = module_folder(request.folder, context.settings)
    if remove:
        if name is None:
            raise UsageError(
                "which module?", where="--remove", hint="envbuild module NAME --remove"
            )
        word = name_of_word(name)
        for item in remove_module(word, request.version, top):
            context.report.say(f"removed {word}/{item}")
        return
    module, files = write_module(request, context)
    if as_json:
        written = {"lua": str(files.lua), "tcl": str(files.tcl), "commands": module.commands}
        print_json({"name": module.name, "version": module.version, **written})
        return
    context.report.say(f"commands: {', '.join(module.commands)}")
    print_text(f"module use {shlex.quote(str(top / 'modulefiles'))}")
    print_text(f"module load {module.name}/{module.version}")
