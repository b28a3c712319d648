"""What the container runtime reads inside an image: environment, runscript, test, help, labels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from envbuild.build.image.base_config import HOME, NO_CONFIG, BaseConfig, parse_labels
from envbuild.build.modes import MODES
from envbuild.formats.file_tree import TreeEntry
from envbuild.parts.writer import Content
from envbuild.plan.apptainer import export_lines
from envbuild.plan.model import Definition
from envbuild.runtime import DRIVER_LIBRARIES

LINKS = {
    "environment": ".singularity.d/env/90-environment.sh",
    "singularity": ".singularity.d/runscript",
}
ENVIRONMENT = "env/90-environment.sh"
OF_BASE = ("env/10-docker2singularity.sh", ENVIRONMENT)
"""Files that set variables which a base asks for."""
LAYERED_HELP = """
This image is made of layers: build --sandbox, --unsquash and a build from it take its first one only, which then
refuses to start. envbuild flatten makes one partition of it.
"""
ACTION = """\
#!/bin/sh
for file in /.singularity.d/env/*.sh; do
    if [ -f "$file" ]; then . "$file"; fi
done
"""
ACTIONS = {
    "exec": 'exec "$@"\n',
    "run": 'exec /.singularity.d/runscript "$@"\n',
    "shell": 'exec /bin/sh "$@"\n',
    "start": 'exec /.singularity.d/startscript "$@"\n',
    "test": 'exec /.singularity.d/test "$@"\n',
}
"""For runtimes older than Apptainer 1 and Singularity 3.6, which start these.

Newer ones bring their own.
"""
LIBRARIES = f'export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}{DRIVER_LIBRARIES}"\n'
"""The runtime binds the driver's libraries there (--nv).

The file has to be called 99-base.sh: right after the one of that name Apptainer sets the variables
that are handed in (--env, APPTAINERENV_*); without it they never arrive.
"""


def runtime_contents(definition: Definition, text: str, inherited: BaseConfig) -> Iterator[Content]:
    """Yield the runtime's own files; ``text`` is the whole definition, kept beside them."""
    yield TreeEntry(HOME, "d", 0o755), None
    yield TreeEntry(f"{HOME}/env", "d", 0o755), None
    yield TreeEntry(f"{HOME}/libs", "d", 0o755), None
    for path, target in LINKS.items():
        yield TreeEntry(path, "l", 0o777, target=target), None
    for name, content in runtime_files(definition, text, inherited).items():
        # the runtime sources or starts all but these
        executable = not name.endswith((".json", ".help", "Singularity"))
        yield TreeEntry(f"{HOME}/{name}", "f", 0o755 if executable else 0o644), content.encode()


def runtime_files(
    definition: Definition, text: str, inherited: BaseConfig = NO_CONFIG
) -> dict[str, str]:
    """Return the files below /.singularity.d by name.

    The base's environment comes first, the definition's wins.
    """
    # scripts in env/ run in the order of their names, 90-environment.sh is the definition's
    before = dict(inherited.environment)
    own = before.pop("90-environment.sh", "#!/bin/sh\n")
    exports = "".join(f"{line}\n" for line in export_lines(definition))
    runscript = inherited.runscript or _shell_script(())
    if definition.runscript:
        runscript = _shell_script(definition.runscript)
    # the labels; none of ours tells a time or a host
    all_labels = {
        **dict(inherited.labels),
        **dict(definition.labels),
        "org.label-schema.schema-version": "1.0",
        "org.label-schema.usage": "/.singularity.d/runscript.help",
        "org.label-schema.usage.singularity.runscript.help": "/.singularity.d/runscript.help",
    }
    files = {
        "Singularity": text,
        **{f"env/{name}": script for name, script in before.items()},
        "env/90-environment.sh": own.rstrip("\n") + f"\n{exports}",
        "env/99-base.sh": f"#!/bin/sh\n{LIBRARIES}",
        "labels.json": json.dumps(all_labels, indent="\t", sort_keys=True) + "\n",
        "runscript": runscript,
        "runscript.help": "\n".join(definition.help) + "\n",
        "startscript": "#!/bin/sh\n",
        "test": _shell_script(definition.test),
    }
    return {**files, **{f"actions/{name}": ACTION + line for name, line in ACTIONS.items()}}


def _shell_script(lines: Sequence[str]) -> str:
    """Return lines as a shell script."""
    return "\n".join(("#!/bin/sh", *lines)) + "\n"


def inspect_metadata(
    definition: Definition, text: str, mode: str, held: Mapping[str, str]
) -> bytes:
    """Return what ``apptainer inspect`` prints: it reads an object of the SIF, not the image.

    ``held`` are the files below /.singularity.d that the image has, as far as a base may have
    brought them.
    """
    files = {**runtime_files(definition, text), **held}
    exports = sorted({ENVIRONMENT, *held} & {*OF_BASE})
    attributes = {
        "environment": {f"/{HOME}/{name}": files[name] for name in exports},
        "labels": {**parse_labels(files["labels.json"]), "envbuild.mode": mode},
        "runscript": files["runscript"],
        "startscript": files["startscript"],
        "test": files["test"],
        "helpfile": files["runscript.help"] + (LAYERED_HELP if MODES[mode].is_layered else ""),
        "deffile": text,
    }
    return json.dumps(
        {"data": {"attributes": attributes}, "type": "container"}, sort_keys=True
    ).encode()
