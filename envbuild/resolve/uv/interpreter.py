"""The Python that uv gets to work with: the host's own, or one that runs nothing.

uv takes metadata of a source archive from a build wherever the archive does not say it statically,
and has no switch that stops there and says so: with ``--no-build`` such releases do not exist.
With an interpreter that answers uv's question about itself and refuses all else, the build ends
before any code of a package ran, and uv names the archive.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from envbuild.base.model import BaseFacts
from envbuild.resolve.platform import python_minor
from envbuild.settings import Settings
from envbuild.store.atomic import os_errors_as

REFUSAL = "envbuild: no code of a package runs on this machine"
BEGINNING = "-I -B -c import sys; sys.path = ["
END = "] + sys.path; from python.get_interpreter_info import main; main()"
"""How uv asks an interpreter about itself (crates/uv-python/src/interpreter.rs); builds are started
with -c alone."""


def build_python(facts: BaseFacts, settings: Settings) -> str:
    """Return the host's interpreter nearest to the base's, for what the user lets run here.

    A version manager's shim is passed over: it costs 0.4 s a call and may point to nothing.
    """
    minor = python_minor(facts)
    if sys.version_info[:2] == minor:
        return sys.executable
    found = shutil.which(f"python{minor[0]}.{minor[1]}", path=settings.environment.get("PATH"))
    return found if found and "shims" not in Path(found).parts else sys.executable


def write_mute(folder: Path, python: str) -> Path:
    """Write the interpreter: it answers uv's one question as ``python`` would."""
    path = folder / "python"
    answer = f"import sys; sys.executable = sys._base_executable = {str(path)!r}; exec(sys.argv[1])"
    # uv's question about the interpreter gets a true answer, everything else a refusal
    script = (
        "#!/bin/sh\n"
        'case "$1 $2 $3 $4" in\n'
        f"{shlex.quote(BEGINNING)}*{shlex.quote(END)})\n"
        f'    exec {shlex.quote(python)} -I -B -c {shlex.quote(answer)} "$4" ;;\n'
        "esac\n"
        f"echo {shlex.quote(REFUSAL)} >&2\n"
        "exit 1\n"
    )
    with os_errors_as(folder):
        path.write_text(script, "utf-8")
        path.chmod(0o700)
    return path
