"""What an image sees of this machine's Python: itself, and none of the packages that its user has installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envbuild.host_python import PLACE, open_host_python
from tests.support import ScriptedRunner, context_for, settings_with


@pytest.mark.parametrize("own", [True, False], ids=["pyenv", "Debian"])
def test_packages_of_this_machine_are_hidden(tmp_path: Path, own: bool) -> None:
    stdlib = tmp_path / "lib/python3.11"
    (stdlib / "site-packages/numpy" if own else stdlib).mkdir(parents=True)
    program, loader = tmp_path / "python", tmp_path / "ld-linux.so.2"
    program.write_bytes(b"program")
    loader.write_bytes(b"loader")
    parts = {"program": str(program), "stdlib": str(stdlib), "libraries": [str(loader)]}
    runner = ScriptedRunner({"-I -S -c": (0, json.dumps(parts), "")})
    with open_host_python(context_for(settings_with(tmp_path), runner)) as python:
        sources = {target: source for source, target, _ in python.binds}
        assert sources[f"{PLACE}/lib/python3.11"] == stdlib
        hiding = sources.get(f"{PLACE}/lib/python3.11/site-packages")
        assert (hiding is not None) == own
        assert hiding is None or list(hiding.iterdir()) == []
