"""What is written into a modulefile is read back as it was, by Lua and Tcl themselves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envbuild.errors import UsageError
from envbuild.plan.quoting import quote_lua, quote_tcl
from envbuild.run import Command, LocalRunner
from tests.support import needs

HOSTILE = (
    'a"b', "a\\", "$HOME", "[exec touch /tmp/x]", "{", "}", "a;b", "#", "]]", "\\n", "日本", " a ",
    "${PATH}", "a'b", "%d", "--[[",
)  # fmt: skip
LINE = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=30)


def read_back(program: str, script: str) -> str:
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    return LocalRunner()(Command(argv=(program, "-"), stdin=script, env=env, timeout=20)).stdout


def by_tcl(values: list[str]) -> str:
    words = " ".join(map(quote_tcl, values))
    script = f"puts -nonewline [join [list {words}] \\n]\n"
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    return LocalRunner()(Command(argv=("tclsh8.6",), stdin=script, env=env, timeout=20)).stdout


@pytest.mark.live
@needs("lua5.3")
@settings(max_examples=25)
@given(values=st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_lua_reads_every_string_back(values: list[str]) -> None:
    texts = [*HOSTILE, *values]
    script = f"io.write(table.concat({{{', '.join(map(quote_lua, texts))}}}, '\\1'))"
    assert read_back("lua5.3", script) == "\1".join(texts)


@pytest.mark.live
@needs("tclsh8.6")
@settings(max_examples=25)
@given(values=st.lists(LINE, max_size=8))
def test_tcl_reads_every_line_back(values: list[str]) -> None:
    texts = [*HOSTILE, *values]
    assert by_tcl(texts) == "\n".join(texts)


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "\x1b[31m"])
def test_no_modulefile_carries_a_control_character(value: str) -> None:
    with pytest.raises(UsageError, match="control character"):
        quote_tcl(value)
