"""Write down as plain exports what activating a conda environment does.

Packages bring shell scripts for it (etc/conda/activate.d) and variables (etc/conda/env_vars.d).
"""

import glob
import json
import os
import re
import shlex
import subprocess
import sys
import typing

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
OF_THE_SHELL = re.compile(r"(PWD|OLDPWD|SHLVL|_|BASH.*|HOME|PS1|CONDA_BACKUP_.*)\Z")
"""Variables that belong to the run, or are kept for a deactivation that never comes."""
PROGRAM = """\
for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do
    if [ -f "$file" ]; then . "$file" >&2; fi
done
env -0
"""


def is_kept_variable(name: str) -> bool:
    """Tell whether a variable is one that an image may set for good."""
    return NAME.match(name) is not None and not OF_THE_SHELL.match(name)


def changed_variables(
    before: typing.Mapping[str, str],
    after: typing.Mapping[str, str],
    set_by_recipe: typing.Collection[str],
) -> typing.Iterator[str]:
    """Yield the lines of shell that make one environment of another, by name.

    What was put before or behind a value is put there again, whatever the value will be. What the
    recipe sets itself stays as it says.
    """
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old == new or name in set_by_recipe or not is_kept_variable(name):
            continue
        if new is None:
            yield f"unset {name}"
        elif old and new.endswith(f":{old}"):
            yield f'export {name}={shlex.quote(new[: -len(old)])}"${name}"'
        elif old and new.startswith(f"{old}:"):
            yield f'export {name}="${name}"{shlex.quote(new[len(old) :])}'
        else:
            yield f"export {name}={shlex.quote(new)}"


def declared_variables(prefix):
    """Return the variables that packages declare."""
    found = {}
    for path in sorted(glob.glob(f"{prefix}/etc/conda/env_vars.d/*.json")):
        with open(path) as text:
            found.update(json.load(text))
    return {name: str(value) for name, value in found.items() if NAME.match(name)}


def main(prefix, target, *set_by_recipe):
    """Activate once, in a clean environment, and write the script ``target``."""
    started = {"CONDA_PREFIX": prefix, "CONDA_DEFAULT_ENV": prefix, "HOME": "/root"}
    started["PATH"] = f"{prefix}/bin:{os.environ['PATH']}"
    shells = [shell for shell in (f"{prefix}/bin/bash", "/bin/bash") if os.access(shell, os.X_OK)]
    shell = (shells or ["/bin/sh"])[0]
    ran = subprocess.run(
        [shell, "-c", PROGRAM],
        env={**started, **declared_variables(prefix)},
        stdout=subprocess.PIPE,
    )
    if ran.returncode != 0:
        raise SystemExit("a script in etc/conda/activate.d ended the shell")
    pairs = [item.partition("=") for item in ran.stdout.decode().split("\0") if item]
    after = {name: value for name, _, value in pairs}
    lines = ["#!/bin/sh", *changed_variables(started, after, set_by_recipe)]
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w") as script:
        script.write("\n".join(lines) + "\n")
    os.chmod(target, 0o755)  # noqa: S103  (the runtime reads it as anybody)


if __name__ == "__main__":
    main(*sys.argv[1:])
