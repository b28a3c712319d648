"""Modulefiles of an image for Lmod (Lua) and for Environment Modules (Tcl)."""

from __future__ import annotations

import re

from envbuild.errors import UsageError
from envbuild.names import Texts
from envbuild.plan.quoting import quote_lua, quote_tcl
from envbuild.records import frozen_record

VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@frozen_record
class Modulefile:
    """What a modulefile says.

    ``programs`` is the folder of the wrappers, ``commands`` their names, ``modules`` what is loaded
    before (the site's container runtime), ``lock`` the image's lock digest.
    """

    name: str
    version: str
    summary: str
    image: str
    programs: str
    commands: Texts
    modules: Texts = ()
    lock: str | None = None


def check_version(version: str) -> None:
    """Raise UsageError for a version that is no plain file name, or a suffix to Lmod."""
    if not VERSION.fullmatch(version) or version.endswith(".lua") or version == "default":
        raise UsageError(
            f"{version!r} is not a valid module version",
            where="--version",
            hint='letters, digits, dot, plus, underscore, hyphen; not "default"',
        )


def _help_lines(module: Modulefile) -> list[str]:
    return [
        module.summary or f"Python environment {module.name}",
        "",
        f"Commands that run in the image: {', '.join(module.commands)}",
        f"Image: {module.image}",
        f"Lock: {module.lock or 'none'}",
        "Seen inside: the folder where a command is started, and the GPUs.",
    ]


def _whatis_lines(module: Modulefile) -> list[str]:
    name = module.name
    described = module.summary or f"Python environment {name}"
    return [f"Name: {name}", f"Version: {module.version}", f"Description: {described}"]


def render_lua(module: Modulefile) -> str:
    """Return the modulefile for Lmod."""
    help_text = "\n".join(_help_lines(module))
    lines = [
        "-- written by envbuild (docs/howto-notebooks.md)",
        f"help({quote_lua(help_text)})",
        *(f"whatis({quote_lua(line)})" for line in _whatis_lines(module)),
        f"conflict({quote_lua(module.name)})",
        *(f"load({quote_lua(name)})" for name in module.modules),
        f'prepend_path("PATH", {quote_lua(module.programs)})',
        f'setenv("ENVBUILD_IMAGE", {quote_lua(module.image)})',
    ]
    return "\n".join((*lines, ""))


def render_tcl(module: Modulefile) -> str:
    """Return the modulefile for Environment Modules, and for an Lmod that reads Tcl alone."""
    shown = [f"    puts stderr {quote_tcl(line)}" for line in _help_lines(module)]
    lines = [
        "#%Module1.0",
        "# written by envbuild (docs/howto-notebooks.md)",
        "proc ModulesHelp { } {",
        *shown,
        "}",
        *(f"module-whatis {quote_tcl(line)}" for line in _whatis_lines(module)),
        f"conflict {quote_tcl(module.name)}",
        *(f"module load {quote_tcl(name)}" for name in module.modules),
        f"prepend-path PATH {quote_tcl(module.programs)}",
        f"setenv ENVBUILD_IMAGE {quote_tcl(module.image)}",
    ]
    return "\n".join((*lines, ""))


def render_default(version: str) -> str:
    """Return the ``.version`` file of both kinds: what is loaded without a version."""
    return f"#%Module1.0\n# written by envbuild\nset ModulesVersion {quote_tcl(version)}\n"
