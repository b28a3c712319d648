"""What the configuration of a registry's image says becomes words of a script, and no code."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from envbuild.build.image.base_config import config_of_oci
from envbuild.formats.oci import read_config

HARM = (
    "$(touch ran)",
    "`touch ran`",
    "a; touch ran",
    "a\ntouch ran\n",
    "' ; touch ran; '",
    "${x:=$(touch ran)}",
)
NO_NAMES = (
    "a b",
    "a.b",
    "-x",
    "BASH_FUNC_true%%",
    "a\u00e9",
    "",
    "1a",
    "a[$(touch ran)]",
    "a\n",
    "\x1b[2J",
)


@pytest.mark.parametrize("harm", HARM)
def test_it_is_words_and_no_code(harm: str, tmp_path: Path) -> None:
    lines = [f"{harm}=1", f"KEPT={harm}", f"PS4={harm}", *(f"{name}={harm}" for name in NO_NAMES)]
    command = {"Env": lines, "Entrypoint": ["true", harm], "Cmd": [harm], "Labels": {harm: harm}}
    raw = {"architecture": "amd64", "config": command}
    config = config_of_oci(read_config(msgspec.json.encode(raw), where="x"))
    [(_, script)] = config.environment
    assert config.runscript is not None
    shown = f'{script}\nprintf %s "$KEPT"\n'
    for text in (shown, config.runscript):
        ran = subprocess.run(
            ["/bin/sh", "-eu", "-c", text],
            cwd=tmp_path,
            env={"PATH": os.defpath},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout in (harm, "")
        assert not ran.stderr
        assert not list(tmp_path.iterdir())
    assert not [name for name in NO_NAMES if name and f"export {name}=" in script]
