"""Strings of a stranger's recipe or lock in files for other programs: none is more than a string there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from envbuild.errors import IntegrityError
from envbuild.lock.read import parse_lock
from envbuild.toml import quote
from envbuild.wrap.kernel import render_kernel
from envbuild.wrap.modulefile import Modulefile, render_lua, render_tcl
from tests.support import needs

LOCK = (Path(__file__).parents[2] / "lockfiles/torch-mnist.lock").read_text("utf-8")
HARM = (
    '"]] HARM() --[[',
    "]]) HARM() --",
    '"; HARM; puts "',
    "[HARM]",
    "$HARM [HARM] {",
    "} ; HARM ; {",
    "\\\nHARM",
    "\nHARM()\n",
    "`HARM` $(HARM)",
)
"""HARM is a command of the language that reads it."""


@pytest.mark.parametrize("key", ["name", "reference", "framework", "distro", "envbuild", "uv"])
def test_no_string_of_a_lock_begins_a_line(key: str) -> None:
    """It would be one of ``requirements.txt``: another index, another package."""
    begin, sign, rest = LOCK.partition(f'\n{key} = "')
    value, _, rest = rest.partition('"')
    changed = f"{begin}{sign[:-1]}{quote(value + chr(10) + '--index-url x')}{rest}"
    with pytest.raises(IntegrityError, match="has a line end, which no export could hold"):
        parse_lock(changed, "lock")


@pytest.mark.parametrize("harm", HARM)
def test_a_kernel_is_what_was_given(harm: str) -> None:
    spec = json.loads(render_kernel(harm, f"/{harm}/run", f"/{harm}.sif"))
    assert spec["argv"][0] == f"/{harm}/run"
    assert spec["metadata"] == {"envbuild": {"image": f"/{harm}.sif"}}


def modulefile(harm: str) -> Modulefile:
    return Modulefile(
        name="x",
        version="1",
        summary=harm,
        image=f"/{harm}.sif",
        programs=f"/{harm}",
        commands=(harm,),
        modules=(harm,),
        lock=harm,
    )


@needs("lua")
@pytest.mark.parametrize("harm", HARM)
def test_a_modulefile_of_lua_runs_nothing(harm: str) -> None:
    functions = ["help", "whatis", "conflict", "load", "prepend_path", "setenv"]
    quiet = "".join(f"function {name}() end\n" for name in functions)
    script = f"function HARM() print('harm') end\n{quiet}{render_lua(modulefile(harm))}print('end')"
    assert run("lua", script) == "end"


@needs("tclsh")
@pytest.mark.parametrize("harm", [harm for harm in HARM if "\n" not in harm])
def test_a_modulefile_of_tcl_runs_nothing(harm: str) -> None:
    functions = ["module-whatis", "conflict", "module", "prepend-path", "setenv"]
    quiet = "".join(f"proc {name} args {{}}\n" for name in functions)
    told = "proc HARM args { puts harm }\nset HARM harm\n"
    assert (
        run("tclsh", f"{told}{quiet}{render_tcl(modulefile(harm))}ModulesHelp\nputs end\n") == "end"
    )


def run(program: str, script: str) -> str:
    return subprocess.run(
        [program, "-"] if program == "lua" else [program],
        input=script,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
