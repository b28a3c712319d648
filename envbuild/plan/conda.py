"""The shell texts of a definition that install conda packages and activate them once."""

from __future__ import annotations

from collections.abc import Sequence

from envbuild.lock.model import LINKER, CondaPackage, Lock
from envbuild.names import Texts
from envbuild.plan.quoting import quote_word, quote_words, text_line
from envbuild.plan.shell import BUILD, SCRIPTS, program_lines, script_lines, write_file

CERTIFICATE = (SCRIPTS / "nobody.pem").read_text("utf-8")
ACTIVATION = "/.singularity.d/env/91-conda.sh"
"""Read after 90-environment.sh: before it there is no PATH (Apptainer's action_script.sh)."""


def history_text(lock: Lock) -> str:
    """Return conda's own record of what was asked for."""
    specs = ", ".join(f"'{spec}'" for spec in lock.conda_direct)
    installed = [f"+{p.channel}/{p.subdir}::{p.stem}" for p in lock.conda]
    update = (f"# update specs: [{specs}]",) if specs else ()
    return "\n".join(("==> 1970-01-01 00:00:00 <==", *installed, *update)) + "\n"


def list_conda(packages: Sequence[CondaPackage]) -> Texts:
    """Return %post lines that write the list of conda packages: sha256, channel, path in it."""
    if not packages:
        return ()
    rows = [f"{p.sha256} {p.channel} {p.subdir}/{p.file}" for p in packages]
    return (f"mkdir -p {BUILD}", *write_file("conda.txt", "LOCKED", rows))


def refuse_python(lacking: str) -> Texts:
    """Return %post lines that end a build on a base whose Python cannot install conda packages."""
    reason = f"{lacking} start {LINKER}, which installs conda: build with envbuild make"
    return (f"echo {quote_word(reason)} >&2", "exit 1")


def install_conda(lock: Lock, set_by_recipe: Sequence[str]) -> Texts:
    """Return %post lines that install a lock's conda packages from files.

    Their own scripts run, without a network where that can be. The base's Python starts py-rattler,
    which wants 3.10: on an older base, or with a lock that lacks its wheel, the build ends with
    that reason.
    """
    if not lock.conda:
        return ()
    wheel = next((p.file for p in lock.build_only if p.name == LINKER), None)
    if wheel is None:
        return refuse_python(f"the base's Python {lock.base.python} cannot")
    python, prefix = quote_word(lock.base.python_path), quote_word(lock.conda_prefix)
    history = [text_line(line) for line in history_text(lock).splitlines()]
    programs = (
        *write_file("history", "HISTORY", history),
        # its key nobody has: rattler, which reads only files here, starts with no certificate
        *write_file("nobody.pem", "NOBODY", CERTIFICATE.splitlines()),
        *write_file("install.py", "PYTHON", program_lines("install_conda")),
        *write_file("activate.py", "PYTHON", program_lines("activate_conda")),
    )
    return script_lines(
        "install_conda",
        programs=programs,
        linker=LINKER,
        wheel=wheel,
        python=python,
        prefix=prefix,
        activation=ACTIVATION,
        variables=quote_words(set_by_recipe),
    )
