"""What the container runtime reads inside an image: environment, runscript, test, help, labels."""

from __future__ import annotations

import json
from collections.abc import Iterator

from envbuild.build.pack import Content
from envbuild.build.tree import Entry
from envbuild.plan.model import Definition
from envbuild.plan.quoting import word

HOME = ".singularity.d"
LINKS = {
    "environment": ".singularity.d/env/90-environment.sh",
    "singularity": ".singularity.d/runscript",
}
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
"""For runtimes older than Apptainer 1 and Singularity 3.6, which start these; newer ones bring their own."""
LIBRARIES = 'export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/.singularity.d/libs"\n'
"""The runtime binds the driver's libraries there (--nv)."""


def dot_contents(definition: Definition, text: str) -> Iterator[Content]:
    """Yield the runtime's own files; ``text`` is the whole definition, kept beside them."""
    yield Entry(HOME, "d", 0o755), None
    yield Entry(f"{HOME}/env", "d", 0o755), None
    yield Entry(f"{HOME}/libs", "d", 0o755), None
    for path, target in LINKS.items():
        yield Entry(path, "l", 0o777, target=target), None
    for name, content in dot_files(definition, text).items():
        executable = not name.endswith((".json", ".help", "Singularity"))
        yield Entry(f"{HOME}/{name}", "f", 0o755 if executable else 0o644), content.encode()


def dot_files(definition: Definition, text: str) -> dict[str, str]:
    """Return the files below /.singularity.d by name."""
    exports = "".join(f"export {name}={word(value)}\n" for name, value in definition.environment)
    files = {
        "Singularity": text,
        "env/90-environment.sh": f"#!/bin/sh\n{exports}",
        "env/99-libraries.sh": f"#!/bin/sh\n{LIBRARIES}",
        "labels.json": json.dumps(labels(definition), indent="\t", sort_keys=True) + "\n",
        "runscript": script(definition.runscript),
        "runscript.help": "\n".join(definition.help) + "\n",
        "startscript": "#!/bin/sh\n",
        "test": script(definition.test),
    }
    return {**files, **{f"actions/{name}": ACTION + line for name, line in ACTIONS.items()}}


def script(lines: tuple[str, ...]) -> str:
    """Return lines as a shell script."""
    return "\n".join(("#!/bin/sh", *lines)) + "\n"


def labels(definition: Definition) -> dict[str, str]:
    """Return the labels; none of them tells a time or a host."""
    return {
        **dict(definition.labels),
        "org.label-schema.schema-version": "1.0",
        "org.label-schema.usage": "/.singularity.d/runscript.help",
        "org.label-schema.usage.singularity.runscript.help": "/.singularity.d/runscript.help",
    }


def inspect_metadata(definition: Definition, text: str, mode: str) -> bytes:
    """Return what ``apptainer inspect`` prints, which it reads from an object of the SIF and not from the image."""
    files = dot_files(definition, text)
    attributes = {
        "environment": {"/.singularity.d/env/90-environment.sh": files["env/90-environment.sh"]},
        "labels": {**labels(definition), "envbuild.mode": mode},
        "runscript": files["runscript"],
        "startscript": files["startscript"],
        "test": files["test"],
        "helpfile": files["runscript.help"] + (LAYERED_HELP if mode == "layered" else ""),
        "deffile": text,
    }
    return json.dumps({"data": {"attributes": attributes}, "type": "container"}, sort_keys=True).encode()
