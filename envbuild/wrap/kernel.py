"""The kernel spec of an image (jupyter_client, Making kernels for Jupyter)."""

from __future__ import annotations

import json

from envbuild.job.schedulers import features_of
from envbuild.job.sites.site import Site
from envbuild.job.submit import KEPT
from envbuild.names import Texts
from envbuild.plan.quoting import quote_literal
from envbuild.records import frozen_record
from envbuild.wrap.script import DIRECT

PREFIX = "envbuild-"
"""Before a kernel's name, so that none hides Jupyter's own ("python3")."""
MARK = "envbuild"
"""The key of a spec's metadata that tells which ones are ours."""
RELAY, FORWARD, START = "relay.py", "on-node", "start-on-node"
"""Files of a kernel on a node: what carries its connections, what Jupyter starts, and the job."""
CONNECTION = "{connection_file}"


@frozen_record
class NodeKernel:
    """A kernel that is a job: its folder, its site, and the words that run START on a node."""

    folder: str
    site: Site
    words: Texts


def render_kernel(name: str, program: str, image: str) -> str:
    """Return kernel.json; ``program`` is the wrapper, as an absolute path."""
    command = ("python3", "-m", "ipykernel_launcher", "-f", CONNECTION)
    return _render_spec(
        image,
        argv=[program, "--bind", CONNECTION, *command],
        display_name=f"{name} (image)",
    )


def render_node_kernel(name: str, image: str, kernel: NodeKernel) -> str:
    """Return kernel.json of a kernel on a node, which no signal of Jupyter's reaches."""
    return _render_spec(
        image,
        argv=[f"{kernel.folder}/{FORWARD}", CONNECTION],
        display_name=f"{name} (image, on {kernel.site.name})",
        interrupt_mode="message",
    )


def _render_spec(image: str, **more: object) -> str:
    spec = {**more, "language": "python", "metadata": {MARK: {"image": image}}}
    return json.dumps(spec, indent=1, ensure_ascii=False) + "\n"


def render_forward(kernel: NodeKernel) -> str:
    """Return what Jupyter starts: the client of the scheduler gets the variables that it needs.

    Inside of a job, those of Slurm would make the kernel a step of that job.
    """
    client, *others = map(quote_literal, kernel.words)
    start = "exec"
    if option := features_of(kernel.site).folder_option:
        # its client would take options from a file of the notebook's folder
        client = f'{client} {option} "$folder"'
        others = [word for word in others if word != "-cwd"]
        start = "folder=$(pwd)\ncd / || exit\nexec"
    words = " ".join((client, *others))
    return (
        "#!/bin/bash\n"
        "# a kernel of Jupyter as a job, written by envbuild (docs/howto-notebooks.md)\n"
        "for variable in $(compgen -e); do\n"
        f'  [[ $variable =~ ^({KEPT.pattern})$ ]] || unset "$variable"\n'
        "done\n"
        f'{start} python3 {quote_literal(f"{kernel.folder}/{RELAY}")} forward "$1" {words}\n'
    )


def render_start(kernel: NodeKernel) -> str:
    """Return what runs on the node: the site's modules, then the other end inside the image."""
    modules = kernel.site.modules
    relay = quote_literal(f"{kernel.folder}/{RELAY}")
    program = quote_literal(f"{kernel.folder}/{DIRECT}")
    lines = ["#!/bin/bash"]
    if modules.init:
        lines += ["# shellcheck disable=SC1090,SC1091", modules.init]
    if modules.load:
        lines.append(f"module load {' '.join(modules.load)} >&2 || exit 125")
    return "\n".join((*lines, f"exec {program} --bind {relay} python3 {relay} serve", ""))
