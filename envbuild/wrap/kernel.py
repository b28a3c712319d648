"""The kernel spec of an image (jupyter_client, Making kernels for Jupyter)."""

from __future__ import annotations

import json

PREFIX = "envbuild-"
"""Before a kernel's name, so that none hides Jupyter's own ("python3")."""
MARK = "envbuild"
"""The key of a spec's metadata that tells which ones are ours."""


def render_kernel(name: str, program: str, image: str) -> str:
    """Return kernel.json; ``program`` is the wrapper, as an absolute path."""
    connection = "{connection_file}"
    command = ("python3", "-m", "ipykernel_launcher", "-f", connection)
    spec = {
        "argv": [program, "--bind", connection, *command],
        "display_name": f"{name} (image)",
        "language": "python",
        "metadata": {MARK: {"image": image}},
    }
    return json.dumps(spec, indent=1, ensure_ascii=False) + "\n"
